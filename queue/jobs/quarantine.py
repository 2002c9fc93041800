"""Taking a GPU or a host out of use because of a fault, and letting it back.

It drains: nothing new is placed there, and what runs there ends in its own time. Where the verdict says that it fails
anyway, trainings are asked to save and continue elsewhere, which costs none of their restarts; work that cannot be
started again is left alone. Everything done is bounded (`_share`), told and reversible.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import F, Max, Q, QuerySet
from django.utils import timezone

from accounts.refusals import Code, Refusal
from events.announce import wake
from events.models import Event
from hosts import registry
from hosts.health import faults, probation, signs, verdicts
from hosts.health.verdicts import Scope, Verdict
from hosts.models import BEFORE_BURN_IN, Host, HostSign, ResourcePool, Slot
from hosts.observe import DOCTOR
from hosts.pools import mark_dirty
from hosts.transitions import note
from jobs import transitions
from jobs.models import Job, Member, SlotHold
from jobs.states import Reason, StopKind
from trainmaster.kernel_signs import Sign

REASON = "quarantined"
#: what has a fault stays in use, because its pool has lost its share already
WITHHELD = "quarantine_withheld"
#: a person has decided that it stays in use for a time
OVERRULED = "quarantine_overruled"
_MOST_HOURS = 30 * 24
#: lines of a run's own word, and signs of its host, that are looked at for why it failed
_MOST_BROUGHT, _MOST_LOOKED_AT = 20, 200
#: drains that a fault replaces, since they may end while the fault is there
_WEAKER = (Host.Drain.CLEANUP, *BEFORE_BURN_IN)
_LEFT_IN_USE = "Nothing was taken out of use: "


@dataclass(frozen=True)
class _Done:
    """What was done about a sign, as a sentence; `is_final`: it is not judged again. `out`: the slots that are out."""

    sentence: str
    out: Sequence[int] = ()
    is_final: bool = True
    #: it has a fault and stays in use, since its pool has lost its share
    is_withheld: bool = False


def judge(host_id: uuid.UUID) -> None:
    """Do what the verdicts on the unsettled signs of a host ask for."""
    for sign in signs.unsettled(host_id):
        verdict = signs.verdict_on(sign)
        if verdict is None or verdict.scope == Scope.NONE:  # by the rules of an earlier version
            HostSign.objects.filter(pk=sign.pk).update(settled=True)
            continue
        with transaction.atomic():
            host = registry.present().select_for_update().filter(pk=host_id).first()
            if host is None:
                return
            done = _take_out(host, sign, verdict)
            if done.is_withheld and not _is_told(sign):
                sentence = f"{verdict.sentence} {done.sentence}"
                note(host, WITHHELD, "server", {"name": host.name, "sign": sign.pk, "sentence": sentence})
        asked = (
            _ask_to_leave(done.out) if verdict.fails else 0
        )  # after the commit: allocations are locked before hosts
        told = f" {asked} training{'s were' if asked > 1 else ' was'} asked to save and continue elsewhere."
        HostSign.objects.filter(pk=sign.pk).update(
            done=done.sentence + (told if asked else ""), settled=done.is_final
        )


def _is_told(sign: HostSign) -> bool:
    """Whether it was told that this is left in use; a fault may repeat its line a thousand times."""
    alike = HostSign.objects.filter(
        host=sign.host_id, boot_id=sign.boot_id, device=sign.device, scope=sign.scope
    )
    return alike.filter(done__startswith=_LEFT_IN_USE).exists()


def fault_of(member: Member, told: object = None) -> str:
    """The sentence of a fault of the member's host or slots, reported while it ran, of which it fails; else empty.

    `told`: lines of the kernel by the run's own word, beside those that the host has told.
    """
    host, since = member.host, member.allocation.assigned_at
    here = HostSign.objects.filter(host=host).exclude(scope=Scope.NONE)
    known = {
        row.line: (row.device, row.slot_id, signs.verdict_on(row))
        for row in here.filter(at__gte=since).order_by("pk")[:_MOST_LOOKED_AT]
    }
    if brought := signs.read(told[-_MOST_BROUGHT:] if isinstance(told, list) else None):
        former = here.filter(at__lt=since, boot_id=host.boot_id)
        before = set(former.values_list("kernel_us", "line"))
        new = [(line, sign) for at, line, sign in brought if (at, line) not in before and line not in known]
        known |= {line: (sign.device, None, verdicts.of(sign)) for line, sign in new}
    if not known:
        return ""
    held = set(SlotHold.objects.filter(member=member).values_list("slot_id", flat=True))
    slots = signs.slots_by_device(host)
    for device, slot, verdict in known.values():
        if verdict is None or not verdict.fails:
            continue
        of_device = {each.pk for each in slots.get(device, ())} | {slot}
        if verdict.scope == Scope.HOST or of_device & held:
            return f"{host.name}: {verdict.sentence}"
    return ""


def judge_again() -> None:
    """What was interrupted, and what the share of its pool did not allow before."""
    hosts = HostSign.objects.filter(settled=False, boot_id=F("host__boot_id")).values_list(
        "host_id", flat=True
    )
    for host_id in sorted(set(hosts), key=str):
        judge(host_id)


def _take_out(host: Host, sign: HostSign, verdict: Verdict) -> _Done:
    about = {
        "sign": sign.pk, "sentence": verdict.sentence, "boot": sign.boot_id, "device": sign.device,
        "heals": verdict.heals,
    }  # fmt: skip
    if verdict.scope == Scope.HOST:
        return _host_out(host, about, actor="server")
    known = signs.slots_by_device(host)
    if slots := known.get(sign.device):
        return _slots_out(host, [slot.pk for slot in slots], about, actor="server")
    if not known and host.slots.filter(missing=False).exclude(uuid="").exists():
        wake(DOCTOR, str(host.pk))
        return _Done("The doctor is finding out which slot the GPU is.", is_final=False)
    return _Done("No slot of the host uses it.")


def _slots_out(host: Host, slots: Sequence[int], about: dict[str, Any], *, actor: str) -> _Done:
    rows = list(
        host.slots.select_for_update().filter(pk__in=slots, enabled=True, draining=False).order_by("pk")
    )
    if not rows:
        return _Done("It was out of use already.", slots)
    stays = [row for row in rows if actor == "server" and (_overruled(host) or _overruled(row))]
    rows = [row for row in rows if row not in stays]
    if not rows:
        return _Done(_overruled(host) or _overruled(stays[0]), is_final=False)
    if actor == "server" and (full := _share(host, {row.pk for row in rows})):
        return _Done(full, is_final=False, is_withheld=True)
    for row in rows:
        row.draining, row.quarantine, row.overruled = True, _record(about, _times(host, row.index)), {}
        row.save(update_fields=["draining", "quarantine", "overruled"])
        note(host, REASON, actor, {"name": host.name, "slot": row.index, "sentence": about["sentence"]})
    mark_dirty(host.pool_id)
    kept = {row.pk for row in stays}
    sentence = f"Slot {', '.join(str(row.index) for row in rows)} was taken out of use."
    return _Done(sentence, [slot for slot in slots if slot not in kept], is_final=not stays)


def _host_out(host: Host, about: dict[str, Any], *, actor: str) -> _Done:
    slots = list(host.slots.filter(missing=False).values_list("pk", flat=True))
    if not host.enabled or (host.draining and host.drain_cause not in _WEAKER):
        return _Done("The host was out of use already.", slots)
    if actor == "server" and (decided := _overruled(host)):
        return _Done(decided, is_final=False)
    if actor == "server" and (full := _share(host, set(slots))):
        return _Done(full, is_final=False, is_withheld=True)
    host.draining, host.drain_cause, host.drain_reason = True, Host.Drain.FAULT, about["sentence"]
    host.quarantine, host.overruled = _record(about, _times(host, None)), {}
    host.save(update_fields=["draining", "drain_cause", "drain_reason", "quarantine", "overruled"])
    note(host, REASON, actor, {"name": host.name, "sentence": about["sentence"]}, to_state="draining")
    mark_dirty(host.pool_id)
    return _Done("The host was taken out of use.", slots)


def _record(about: dict[str, Any], times: int) -> dict[str, Any]:
    return {**about, "at": timezone.now().isoformat(), "released": times}


def _overruled(row: Host | Slot) -> str:
    """What a person has decided about it, while that holds; else empty."""
    if not signs.is_overruled(row):
        return ""
    kept = row.overruled
    until = kept["until"][:16].replace("T", " ")
    return f"It stays in use until {until} UTC, as {kept['by']} has decided: {kept['reason']}"


def _times(host: Host, slot: int | None) -> int:
    """How often it was let back within the last days after a sign."""
    now = timezone.now()
    events = Event.objects.filter(kind=Event.Kind.HOST, subject=str(host.pk), reason=registry.QUARANTINE_OVER)
    events = events.filter(at__gt=now - probation.FLAPPING, detail__slot=slot, detail__by_sign=True)
    return probation.recent(events.values_list("at", flat=True), now)


def _share(host: Host, slots: set[int]) -> str:
    """Why the server may not take these slots of the host out without a person; empty if it may."""
    ResourcePool.objects.select_for_update(no_key=True).get(
        pk=host.pool_id
    )  # one at a time, or each counts none out
    present = registry.present_slots().filter(host__pool=host.pool_id)
    out = set(
        present.filter(~Q(quarantine={}) | Q(host__drain_cause=Host.Drain.FAULT)).values_list("pk", flat=True)
    )
    most = max(int(present.count() * settings.QUARANTINE_SHARE), host.slots.filter(missing=False).count())
    if len(out | slots) <= most:
        return ""
    return (
        f"{_LEFT_IN_USE}of the pool's slots {len(out)} are out already, and the server takes out at most {most} "
        "without a person."
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
def by_burn_in(host_id: uuid.UUID, slot: int | None, evidence: str) -> None:
    """The server takes a host, or one slot of it, out of use for what a burn-in has measured, within its share."""
    host = registry.present().select_for_update().filter(pk=host_id).first()
    if host is None:
        return
    about = {"sign": None, "sentence": evidence[:500], "boot": host.boot_id, "device": ""}
    if slot is None:
        done = _host_out(host, about, actor="server")
    else:
        rows = host.slots.filter(index=slot, missing=False).values_list("pk", flat=True)
        done = _slots_out(host, list(rows), about, actor="server")
    if done.is_withheld:
        told = {"name": host.name, "slot": slot, "sentence": f"{evidence} {done.sentence}"}
        note(host, WITHHELD, "server", told)


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
    about = {"sign": None, "sentence": reason.strip()[:500], "boot": host.boot_id, "device": ""}
    done = (
        _host_out(host, about, actor=actor) if row is None else _slots_out(host, [row.pk], about, actor=actor)
    )
    return done.sentence


@transaction.atomic
def release(
    host_id: uuid.UUID, slot: int | None, *, actor: str, hours: float | None = None, reason: str = ""
) -> None:
    """Let a host, or one slot of it, back into use. Raises Refusal if it is not out because of a fault.

    For so many `hours` no sign takes it out again, for a `reason`; after that the sign that had taken it out is judged
    again, unless the host was rebooted. Without hours the next sign may take it out.
    """
    _check_overruling(hours, reason)
    host = registry.locked(host_id)
    row = None if slot is None else _slot_of(host, slot)
    if not (host.quarantine if row is None else row.quarantine):
        what = host.name if row is None else f"Slot {slot} of {host.name}"
        raise Refusal(
            f"{what} is not in quarantine. What a person has drained or disabled is enabled instead.",
            Code.CONFLICT,
        )
    sign = (host.quarantine if row is None else row.quarantine).get("sign")
    _let_back(host, row, actor)
    if hours is not None:
        _overrule(row or host, hours, reason.strip(), actor)
        HostSign.objects.filter(pk=sign).update(settled=False)


def _check_overruling(hours: float | None, reason: str) -> None:
    if hours is None and reason.strip():
        raise Refusal(
            "Say for how many hours no fault takes it out again; without hours no reason is needed.",
            field="hours",
        )
    if hours is None:
        return
    if not 0 < hours <= _MOST_HOURS:
        raise Refusal(
            f"Found {hours:g} hours, allowed: more than 0, up to {_MOST_HOURS}. After that, release it again.",
            field="hours",
        )
    if not reason.strip():
        raise Refusal("Say why it may be used in spite of its faults.", field="reason")


def _overrule(row: Host | Slot, hours: float, reason: str, actor: str) -> None:
    until = (timezone.now() + timedelta(hours=hours)).isoformat()
    row.overruled = {"until": until, "reason": reason[:500], "by": actor.partition(":")[2] or actor}
    row.save(update_fields=["overruled"])
    host = row if isinstance(row, Host) else row.host
    slot = None if isinstance(row, Host) else row.index
    note(host, OVERRULED, actor, {"name": host.name, "slot": slot, "sentence": reason, "until": until})


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
    if row is None:
        registry.enable(host.pk, actor=actor)
    else:
        registry.switch_slot(row.pk, enabled=True, actor=actor)


def end_probation() -> int:
    """Let back what was rebooted since its fault and has shown no other for QUARANTINE_PROBATION_SECONDS; how many.

    What was taken out for a state that may end by itself comes back once that is over.
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
    served = [row for row in rows if _is_served(host, row.quarantine, Scope.GPU)]
    for row in served:
        _let_back(host, row, "server")
    if host.quarantine and _is_served(host, host.quarantine, Scope.HOST):
        _let_back(host, None, "server")
        return len(served) + 1
    return len(served)


