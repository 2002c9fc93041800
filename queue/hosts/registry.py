"""What people decide about hosts: add, accept a key, enable, drain, move, remove, declare lost.

Every change is guarded, leaves an event, and tells the scheduler to look. Nothing here contacts a host:
admission runs as a Celery task of dispatch, woken by name after the commit.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from django.db import transaction
from django.db.models import ProtectedError, QuerySet
from django.utils import timezone

from accounts.refusals import Code, Refusal
from events.announce import wake
from hosts import evidence, failed_starts, pair_checks, server_drains, slurm_nodes
from hosts.models import Host, ResourcePool, Slot
from hosts.observe import DOCTOR
from hosts.pools import hold, mark_dirty
from hosts.slots import SLOTS_MAX
from hosts.transitions import note, set_admission
from trainmaster.quantities import duration

ADMIT = "dispatch.host_tasks.admit"
LOST = "dispatch.tasks.host_lost"

#: the reason of the event that ends a quarantine, whoever ends it and how
QUARANTINE_OVER = "quarantine_over"
_NAME_CHARACTERS = 128
_PORTS = range(1, 65536)
_DIALLED = (Host.Transport.SSH, Host.Transport.LOGIN)


@dataclass(frozen=True)
class NewHost:
    """What is known of a host that is to be added; `jumps` are as in Host.jumps. Empty: found out by admission.

    Without an address its name is one that the ssh of the server's account knows. The port 0 is what its config says
    of the name, or 22.
    """

    name: str
    transport: str = Host.Transport.SSH
    address: str = ""
    port: int = 0
    login_user: str = ""
    jumps: list[dict[str, Any]] = field(default_factory=list)
    gang_address: str = ""
    host_key: str = ""
    python: str = ""
    activate: str = ""
    workdir: str = ""
    wanted_slots: int | None = None


def present() -> QuerySet[Host]:
    """All hosts but the removed ones."""
    return Host.objects.exclude(admission=Host.Admission.REMOVED)


def present_slots() -> QuerySet[Slot]:
    """The slots of those hosts, but for what the doctor no longer finds."""
    return Slot.objects.filter(host__in=present(), missing=False)


def add(new: NewHost, pool: ResourcePool, *, actor: str, choose: bool = False) -> Host:
    """Add a host and start its admission. A removed host of that name comes back with its history.

    `choose`: it gets no work until someone has chosen its interpreter and slots (`hosts.chosen`), or enables it.
    Raises Refusal with the field that is wrong.
    """
    _check(new, pool)
    with transaction.atomic():
        host = Host.objects.select_for_update().filter(name=new.name).first()
        if host and host.admission != Host.Admission.REMOVED:
            raise Refusal(
                f"A host named {new.name!r} already exists. Remove it first, or choose another name.",
                Code.TAKEN,
                field="name",
            )
        if host is None:
            host = Host(name=new.name)
        hold(pool)
        is_new = host._state.adding
        for name, value in vars(new).items():
            setattr(host, name, value)
        is_looked_up = new.transport in _DIALLED and not new.address
        host.port = new.port or (0 if is_looked_up else 22)
        host.pool, host.added_by = pool, actor.removeprefix("user:")
        server_drains.switch(host, enabled=True, draining=choose)
        if choose:
            host.drain_cause = Host.Drain.ADDING
            host.drain_reason = f"{host.added_by} is adding it and has not chosen its Python and slots yet."
        server_drains.join(host, pool)
        failed_starts.clear(host)
        host.offered_host_key = host.contact_error = host.boot_id = host.server_route = host.server_url = ""
        host.facts, host.doctor, host.kernel_log = {}, {}, {}
        host.save()
        host.slots.exclude(quarantine={}).update(quarantine={}, draining=False)
        if is_new:
            _changed(host, "added", actor, to_state=host.admission)
            wake(ADMIT, str(host.pk))
        else:
            _admit(host, "added", actor)
    return host


def name_fault(name: str, most: int) -> str:
    """Why a host or a pool may not have this name; empty if it may."""
    if len(name) <= most and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        return ""
    return f"The name {name!r} is not allowed: letters, digits, '.', '_' and '-', at most {most}, no leading sign."


def _check(new: NewHost, pool: ResourcePool) -> None:
    if sentence := name_fault(new.name, _NAME_CHARACTERS):
        raise Refusal(sentence, field="name")
    if new.transport != Host.Transport.LOGIN:
        slurm_nodes.refuse_into(pool)
    allowed = [Host.Transport.LOGIN] if pool.slurm else [Host.Transport.SSH, Host.Transport.LOCAL]
    if new.transport not in allowed:
        raise Refusal(f"The transport is {new.transport!r}; allowed: ssh, local.", field="transport")
    ports = {f"jumps[{number}].port": jump.get("port", 22) for number, jump in enumerate(new.jumps)}
    for where, port in {"port": new.port or 22, **ports}.items():
        if not isinstance(port, int) or port not in _PORTS:
            raise Refusal(f"The port is {port!r}; allowed: 1 to 65535.", field=where)
    for number, jump in enumerate(new.jumps):
        if not jump.get("address"):
            raise Refusal("A jump host needs an address.", field=f"jumps[{number}].address")
    if new.wanted_slots is not None and not 0 <= new.wanted_slots <= SLOTS_MAX:
        raise Refusal(
            f"The number of slots is {new.wanted_slots}; allowed: 0 to {SLOTS_MAX}.", field="wanted_slots"
        )
    for name, path in (("workdir", new.workdir), ("python", new.python)):
        if path and not path.startswith(("/", "~/")):
            raise Refusal(f"{name} is {path!r}; allowed: an absolute path on the host.", field=name)


def _admit(host: Host, reason: str, actor: str) -> None:
    """Begin (again) with the admission of a locked row. What spoke against it before does not count any more."""
    set_admission(host, Host.Admission.ADMITTING, reason=reason, actor=actor, failed_contacts=0)
    wake(ADMIT, str(host.pk))


def _changed(
    host: Host,
    reason: str,
    actor: str,
    *,
    to_state: str = "",
    detail: dict[str, Any] | None = None,
    left: Collection[int] = (),
) -> None:
    note(host, reason, actor, {"name": host.name, **(detail or {})}, to_state=to_state, left=left)
    mark_dirty(host.pool_id)


def locked(host_id: uuid.UUID) -> Host:
    """The host's row, until this transaction ends. Raises Refusal."""
    host = present().select_for_update().filter(pk=host_id).first()
    if host is None:
        raise Refusal(f"There is no host {host_id}. It may have been removed.", Code.NOT_FOUND)
    return host


