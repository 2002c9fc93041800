"""What the server itself keeps a host from work for: a burn-in that it has to pass first, and a cleanup.

`join` and `hold_back` change a row that the caller has locked and saves (`SWITCHES`); the others are whole changes.
"""

from __future__ import annotations

import uuid

from django.db import transaction
from django.utils import timezone

from events.announce import announce
from hosts import failed_starts
from hosts.models import BEFORE_BURN_IN, BurnInRule, Host, ResourcePool
from hosts.pools import mark_dirty
from hosts.transitions import note

#: the fields that `switch`, `join` and `hold_back` set
SWITCHES = ["enabled", "draining", "drain_cause", "drain_reason", "quarantine", "awaits_burn_in"]


def switch(host: Host, *, enabled: bool, draining: bool = False, why: str = "") -> None:
    """Set the switches as a person wishes, or as they are once the server lifts its own drain."""
    host.quarantine = {}
    host.enabled, host.draining, host.drain_cause, host.drain_reason = enabled, draining, "", why


def join(host: Host, pool: ResourcePool) -> None:
    """The host joins the pool, and gets work only after its burn-in if the pool says so."""
    is_reached = host.transport in (Host.Transport.SSH, Host.Transport.LOCAL)
    host.awaits_burn_in = pool.burn_in == BurnInRule.BEFORE_JOINING and is_reached
    host.joined_at = timezone.now()
    if host.drain_cause in BEFORE_BURN_IN:  # for the rule of its former pool
        switch(host, enabled=host.enabled)
    hold_back(host)


def hold_back(host: Host) -> None:
    """A host that nothing else keeps from work, and that awaits its burn-in, waits for that."""
    if host.awaits_burn_in and host.enabled and not host.draining:
        host.draining, host.drain_cause, host.drain_reason = True, Host.Drain.BURN_IN, _before(host)


def _before(host: Host) -> str:
    return f"It gets work in pool {host.pool.name} once it has passed its burn-in, or if it is enabled."


@transaction.atomic
def burn_in_refused(host_id: uuid.UUID, sentence: str) -> None:
    """Say on a host that waits for its burn-in why none can be asked for; empty: it is under way."""
    host = _locked(host_id)
    if host is None or host.drain_cause != Host.Drain.BURN_IN:
        return
    why = f"{_before(host)} {sentence}".strip()
    if host.drain_reason != why:
        host.drain_reason = why
        host.save(update_fields=["drain_reason"])
        announce("hosts")


@transaction.atomic
def burn_in_over(host_id: uuid.UUID, found: str) -> None:
    """What waits for its burn-in gets work if nothing was `found`; others are left as they are."""
    host = _locked(host_id)
    if host is None:
        return
    if not found and host.awaits_burn_in:
        host.awaits_burn_in = False
        host.save(update_fields=["awaits_burn_in"])
    if host.drain_cause not in BEFORE_BURN_IN:
        return
    if not found:
        failed_starts.clear(host)
        host.save(update_fields=failed_starts.FIELDS)
        _lift(host)
        return
    host.drain_cause, host.drain_reason = Host.Drain.BURN_IN_FOUND, found
    host.save(update_fields=SWITCHES)
    _changed(host, "draining", {"sentence": found})


@transaction.atomic
def drain_for_cleanup(host_id: uuid.UUID, sentence: str) -> None:
    """The server drains the host until `lift_drain`. One that is drained or disabled for another reason stays so."""
    host = _locked(host_id)
    if host is None or not host.enabled or host.drain_reason == sentence:
        return
    if host.draining and host.drain_cause != Host.Drain.CLEANUP:
        return
    host.draining, host.drain_cause, host.drain_reason = True, Host.Drain.CLEANUP, sentence
    host.save(update_fields=SWITCHES)
    _changed(host, "draining", {"sentence": sentence})


@transaction.atomic
def lift_drain(host_id: uuid.UUID) -> bool:
    """Nothing is left of what the server had drained the host for. False: it is not drained, or for another reason."""
    host = _locked(host_id)
    if host is None or host.drain_cause != Host.Drain.CLEANUP:
        return False
    _lift(host)
    return True


def _lift(host: Host) -> None:
    switch(host, enabled=host.enabled)
    hold_back(host)
    host.save(update_fields=SWITCHES)
    _changed(host, "enabled", {})


def _locked(host_id: uuid.UUID) -> Host | None:
    return (
        Host.objects.select_for_update().filter(pk=host_id).exclude(admission=Host.Admission.REMOVED).first()
    )


def _changed(host: Host, reason: str, detail: dict[str, str]) -> None:
    note(host, reason, "server", {"name": host.name, **detail})
    mark_dirty(host.pool_id)
