"""What ranks were doing when somebody asked: the wish, carried to the hosts by a worker, and the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from django.db import transaction
from django.utils import timezone

from accounts.refusals import Code, Refusal
from events.announce import announce, wake
from jobs.models import Allocation
from jobs.states import AllocationState
from logs import pulse
from logs.models import RankSeen, RankStack
from trainmaster.quantities import spans

TASK = "dispatch.tasks.ask_stacks"
#: Who asks at the same time shares one answer; a wish that was lost on its way is made anew after this time.
LOST_SECONDS = 30.0
TEXT_CHARACTERS = 256 * 1024
_SPANS_NAMED = 20


@transaction.atomic
def ask(task_id: str, ranks: Sequence[int], *, by: str) -> None:
    """Have the stacks of these ranks fetched, unless somebody has just asked for them.

    Raises Refusal for a rank that has neither a pulse nor a line, before anything is kept.
    """
    _refuse_unknown(task_id, ranks)
    now = timezone.now()
    rows = [RankStack(task_id=task_id, rank=rank, asked_at=now, asked_by=by) for rank in sorted(set(ranks))]
    lost = now - timedelta(seconds=LOST_SECONDS)
    known = RankStack.objects.filter(task_id=task_id, rank__in=ranks).order_by("rank").select_for_update()
    under_way = {row.rank for row in known if row.answered_at is None and row.asked_at > lost}
    due = [row for row in rows if row.rank not in under_way]
    RankStack.objects.bulk_create(
        due,
        update_conflicts=True,
        update_fields=["asked_at", "asked_by", "answered_at", "text", "found"],
        unique_fields=["task", "rank"],
    )
    if due:
        wake(TASK, task_id, tuple(row.rank for row in due))


def answer(task_id: str, answers: Mapping[int, tuple[bool, str]]) -> None:
    """Keep what the hosts said: rank -> whether there is a stack, and it or the sentence why there is none."""
    now = timezone.now()
    for rank, (found, text) in sorted(answers.items()):
        RankStack.objects.filter(task_id=task_id, rank=rank).update(
            answered_at=now, found=found, text=text.replace("\0", "")[:TEXT_CHARACTERS]
        )
    announce(f"stack:{task_id}")


def answered(task_id: str, ranks: Sequence[int]) -> dict[int, RankStack]:
    """The answers that have come."""
    rows = RankStack.objects.filter(task_id=task_id, rank__in=ranks, answered_at__isnull=False)
    return {row.rank: row for row in rows}


def _refuse_unknown(task_id: str, ranks: Sequence[int]) -> None:
    seen = RankSeen.objects.filter(task_id=task_id, rank__gte=0).values_list("rank", flat=True)
    known = {*seen, *pulse.places(task_id)}
    if unknown := sorted(set(ranks) - known):
        raise Refusal(
            f"Task {task_id} has no rank {_spans(unknown)}; {_what_there_is(task_id, known)}.", Code.NOT_FOUND
        )


def _what_there_is(task_id: str, known: set[int]) -> str:
    if known:
        return f"it has {_spans(sorted(known))}"
    runs = Allocation.objects.filter(task_id=task_id).exclude(state=AllocationState.TERMINATED).exists()
    return "none of its ranks has reported yet" if runs else "it is not running"


def _spans(ranks: Sequence[int]) -> str:
    """`0-7, 12` of ascending numbers."""
    named = spans(ranks)
    return ", ".join(named[:_SPANS_NAMED]) + (" and others" if len(named) > _SPANS_NAMED else "")
