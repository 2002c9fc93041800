"""`depends_on: [ID:each]` of an array: each element waits for the success of the same element of another array."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from accounts.refusals import Code, Refusal
from commands.arrays import Indices
from commands.models import Command
from jobs import dependencies
from jobs.dependencies import Condition, Wanted
from jobs.labels import label_of
from jobs.models import Job
from jobs.states import TaskState

_EACH = ":each"


def wanted(entries: Sequence[str], own: Mapping[int, str]) -> list[Wanted]:
    """What `depends_on` of a command waits for. `own`: the task of each index, none unless it is an array.

    Raises Refusal where one of them does not exist, or can never end as it must.
    """
    found = dependencies.found([entry for entry in entries if not (own and entry.endswith(_EACH))])
    for entry in entries:
        if own and entry.endswith(_EACH):
            found += _of_array(entry.removesuffix(_EACH), own)
    return found


def _of_array(name: str, own: Mapping[int, str]) -> list[Wanted]:
    job = None if name.isdigit() else Job.objects.filter(pk=name, kind=Job.Kind.ARRAY).first()
    if job is None:
        raise Refusal(f"There is no array {name} to wait for.", Code.NOT_FOUND, field="depends_on")
    rows = Command.objects.select_related("task").filter(job=job, array_index__in=own)
    rows = rows.only("array_index", "task__state", "task__succeeded")
    tasks = {row.array_index: row.task for row in rows if row.array_index is not None}
    _refuse([index for index in own if index not in tasks], f"Array {name[:8]} has no", own)
    ended = [index for index, task in tasks.items() if task.state == TaskState.ENDED]
    lost = [index for index in ended if not dependencies.met(tasks[index], Condition.SUCCESS)]
    _refuse(lost, f"In array {name[:8]}, there was no success of", own)
    return [
        Wanted(job.pk, label_of(Job.Kind.COMMAND, task.pk), Condition.SUCCESS, task.pk, own[index])
        for index, task in tasks.items()
    ]


def _refuse(indices: Sequence[int], what: str, own: Mapping[int, str]) -> None:
    """Raises Refusal where there are indices for which nothing can succeed."""
    if not indices:
        return
    elements = f"element{'s' if len(indices) > 1 else ''} {Indices(tuple(sorted(indices)))}"
    left = Indices(tuple(sorted(set(own) - set(indices))))
    hint = f" To run the others, give `array: {left}`." if left.values else ""
    raise Refusal(
        f"{what} {elements}, so the same of this array would never start.{hint}", field="depends_on"
    )