@transaction.atomic
def accept_key(host_id: uuid.UUID, *, actor: str, key: str = "") -> None:
    """Pin the key that the host (or a jump host before it) has offered, and go on with the admission.

    With `key` only if that is the one: a caller that has shown it passes it, so that nobody accepts a key that
    he has not seen.
    """
    host = locked(host_id)
    wanted = " ".join(key.split()[:2])
    jumps = [jump for jump in host.jumps if _offers(jump.get("offered_host_key", ""), wanted)]
    own = _offers(host.offered_host_key, wanted)
    if not jumps and not own:
        sentence = (
            f"{host.name} has not offered this key, or now offers another. Check its fingerprint again."
        )
        raise Refusal(sentence if wanted else f"{host.name} has no key waiting to be accepted.", field="key")
    for jump in jumps:
        jump["host_key"] = jump.pop("offered_host_key")
    if own:
        host.host_key, host.offered_host_key = host.offered_host_key, ""
    host.contact_error = ""
    host.save(update_fields=["host_key", "offered_host_key", "jumps", "contact_error"])
    _admit(host, "key_accepted", actor)


def _offers(offered: str, wanted: str) -> bool:
    return bool(offered) and wanted in {"", offered}


@transaction.atomic
def admit_again(host_id: uuid.UUID, *, actor: str) -> None:
    """Try the admission anew: after a failure, a suspension or a declaration of loss."""
    _admit(locked(host_id), "admission_retried", actor)


@transaction.atomic
def examine(host_id: uuid.UUID, *, actor: str) -> None:
    """Let the doctor look again: a host in use stays in use meanwhile, any other is admitted anew."""
    host = locked(host_id)
    if host.transport == Host.Transport.SLURM:
        slurm_nodes.find_again(host, actor=actor)
        return
    if host.admission == Host.Admission.READY:
        wake(DOCTOR, str(host.pk))
    else:
        admit_again(host_id, actor=actor)


