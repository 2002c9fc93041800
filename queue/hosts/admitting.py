"""What admission and the doctor found out, written to the host's row.

Each step of an admission holds only while it goes on: a person who removes the host meanwhile wins.
"""

from __future__ import annotations

import uuid
from datetime import timedelta

from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Now
from django.utils import timezone

from events.announce import announce
from hosts import observe, slots
from hosts.models import Host
from hosts.slots import FoundSlot
from hosts.states import Admission
from hosts.transitions import note, set_admission

#: A worker that dies in the middle of an admission holds its claim this long.
CLAIM_SECONDS = 240.0
#: Nobody is at it. A claim that ends later than any does is from before the clock was set back.
_FREE = (
    Q(probe_after=None)
    | Q(probe_after__lt=Now())
    | Q(probe_after__gt=Now() + timedelta(seconds=CLAIM_SECONDS))
)


def claim(host_id: uuid.UUID) -> Host | None:
    """The row, if it waits to be admitted and nobody else is at it."""
    waiting = Host.objects.filter(pk=host_id, admission=Host.Admission.ADMITTING)
    if not waiting.filter(_FREE).update(probe_after=Now() + timedelta(seconds=CLAIM_SECONDS)):
        return None
    return Host.objects.select_related("pool").get(pk=host_id)


def goes_on(host: Host) -> None:
    """The admission takes longer than a claim lasts: keep it. Nothing for a host that is not being admitted."""
    if host.admission == Host.Admission.ADMITTING:
        row = Host.objects.filter(pk=host.pk, admission=Host.Admission.ADMITTING)
        row.update(probe_after=Now() + timedelta(seconds=CLAIM_SECONDS))


def forgotten() -> list[uuid.UUID]:
    """Hosts whose admission was begun, or asked for, and that nobody is at: not those that wait for a person."""
    waiting = Host.objects.filter(_FREE, admission=Host.Admission.ADMITTING, state_reason="")
    waiting = waiting.exclude(transport=Host.Transport.SLURM)  # its cluster is read for it
    return list(waiting.values_list("pk", flat=True))


def key_offered(host_id: uuid.UUID, offered: str, hop: int, sentence: str) -> None:
    """The first key that a host (or a jump host) has shown: a person has to accept it."""
    with transaction.atomic():
        host = _locked(host_id)
        if host is None:
            return
        observe.keep_offered(host, offered, hop)
        host.state_reason, host.probe_after = sentence, None
        host.save(update_fields=["offered_host_key", "jumps", "state_reason", "probe_after"])
        note(host, "key_offered", f"host:{host.name}", {"sentence": sentence})


def found_at(host: Host) -> None:
    """Keep where a name leads that was added without an address."""
    with transaction.atomic():
        if row := _locked(host.pk):
            row.address, row.port, row.login_user, row.jumps = (
                host.address, host.port, host.login_user, host.jumps,
            )  # fmt: skip
            row.save(update_fields=["address", "port", "login_user", "jumps"])
            way = [f"{hop['user']}@{hop['address']}" for hop in host.jumps]
            detail = {"sentence": " via ".join([f"{host.login_user}@{host.address}", *reversed(way)])}
            note(row, "name_resolved", "server", detail)


def found_so_far(host: Host, report: list[dict[str, str]]) -> None:
    """What is already known about a host that is still being admitted: a report without an end time."""
    row = Host.objects.filter(pk=host.pk, admission=Host.Admission.ADMITTING)
    if row.update(doctor={"checks": report, "at": None}):
        announce("hosts")


def failed(host_id: uuid.UUID, sentence: str, *, examined: bool = False) -> None:
    """End the admission with a sentence; it is the whole report unless the host was `examined` already."""
    with transaction.atomic():
        host = _locked(host_id)
        if host is None:
            return
        if not examined:
            checks = [{"name": "contact", "state": "fail", "sentence": sentence}]
            host.doctor = {"checks": checks, "at": timezone.now().isoformat()}
            host.save(update_fields=["doctor"])
        _step(host, Host.Admission.FAILED, "admission_failed", sentence)


@transaction.atomic
def taken_out(host_id: uuid.UUID, sentence: str) -> None:
    """A host in use must not be given work any more, for this reason; what runs there continues."""
    in_use = [Host.Admission.READY, Host.Admission.SUSPENDED]
    host = Host.objects.select_for_update().filter(pk=host_id, admission__in=in_use).first()
    if host is not None:
        _step(host, Host.Admission.FAILED, "taken_out", sentence)


def chosen(host: Host) -> None:
    """Keep what admission chose on the way: interpreter and folder."""
    Host.objects.filter(pk=host.pk, admission=Host.Admission.ADMITTING).update(
        python=host.python, workdir=host.workdir, facts=host.facts
    )


def ready(host_id: uuid.UUID, found: list[FoundSlot]) -> bool:
    """Everything was found in order: register the slots and let work be placed. Whether that was still wanted."""
    with transaction.atomic():
        host = _locked(host_id)
        if host is None:
            return False
        slots.register(host, found)
        _step(host, Host.Admission.READY, "admitted", "")
    observe.seen(host_id)
    return True


def examined(host: Host, report: list[dict[str, str]], *, skew_seconds: float | None) -> None:
    """Store the doctor's report and facts of a host, whatever its state."""
    Host.objects.filter(pk=host.pk).update(
        doctor={"checks": report, "at": timezone.now().isoformat()},
        facts=host.facts,
        clock_skew_seconds=skew_seconds,
        bundle_sha256=host.bundle_sha256,
        server_route=host.server_route,
        server_url=host.server_url,
    )
    announce("hosts")


def _locked(host_id: uuid.UUID) -> Host | None:
    return Host.objects.select_for_update().filter(pk=host_id, admission=Host.Admission.ADMITTING).first()


def _step(host: Host, to: Admission, reason: str, sentence: str) -> None:
    set_admission(host, to, reason=reason, actor="server", sentence=sentence, detail={"sentence": sentence})
