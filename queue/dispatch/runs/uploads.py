"""Follows what outlives the ranks of a run: uploads of checkpoints, and the rest of a stream whose end was told before
all of it had arrived. Checkpoints that nobody will bring any more are given up.

A trial that waits for its newest checkpoint waits no longer than somebody can still upload it: a runner that
died is started anew by the host's answer, one that is done or gone leaves nothing to wait for.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from django.db.models import F, QuerySet
from django.db.models.functions import Coalesce
from django.utils import timezone

from experiments import checkpoints
from experiments.models import Checkpoint, Trial
from experiments.states import CheckpointState
from hosts.models import Host
from jobs.models import Member
from jobs.states import MemberState, Reason

#: Hosts that bring nothing any more.
GONE = [Host.Admission.LOST, Host.Admission.REMOVED]


def awaited() -> QuerySet[Member]:
    """Ended members whose runner may still have something to bring: a part of an unfinished upload, or of its stream.

    Of a sharded checkpoint every member of the gang may: `run_key` names only who reported it first.
    """
    ended = Member.objects.filter(state=MemberState.ENDED, finished_at=None)
    partial = Checkpoint.objects.filter(state=CheckpointState.PARTIAL)
    uploading = ended.filter(allocation_id__in=partial.values("allocation_id"))
    # two small sets: by one condition with OR the database would look through everything that has ever ended
    shipping = ended.filter(outbox_bytes__isnull=False, outbox_bytes__gt=Coalesce(F("stream__offset"), 0))
    both = uploading.order_by().values("pk").union(shipping.order_by().values("pk"))
    return Member.objects.filter(pk__in=both)


def settle(member: Member, run: dict[str, Any]) -> None:
    """What the host says of an ended member: has its runner still something to do? (Asking starts a dead one.)"""
    if run.get("state") in {"absent", "incomplete", "remains"} or run.get("finished"):
        Member.objects.filter(pk=member.pk).update(finished_at=timezone.now())
        give_up(member.allocation_id)


def give_up(allocation_id: str | None = None) -> int:
    """Give up the uploads of one allocation, or of all, that can never be completed; the number of them."""
    partial = Checkpoint.objects.filter(state=CheckpointState.PARTIAL)
    if allocation_id is not None:
        partial = partial.filter(allocation_id=allocation_id)
    trial_of = dict(partial.values_list("allocation_id", "trial_id"))
    gangs: dict[str, list[Member]] = defaultdict(list)
    for member in Member.objects.filter(allocation_id__in=trial_of).select_related("host"):
        gangs[member.allocation_id].append(member)
    count = 0
    for attempt, gang in gangs.items():
        keys, reason = _hopeless(gang)
        if keys:
            count += checkpoints.given_up(Trial.objects.get(pk=trial_of[attempt]), keys, reason=reason)
    return count


def _hopeless(gang: list[Member]) -> tuple[list[str], Reason]:
    """Run keys whose checkpoints will not be completed: of members on lost hosts, or of all once all are done."""
    ended = [member for member in gang if member.state == MemberState.ENDED]
    lost = [member for member in ended if member.host.admission in GONE]
    done = [member for member in ended if member.finished_at or member in lost]
    if len(done) == len(gang):
        return [member.run_key for member in gang], Reason.HOST_LOST if lost else Reason.UPLOAD_GIVEN_UP
    return [member.run_key for member in lost], Reason.HOST_LOST
