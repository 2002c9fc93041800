"""What training code wants people to hear (`core.Context.alert`), kept as event rows of its trial."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from accounts.refusals import Refusal
from events.models import Event
from events.record import record
from logs.levels import Level, parse
from logs.lines import shown

#: of event rows, beside the reasons why states change
REASON = "alert"
TITLE_CHARACTERS, DESCRIPTION_CHARACTERS = 200, 2000
#: a loop that alerts at each step must not fill the timeline
PER_TRIAL = 200


@dataclass(frozen=True)
class Alert:
    level: Level
    title: str
    description: str

    @property
    def sentence(self) -> str:
        """On one line."""
        return " ".join(f"Alert: {': '.join(filter(None, [self.title, self.description]))}".split())


def raised(trial_id: int, task_id: str, experiment_id: int, data: dict[str, Any]) -> None:
    """Write it down, unless the trial has raised PER_TRIAL already."""
    its = {"task_id": task_id, "experiment_id": experiment_id}
    _raise(Event.Kind.TRIAL, trial_id, data, actor="training code", **its)


def raised_for_experiment(experiment_id: int, data: dict[str, Any], *, actor: str) -> None:
    """Store an alert about an experiment as a whole, raised by a user over REST."""
    _raise(Event.Kind.EXPERIMENT, experiment_id, data, actor=actor, experiment_id=experiment_id)


def _raise(kind: Event.Kind, subject: int, data: dict[str, Any], **columns: Any) -> None:
    if Event.objects.filter(kind=kind, subject=str(subject), reason=REASON).count() < PER_TRIAL:
        record(kind, subject, reason=REASON, detail=_kept(data), **columns)


def _kept(data: dict[str, Any]) -> dict[str, str]:
    return {
        "level": shown(str(data.get("level") or "INFO")[:16]),
        "title": shown(str(data.get("title") or "")[:TITLE_CHARACTERS]),
        "description": shown(str(data.get("description") or "")[:DESCRIPTION_CHARACTERS]),
    }


def alert_of(event: Event) -> Alert | None:
    """What a trial or, over REST, an experiment has raised; None for an event of another kind."""
    if event.kind not in {Event.Kind.TRIAL, Event.Kind.EXPERIMENT} or event.reason != REASON:
        return None
    try:
        level = parse(str(event.detail.get("level")))
    except Refusal:
        level = Level.INFO
    return Alert(level, str(event.detail.get("title") or ""), str(event.detail.get("description") or ""))
