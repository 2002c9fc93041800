"""Taking a GPU or a host out of use because of a fault, and letting it back.

It drains: nothing new is placed there, and what runs there ends in its own time. Where the verdict says that it fails
anyway, trainings are asked to save and continue elsewhere, which costs none of their restarts; work that cannot be
started again is left alone. Everything done is bounded (`_share`), told and reversible.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from accounts.refusals import Code, Refusal
from events.models import Event
from hosts import registry
from hosts.health.signs import Judged
from hosts.health.verdicts import Scope
from hosts.models import Host, HostSign, Slot
from hosts.pools import mark_dirty
from hosts.transitions import note
from jobs import transitions
from jobs.models import Job, SlotHold
from jobs.states import Reason, StopKind

REASON = "quarantined"
RELEASED = "quarantine_over"
#: taken out again within so long, it stays out until a person lets it back
_FLAPPING_DAYS = 7


def judge(host_id: uuid.UUID, found: Sequence[Judged]) -> None:
    """Do what the verdicts on new signs of a host ask for."""
    for each in found:
        if each.verdict.scope == Scope.NONE:
            continue
        about = {"sign": each.row.pk, "sentence": each.verdict.sentence, "boot": each.row.boot_id}
        with transaction.atomic():
            host = registry.present().select_for_update().filter(pk=host_id).first()
            if host is None:
                return
            if each.verdict.scope == Scope.GPU and each.slots:
                done, out = _slots_out(host, [slot.pk for slot in each.slots], about, actor="server")
                fails = each.verdict.fails
            else:  # of a GPU that is no slot, what runs on the others goes on
                done, out = _host_out(host, about, actor="server")
                fails = each.verdict.fails and each.verdict.scope == Scope.HOST
        # after the commit: allocations are locked before hosts
        if asked := _ask_to_leave(out) if fails else 0:
            done += (
                f" {asked} training{'s were' if asked > 1 else ' was'} asked to save and continue elsewhere."
            )
        HostSign.objects.filter(pk=each.row.pk).update(done=done)


def _slots_out(
    host: Host, slots: Iterable[int], about: dict[str, Any], *, actor: str
) -> tuple[str, list[int]]:
    """(what was done, as a sentence, the slots that are out now by it)."""
    rows = list(
        host.slots.select_for_update().filter(pk__in=slots, enabled=True, draining=False).order_by("pk")
    )
    if not rows:
        return "It was out of use already.", []
    if actor == "server" and (full := _share(host, {row.pk for row in rows})):
        return full, []
    for row in rows:
        row.draining, row.quarantine = True, _record(about, _times(host, row.index))
        row.save(update_fields=["draining", "quarantine"])
        note(host, REASON, actor, {"name": host.name, "slot": row.index, "sentence": about["sentence"]})
    mark_dirty(host.pool_id)
    return f"Slot {', '.join(str(row.index) for row in rows)} was taken out of use.", [row.pk for row in rows]


def _host_out(host: Host, about: dict[str, Any], *, actor: str) -> tuple[str, list[int]]:
    """The same for the whole host."""
    if not host.enabled or host.draining:
        return "The host was out of use already.", []
    slots = list(host.slots.filter(missing=False).values_list("pk", flat=True))
    if actor == "server" and (full := _share(host, set(slots))):
        return full, []
    host.draining, host.drain_cause, host.drain_reason = True, Host.Drain.FAULT, about["sentence"]
    host.quarantine = _record(about, _times(host, None))
    host.save(update_fields=["draining", "drain_cause", "drain_reason", "quarantine"])
    note(host, REASON, actor, {"name": host.name, "sentence": about["sentence"]}, to_state="draining")
    mark_dirty(host.pool_id)
    return "The host was taken out of use.", slots


def _record(about: dict[str, Any], times: int) -> dict[str, Any]:
    return {**about, "at": timezone.now().isoformat(), "released": times}


def _times(host: Host, slot: int | None) -> int:
    """How often it was let back within the last days."""
    since = timezone.now() - timedelta(days=_FLAPPING_DAYS)
    events = Event.objects.filter(kind=Event.Kind.HOST, subject=str(host.pk), reason=RELEASED, at__gt=since)
    return (
        events.filter(detail__slot=slot).count()
        if slot is not None
        else events.exclude(detail__has_key="slot").count()
    )


def _share(host: Host, slots: set[int]) -> str:
    """Why the server may not take these slots of the host out without a person; empty if it may."""
    present = registry.present_slots().filter(host__pool=host.pool_id)
    out = set(
        present.filter(~Q(quarantine={}) | Q(host__drain_cause=Host.Drain.FAULT)).values_list("pk", flat=True)
    )
    most = max(int(present.count() * settings.QUARANTINE_SHARE), host.slots.filter(missing=False).count())
    if len(out | slots) <= most:
        return ""
    return (
        f"Nothing was taken out of use: of the pool's slots {len(out)} are out already, and the server takes out "
        f"at most {most} without a person."
    )


def _ask_to_leave(slots: Sequence[int]) -> int:
    """Ask the trainings on these slots to save and leave; how many."""
    holds = SlotHold.objects.filter(
        slot__in=slots, released_at=None, member__allocation__task__job__kind=Job.Kind.EXPERIMENT
    )
    found = sorted(set(holds.values_list("member__allocation_id", flat=True)))
    return sum(
        transitions.request_stop(each, StopKind.PREEMPT, reason=Reason.HOST_FAULT, actor="server")
        for each in found
    )


@transaction.atomic
def by_hand(host_id: uuid.UUID, slot: int | None, reason: str, *, actor: str) -> str:
    """A person takes a host, or one slot of it by its index, out of use. Returns what was done. Raises Refusal."""
    if not reason.strip():
        raise Refusal("Say why: the reason is shown to everybody whose work waits.", field="reason")
    host = registry.locked(host_id)
    row = None if slot is None else _slot_of(host, slot)
    switched = host if row is None else row
    if not switched.enabled or switched.draining:
        what = host.name if row is None else f"Slot {slot} of {host.name}"
        raise Refusal(
            f"{what} is drained, disabled or in quarantine already. Enable or release it first.",
            Code.CONFLICT,
        )
    about = {"sign": None, "sentence": reason.strip()[:500], "boot": host.boot_id}
    done, _ = (
        _host_out(host, about, actor=actor) if row is None else _slots_out(host, [row.pk], about, actor=actor)
    )
    return done


@transaction.atomic
def release(host_id: uuid.UUID, slot: int | None, *, actor: str) -> None:
    """Let a host, or one slot of it, back into use. Raises Refusal if it is not out because of a fault."""
    host = registry.locked(host_id)
    row = None if slot is None else _slot_of(host, slot)
    if not (host.quarantine if row is None else row.quarantine):
        what = host.name if row is None else f"Slot {slot} of {host.name}"
        raise Refusal(
            f"{what} is not in quarantine. What a person has drained or disabled is enabled instead.",
            Code.CONFLICT,
        )
    _let_back(host, row, actor)


def _slot_of(host: Host, index: int) -> Slot:
    row = host.slots.filter(index=index, missing=False).first()
    if row is None:
        has = ", ".join(
            str(each) for each in host.slots.filter(missing=False).values_list("index", flat=True)
        )
        raise Refusal(
            f"{host.name} has no slot {index}; it has {has or 'none'}.", Code.NOT_FOUND, field="slot"
        )
    return row


def _let_back(host: Host, row: Slot | None, actor: str) -> None:
    detail = {"name": host.name} if row is None else {"name": host.name, "slot": row.index}
    note(host, RELEASED, actor, detail)
    if row is None:
        registry.enable(host.pk, actor=actor)
    else:
        registry.switch_slot(row.pk, enabled=True, actor=actor)


def end_probation() -> int:
    """Let back what was rebooted since its fault and has shown no other for QUARANTINE_PROBATION_SECONDS; how many.

    What had been let back before within the last days stays out: a person has to look at it.
    """
    hosts = (
        registry.present()
        .filter(~Q(quarantine={}) | Q(slots__in=Slot.objects.exclude(quarantine={})))
        .distinct()
    )
    return sum(_end_probation_of(host_id) for host_id in hosts.values_list("pk", flat=True))


@transaction.atomic
def _end_probation_of(host_id: uuid.UUID) -> int:
    host = registry.present().select_for_update().filter(pk=host_id).first()
    if host is None or host.contact != Host.Contact.REACHABLE:
        return 0
    rows = list(host.slots.select_for_update().filter(missing=False).exclude(quarantine={}))
    served = [row for row in rows if _is_served(host, row.quarantine, row)]
    for row in served:
        _let_back(host, row, "server")
    if host.quarantine and _is_served(host, host.quarantine, None):
        _let_back(host, None, "server")
        return len(served) + 1
    return len(served)


def _is_served(host: Host, quarantine: dict[str, Any], slot: Slot | None) -> bool:
    since = timezone.now() - timedelta(seconds=settings.QUARANTINE_PROBATION_SECONDS)
    by_a_sign = quarantine.get("sign") is not None and not quarantine.get("released")
    if not by_a_sign or not host.boot_id or host.boot_id == quarantine.get("boot"):
        return False
    signs = HostSign.objects.filter(host=host, at__gt=since, action__in=("reset", "reboot", "vendor"))
    if slot is not None:
        signs = signs.filter(Q(slot=slot) | Q(slot=None))
    restarted = Event.objects.filter(
        kind=Event.Kind.HOST, subject=str(host.pk), reason="restarted", at__gt=since
    )
    return not signs.exists() and not restarted.exists()