@transaction.atomic
def enable(host_id: uuid.UUID, *, actor: str) -> None:
    """New work may be placed again, whatever could not be started there before.

    A person may let in what has not passed its burn-in; what the server lifts leads back to waiting for it.
    """
    host = locked(host_id)
    if not host.enabled or host.draining or host.failed_starts:
        quarantine, was_added = host.quarantine, host.drain_cause == Host.Drain.ADDING
        host.awaits_burn_in = host.awaits_burn_in and (was_added or actor == "server")
        server_drains.switch(host, enabled=True)
        server_drains.hold_back(host)
        failed_starts.clear(host)
        host.save(update_fields=[*server_drains.SWITCHES, *failed_starts.FIELDS])
        reason = QUARANTINE_OVER if quarantine else "enabled"
        _changed(host, reason, actor, detail=_after(quarantine, slot=None))


@transaction.atomic
def disable(host_id: uuid.UUID, *, actor: str) -> None:
    """Nothing new is placed; what runs there is stopped by the next pass of its pool."""
    host = locked(host_id)
    if host.enabled:
        server_drains.switch(host, enabled=False, why=_by("Disabled", actor))
        host.save(update_fields=server_drains.SWITCHES)
        _changed(host, "disabled", actor)


@transaction.atomic
def drain(host_id: uuid.UUID, *, actor: str) -> None:
    """Nothing new is placed; what runs there ends in its own time. It stays so until someone enables the host."""
    host = locked(host_id)
    if not host.draining or host.drain_cause:
        server_drains.switch(host, enabled=True, draining=True, why=_by("Drained", actor))
        host.save(update_fields=server_drains.SWITCHES)
        _changed(host, "draining", actor)


