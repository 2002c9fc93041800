"""Jobs that wait for the end of others: `depends_on` of a config. A job without an open dependency may start."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from django.db.models import Q, QuerySet
from django.utils import timezone

from accounts.refusals import Code, Refusal
from hosts.pools import mark_dirty
from jobs.labels import label_of
from jobs.models import Dependency, Job, Task
from jobs.states import JobState

Condition = Dependency.Condition
#: arrays alone have this condition: `commands.corresponding` makes entries for their elements of it
_EACH = "each"


@dataclass(frozen=True)
class Wanted:
    """A job to wait for, and which end of it."""

    job_id: uuid.UUID
    label: str
    condition: str
    #: of an array's job, if one element alone is waited for
    element_id: str | None = None
    #: the element that waits, if the job is an array whose others do not
    task_id: str | None = None


def found(entries: Sequence[str]) -> list[Wanted]:
    """The jobs of `depends_on`. Raises Refusal where one does not exist, or can never end as it must."""
    return [_found(entry) for entry in entries]


def _found(entry: str) -> Wanted:
    name, _, written = entry.partition(":")
    if written == _EACH:
        raise Refusal(
            f"{entry}: only an array can wait for each element of another one. Give {name} to wait for all of it.",
            field="depends_on",
        )
    condition = Condition(written or Condition.SUCCESS)
    job = Job.objects.filter(_named(name)).first()
    element = Task.objects.select_related("job").filter(pk=name.lower(), job__kind=Job.Kind.ARRAY).first()
    if element is not None:
        job = element.job
    if job is None:
        kind = "experiment" if name.isdigit() else "job or command"
        raise Refusal(f"There is no {kind} {name} to wait for.", Code.NOT_FOUND, field="depends_on")
    label = label_of(Job.Kind.COMMAND, element.pk) if element else label_of(job.kind, job.entity_id)
    what = element or job
    if what.state == JobState.ENDED and what.succeeded is None:
        raise Refusal(f"{label} runs outside the queue, so no job can wait for it.", field="depends_on")
    if what.state == JobState.ENDED and not met(what, condition):
        raise Refusal(
            f"{label} {'succeeded' if what.succeeded else 'did not succeed'}, so a job that waits for its "
            f"{condition} would never start.",
            field="depends_on",
        )
    return Wanted(job.pk, label, condition, element.pk if element else None)


def _named(name: str) -> Q:
    if name.isdigit():
        return Q(kind=Job.Kind.EXPERIMENT, entity_id=str(int(name)))
    return Q(pk=name) | Q(entity_id=name.lower())


def met(what: Job | Task, condition: str) -> bool:
    """Has the job, or the element of an array, ended as it must?"""
    if what.state != JobState.ENDED:
        return False
    return condition == Condition.END or (condition == Condition.SUCCESS) == bool(what.succeeded)


def put(job: Job, wanted: Sequence[Wanted]) -> None:
    """From now on the job waits for these alone. They are locked, so that none ends unseen meanwhile.

    Raises Refusal where one of them waits for this job, which has been there before.
    """
    others = lock([job.pk, *(each.job_id for each in wanted)])
    elements = Task.objects.in_bulk([each.element_id for each in wanted if each.element_id])
    waits = waiting_for(job)
    if circle := [each for each in wanted if each.job_id in waits]:
        raise Refusal(
            "A job cannot wait for itself."
            if circle[0].job_id == job.pk
            else f"{circle[0].label} already waits for this job, so neither would start.",
            field="depends_on",
        )
    Dependency.objects.filter(job=job).delete()
    now = timezone.now()
    rows = []
    for each in wanted:
        on = others.get(each.job_id)
        what = elements.get(each.element_id) if each.element_id else on
        rows.append(
            Dependency(
                job=job,
                on=on,
                element_id=each.element_id,
                task_id=each.task_id,
                label=each.label,
                condition=each.condition,
                met_at=now if what and met(what, each.condition) else None,
            )
        )
    Dependency.objects.bulk_create(rows)


def lock(job_ids: Collection[uuid.UUID]) -> dict[uuid.UUID, Job]:
    """Lock these jobs in one order, before any row that says who waits for them."""
    locked = Job.objects.select_for_update(no_key=True).filter(pk__in=job_ids).order_by("pk")
    return {job.pk: job for job in locked}


def waiting_for(job: Job) -> set[uuid.UUID]:
    """The job, those that wait for it, and those that wait for them."""
    found: set[uuid.UUID] = set()
    new = {job.pk}
    while new:
        found |= new
        rows = Dependency.objects.filter(on__in=new, met_at=None).values_list("job_id", flat=True)
        new = set(rows) - found
    return found


def ended_or_revived(job: Job) -> None:
    """Tell those that wait for this locked job: each may start, or waits in vain until it is revived."""
    _tell(job, Dependency.objects.filter(on=job, element=None, met_at=None))


def elements_ended(elements: Sequence[Task]) -> None:
    """Tell those that wait for these elements of an array, whose job is locked. All have ended in the same way."""
    if elements:
        _tell(elements[0], Dependency.objects.filter(element__in=elements, met_at=None))


def _tell(what: Job | Task, waiting: QuerySet[Dependency]) -> None:
    states = list(waiting.values_list("job__pool_id", "job__state"))
    if not states:
        return
    pools = {pool_id for pool_id, state in states if state != JobState.ENDED}
    conditions = [each for each in Condition.values if met(what, each)]
    waiting.filter(condition__in=conditions).update(met_at=timezone.now())
    for pool_id in sorted(pools):
        mark_dirty(pool_id)
