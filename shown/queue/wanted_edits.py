"""Edits of the queue as people ask for them: the fields of Manage Job, and what menus, keys and drag do to jobs.

Only a field of Manage Job that its reader changed is sent, so a value that another user has set is not set back.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from accounts.refusals import Refusal
from jobs import queue_edits, queue_order
from jobs.deadlines import NO_DEADLINE
from jobs.models import Job
from jobs.queue_edits import Update
from shown.queue.job_actions import OF_JOBS

FIELDS = ("priority", "weight", "max_slots", "deadline", "position", "pool")
WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,9}")

LABELS = {
    "top": "Move to top",
    "up": "Move up",
    "down": "Move down",
    "ahead": "Move",
    "behind": "Move",
    "priority": "Set priority",
    "weight": "Set weight",
    "pool": "Move to pool",
}


@dataclass
class JobForm:
    """`values` as typed and `was` as the page showed them, by field; `errors`: sentences by field, "" for the form."""

    values: dict[str, str]
    was: dict[str, str]
    errors: dict[str, str] = field(default_factory=dict)

    @property
    def changed(self) -> list[str]:
        return [name for name in FIELDS if self.values.get(name, "") != self.was.get(name, "")]

    def refuse(self, refusal: Refusal) -> None:
        """Put the sentence of a refused edit beside the field that it is about."""
        self.errors[refusal.field if refusal.field in self.values else ""] = str(refusal)


def shown(job: Job, position: int | None) -> JobForm:
    """The form as it stands before anybody types: the pool, and what can be set of a job there."""
    now = {"priority": str(job.priority), "weight": f"{job.weight:g}"}
    if position is not None:
        now["position"] = str(position)
    values = {"pool": job.pool.name} | {knob: now[knob] for knob in job.pool.policy.knobs if knob in now}
    if job.kind == Job.Kind.EXPERIMENT:  # others hold one task's slots, or none
        values["max_slots"] = queue_edits.NO_LIMIT if job.max_slots is None else str(job.max_slots)
    if job.pool.policy.order:  # elsewhere no job goes ahead of others
        values["deadline"] = f"{job.deadline_at:%Y-%m-%dT%H:%M:%SZ}" if job.deadline_at else NO_DEADLINE
    return JobForm(dict(values), values)


def read(posted: Mapping[str, str], before: JobForm) -> JobForm:
    """The posted fields beside what the page had shown (`was-…`); what was not posted is unchanged."""
    was = {name: posted.get(f"was-{name}", value) for name, value in before.was.items()}
    values = {name: posted.get(name, was[name]).strip() for name in was}
    return JobForm(values, was)


def update_of(job: Job, form: JobForm, *, standing: int) -> Update | None:
    """The edit that the changed fields ask for; None when nothing changed or `form.errors` says what is wrong.

    `standing`: how many jobs the pool's queue has, the last position that can be given.
    """
    given: dict[str, str] = {name: form.values[name] for name in form.changed}
    priority, weight = _whole_in(given.get("priority")), _number_in(given.get("weight"))
    position, most = _whole_in(given.get("position")), _limit_in(given.get("max_slots"))
    if "priority" in given and (error := queue_edits.priority_error(priority)):
        form.errors["priority"] = error
    if "weight" in given and (error := queue_edits.weight_error(weight)):
        form.errors["weight"] = error
    if most not in {None, queue_edits.NO_LIMIT} and (error := queue_edits.max_slots_error(most)):
        form.errors["max_slots"] = error
    if isinstance(position, str) and (error := queue_edits.position_error(position, standing)):
        form.errors["position"] = error  # a whole number is judged by the edit, in the pool it goes to
    if form.errors or not given:
        return None
    return Update(
        job_id=str(job.pk),
        priority=priority if isinstance(priority, int) else None,
        weight=weight if isinstance(weight, float) else None,
        max_slots=most,
        deadline=given["deadline"] or NO_DEADLINE if "deadline" in given else None,
        pool=given.get("pool"),
        position=position if isinstance(position, int) else None,
    )


def updates_of(do: str, value: str, jobs: list[Job]) -> list[Update]:
    """An edit of several jobs as the queue knows it. Raises Refusal as the edit itself would."""
    if do == "top":  # the last one first, so that they keep their order among themselves
        return [Update(str(job.pk), to_top=True) for job in reversed(jobs)]
    if do == "priority":
        priority = _whole_in(value)
        if error := queue_edits.priority_error(priority):
            raise Refusal(error, field="priority")
        assert isinstance(priority, int)
        return [Update(str(job.pk), priority=priority) for job in jobs]
    if do == "weight":
        weight = _number_in(value)
        if error := queue_edits.weight_error(weight):
            raise Refusal(error, field="weight")
        assert isinstance(weight, float)
        return [Update(str(job.pk), weight=weight) for job in jobs]
    if do == "pool":
        moving = [job for job in jobs if len(jobs) == 1 or job.pool.name != value]
        if not moving:
            raise Refusal(f"all of them are already in resource pool {value}")
        return [Update(str(job.pk), pool=value) for job in moving]
    if do == "ahead":
        return [Update(str(job.pk), ahead_of=value) for job in jobs]
    if do == "behind":
        return [Update(str(job.pk), behind_of=value) for job in reversed(jobs)]
    if do in {"up", "down"}:
        return [_step(job, do == "up") for job in jobs[:1]]
    raise Refusal(f"there is no edit {do!r}; allowed: {', '.join([*LABELS, *OF_JOBS])}")


def _step(job: Job, up: bool) -> Update:
    """Past the next job of the queue in one direction."""
    before = queue_order.stands_before(job)
    others = queue_order.listed(job.pool).exclude(pk=job.pk)
    neighbor = others.filter(before).last() if up else others.exclude(before).first()
    if neighbor is None:
        raise Refusal(f"job {queue_edits.short(job.pk)} is already the {'first' if up else 'last'}")
    anchor = str(neighbor.pk)
    return Update(str(job.pk), ahead_of=anchor) if up else Update(str(job.pk), behind_of=anchor)


def _whole_in(text: str | None) -> int | str | None:
    return int(text) if text is not None and WHOLE_NUMBER.fullmatch(text) else text


def _limit_in(text: str | None) -> int | str | None:
    """An emptied field lifts the limit, like the word that the field shows for that."""
    return (
        queue_edits.NO_LIMIT
        if text is not None and text.lower() in {"", queue_edits.NO_LIMIT}
        else _whole_in(text)
    )


def _number_in(text: str | None) -> float | str | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return text
