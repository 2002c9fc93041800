"""Looks once a minute which GPUs stand idle although they are held, and keeps what it found with the slots."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

from django.conf import settings

from events.announce import announce
from hosts.models import Slot
from jobs.models import Member, SlotHold
from jobs.states import MemberState
from metrics import idle_gpus
from metrics.idle_gpus import Rule, Used

#: at either end of the time that is looked at; runs ship every few seconds, and nvidia-smi is asked every 15
_LEAST_GAP_SECONDS = 60.0


#: times of idle slots that are kept with a member; the shortest is IDLE_GPU_SECONDS
_MOST_KEPT = 1000


class _Held(NamedTuple):
    slot_id: int
    uuid: str
    task_id: str
    started_at: datetime
    idle_since: datetime | None


def rule() -> Rule:
    gap = max(_LEAST_GAP_SECONDS, 3 * (settings.SAMPLE_SECONDS + settings.SAMPLE_RECORD_SECONDS))
    return Rule(settings.IDLE_GPU_PERCENT, settings.IDLE_GPU_SECONDS, gap)


def look(now: datetime) -> int:
    """Mark the slots whose GPUs are idle, and take the marks from all others; how many marks have changed."""
    found = _idle(now.timestamp()) if settings.IDLE_GPU_SECONDS > 0 else {}
    marked = dict(Slot.objects.exclude(idle_since=None).values_list("pk", "idle_since"))
    changed = [pk for pk, since in found.items() if marked.get(pk) != since]
    for pk in changed:
        if since := marked.get(pk):  # of a run that held it before
            _keep(pk, since, now)
        Slot.objects.filter(pk=pk).update(idle_since=found[pk])
    gone = list(marked.keys() - found.keys())
    for pk in gone:
        if since := marked[pk]:
            _keep(pk, since, now)
    Slot.objects.filter(pk__in=gone).update(idle_since=None)
    pools = set(Slot.objects.filter(pk__in=changed + gone).values_list("host__pool_id", flat=True))
    if pools:
        announce("hosts", "cluster", *(f"pool:{pool_id}" for pool_id in sorted(pools)))
    return len(changed) + len(gone)


def _keep(slot_id: int, since: datetime, now: datetime) -> None:
    """Note with the member that held the slot when it stood idle."""
    holds = SlotHold.objects.filter(slot_id=slot_id, member__started_at__lte=since).order_by("-pk")
    member = Member.objects.filter(pk__in=holds.values("member_id")[:1]).first()
    if member is not None and len(member.idle) < _MOST_KEPT:
        span = [slot_id, since.timestamp(), min(now, member.ended_at or now).timestamp()]
        Member.objects.filter(pk=member.pk).update(idle=[*member.idle, span])


def _idle(now: float) -> dict[int, datetime]:
    """Slot id -> since when."""
    wanted = rule()
    held = _held_for(now - wanted.seconds)
    newest = idle_gpus.utilization({each.task_id for each in held}, now - wanted.gap_seconds)
    held = [each for each in held if _possible(newest.get((each.task_id, each.uuid)), wanted)]
    all_used = idle_gpus.utilization({each.task_id for each in held}, now - wanted.seconds)
    found = {}
    for each in held:
        used = all_used.get((each.task_id, each.uuid))
        since = used and idle_gpus.idle_since(used, each.started_at.timestamp(), now, wanted)
        if since:
            earlier = each.idle_since if each.idle_since and each.idle_since >= each.started_at else None
            found[each.slot_id] = earlier or datetime.fromtimestamp(since, UTC)
    return found


def _possible(used: Used | None, wanted: Rule) -> bool:
    return used is not None and idle_gpus.may_be_idle(used, wanted)


def _held_for(begin: float) -> list[_Held]:
    """The GPUs that were held by a run since `begin` (epoch seconds)."""
    rows = SlotHold.objects.filter(
        released_at=None,
        member__state=MemberState.RUNNING,
        member__started_at__lte=datetime.fromtimestamp(begin, UTC),
    ).exclude(slot__uuid="")
    fields = (
        "slot_id",
        "slot__uuid",
        "member__allocation__task_id",
        "member__started_at",
        "slot__idle_since",
    )
    return [_Held(*row) for row in rows.values_list(*fields)]