def _after(quarantine: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Of a quarantine that ends: whether a sign was its cause, not a person."""
    return {**more, "by_sign": quarantine.get("sign") is not None} if quarantine else {}


def _by(what: str, actor: str) -> str:
    return f"{what} by {actor.removeprefix('user:')}, {timezone.now():%Y-%m-%d %H:%M} UTC."


@transaction.atomic
def change_pool(host_id: uuid.UUID, pool: ResourcePool, *, actor: str) -> None:
    """Move the host to another pool; refused while something runs there."""
    host = locked(host_id)
    if host.pool_id == pool.pk:
        return
    slurm_nodes.refuse(host, "moved to another pool", field="pool")
    slurm_nodes.refuse_into(pool)
    refuse_live(host, "moved to another pool", field="pool")
    hold(pool)
    mark_dirty(host.pool_id)
    before, host.pool = host.pool, pool
    server_drains.join(host, pool)
    host.save(update_fields=["pool", "joined_at", *server_drains.SWITCHES])
    _changed(host, "pool_changed", actor, detail={"from": before.name, "to": pool.name}, left=[before.pk])


def refuse_live(host: Host, what: str, *, field: str = "") -> None:
    """Raises Refusal while something runs there; `what` is the participle of what cannot be done."""
    members = host.members.filter(ended_at=None).select_related("allocation")
    if runs := [member.run_key for member in members]:
        shown = ", ".join(runs[:3]) + (f" and {len(runs) - 3} more" if len(runs) > 3 else "")
        raise Refusal(
            f"{host.name} cannot be {what} while it runs {shown}. Drain or disable it and wait, or declare it lost.",
            Code.CONFLICT,
            field,
        )


@transaction.atomic
def remove(host_id: uuid.UUID, *, actor: str) -> None:
    """Take the host out. Its row stays, hidden, as long as history points at it."""
    host = locked(host_id)
    slurm_nodes.refuse(host, "removed")
    take_out(host, actor=actor)


def take_out(host: Host, *, actor: str) -> None:
    """Take a locked row out. Raises Refusal while something runs there."""
    refuse_live(host, "removed")
    set_admission(
        host, Host.Admission.REMOVED, reason="removed", actor=actor,
        enabled=False, host_key="", offered_host_key="",
    )  # fmt: skip
    try:
        with transaction.atomic():
            host.delete()
    except ProtectedError:
        pair_checks.forget(host.pk)


@transaction.atomic
def declare_lost(host_id: uuid.UUID, *, actor: str) -> bool:
    """A person says that the host is gone for good: its runs are over and start elsewhere. Whether that was news."""
    host = locked(host_id)
    return _lose(host, f"Declared lost by {actor}.", actor, {})


@transaction.atomic
def declare_lost_by_rule(host_id: uuid.UUID) -> bool:
    """Declare the host lost by the pool's rule if there is still enough evidence. Return whether it was."""
    host = evidence.suspects().select_for_update(of=("self",)).filter(pk=host_id).first()
    if host is None or host.failing_since is None or host.failed_at is None:
        return False
    seconds = (host.failed_at - host.failing_since).total_seconds()
    count = host.failed_contacts
    sentence = f"Declared lost by the pool's rule: {count} contacts in a row failed over {duration(seconds)}."
    return _lose(host, sentence, "server", {"failed_contacts": count, "silent_seconds": seconds})


def _lose(host: Host, sentence: str, actor: str, detail: dict[str, Any]) -> bool:
    lost = set_admission(
        host, Host.Admission.LOST, reason="declared_lost", actor=actor, sentence=sentence, detail=detail
    )
    if lost:
        wake(LOST, str(host.pk))
    return lost


@transaction.atomic
def choose_interpreter(
    host_id: uuid.UUID, *, python: str | None = None, activate: str | None = None, actor: str
) -> Host:
    """Which Python the host's next runs use, or which script is sourced before them (then `python` runs verbs only).

    An interpreter that the doctor has not found there is tried first: the host is admitted anew with it.
    """
    host = locked(host_id)
    if host.transport == Host.Transport.SLURM:
        raise Refusal(
            f"{host.name} uses the Python of {slurm_nodes.login_name(host.pool.name)}. Change it there.",
            Code.CONFLICT,
        )
    if python and activate:
        raise Refusal("Give either python or activate, not both.", field="python")
    if python and not python.startswith(("/", "~/")):
        raise Refusal(f"python is {python!r}; allowed: an absolute path on the host.", field="python")
    before = (host.python, host.activate)
    if python is not None:
        host.python, host.activate = python, ""
    if activate is not None:
        host.activate = activate
    if (host.python, host.activate) == before:
        return host
    host.save(update_fields=["python", "activate"])
    _changed(host, "interpreter_chosen", actor, detail={"python": host.python, "activate": host.activate})
    found = {interpreter["path"] for interpreter in host.facts.get("interpreters", [])}
    if host.admission == Host.Admission.READY and (host.python == before[0] or host.python in found):
        wake(DOCTOR, str(host.pk))  # for its words on torch
    else:
        _admit(host, "admission_retried", actor)
    return host


@transaction.atomic
def switch_slot(slot_id: int, *, enabled: bool, draining: bool = False, actor: str) -> Slot:
    """Let new work be placed on one slot, or not. What runs there is the caller's to stop."""
    slot = Slot.objects.select_related("host").get(pk=slot_id)
    Host.objects.select_for_update(no_key=True).get(pk=slot.host_id)  # a host is locked before its slots
    slot = Slot.objects.select_for_update(of=("self",)).select_related("host").get(pk=slot_id)
    quarantine = slot.quarantine if enabled and not draining else {}
    if (slot.enabled, slot.draining) != (enabled, draining) or slot.quarantine:
        slot.enabled, slot.draining, slot.quarantine = enabled, draining, {}
        slot.save(update_fields=["enabled", "draining", "quarantine"])
        reason = "slot_draining" if draining else "slot_enabled" if enabled else "slot_disabled"
        if quarantine:
            reason = QUARANTINE_OVER
        _changed(slot.host, reason, actor, detail={"slot": slot.index, **_after(quarantine)})
    return slot


#: what is done to a host as it is, by the word for it in addresses
STEPS: dict[str, Callable[..., object]] = {
    "enable": enable, "disable": disable, "drain": drain, "doctor": examine, "lost": declare_lost,
}  # fmt: skip