def _is_served(host: Host, quarantine: dict[str, Any], scope: Scope) -> bool:
    """`scope`: whether the host is out, or a slot of it."""
    by_a_sign, returns = quarantine.get("sign") is not None, int(quarantine.get("released") or 0)
    if not probation.ends_by_itself(by_a_sign=by_a_sign, returns=returns):
        return False
    device = quarantine.get("device", "")
    here = HostSign.objects.filter(host=host).exclude(scope=Scope.NONE)
    if device:  # a fault of another GPU is that one's
        here = here.filter(Q(device=device) | Q(scope=Scope.HOST))
    if not host.boot_id or _still_measured(host, device, scope):
        return False
    since = here.filter(boot_id=host.boot_id, pk__gt=quarantine["sign"])
    if quarantine.get("heals") and not faults.is_gone(host.condition, device) and _has_healed(since):
        return bool(host.condition.get("boot") == host.boot_id)
    if host.boot_id == quarantine.get("boot"):
        return False
    restarts = Event.objects.filter(kind=Event.Kind.HOST, subject=str(host.pk), reason="restarted")
    last = [here.aggregate(at=Max("at"))["at"], restarts.aggregate(at=Max("at"))["at"]]
    return probation.is_over(filter(None, last), timezone.now(), settings.QUARANTINE_PROBATION_SECONDS)


def _still_measured(host: Host, device: str, scope: Scope) -> bool:
    """Whether the host measures a state that would take all of it out again, or the GPU at that address."""
    return any(
        verdicts.of(Sign(kind, 0, measured)).scope == scope and (scope == Scope.HOST or measured == device)
        for kind, measured in faults.standing(host.condition)
    )


def _has_healed(others: QuerySet[HostSign]) -> bool:
    """Whether all other faults since then are such as end by themselves."""
    return all(verdicts.heals(kind) for kind in others.values_list("kind", flat=True))
