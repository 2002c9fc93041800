"""What somebody typed into Manage Job: which fields differ from what the page showed, and what is wrong with them.

Only a field that its reader changed is sent, so a value that somebody else has set meanwhile is not set back.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from accounts.refusals import Refusal
from jobs import queue_edits
from jobs.models import Job

FIELDS = ("priority", "weight", "position", "pool")
WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,9}")


@dataclass
class Form:
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


def shown(job: Job, position: int | None) -> Form:
    """The form as it stands before anybody types: the pool, and what can be set of a job there."""
    now = {"priority": str(job.priority), "weight": f"{job.weight:g}"}
    if position is not None:
        now["position"] = str(position)
    values = {"pool": job.pool.name} | {knob: now[knob] for knob in job.pool.policy.knobs if knob in now}
    return Form(dict(values), values)


def read(posted: Mapping[str, str], before: Form) -> Form:
    """The posted fields beside what the page had shown (`was-…`); what was not posted is unchanged."""
    was = {name: posted.get(f"was-{name}", value) for name, value in before.was.items()}
    values = {name: posted.get(name, was[name]).strip() for name in was}
    return Form(values, was)


def update_of(job: Job, form: Form, *, standing: int) -> queue_edits.Update | None:
    """The edit that the changed fields ask for; None when nothing changed or `form.errors` says what is wrong.

    `standing`: how many jobs the pool's queue has, the last position that can be given.
    """
    given: dict[str, str] = {name: form.values[name] for name in form.changed}
    priority, weight = whole_in(given.get("priority")), number_in(given.get("weight"))
    position = whole_in(given.get("position"))
    if "priority" in given and (error := queue_edits.priority_error(priority)):
        form.errors["priority"] = error
    if "weight" in given and (error := queue_edits.weight_error(weight)):
        form.errors["weight"] = error
    if isinstance(position, str) and (error := queue_edits.position_error(position, standing)):
        form.errors["position"] = error  # a whole number is judged by the edit, in the pool it goes to
    if form.errors or not given:
        return None
    return queue_edits.Update(
        job_id=str(job.pk),
        priority=priority if isinstance(priority, int) else None,
        weight=weight if isinstance(weight, float) else None,
        pool=given.get("pool"),
        position=position if isinstance(position, int) else None,
    )


def whole_in(text: str | None) -> int | str | None:
    return int(text) if text is not None and WHOLE_NUMBER.fullmatch(text) else text


def number_in(text: str | None) -> float | str | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return text
