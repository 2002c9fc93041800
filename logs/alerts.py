"""What training code wants people to hear (`core.Context.alert`), kept as event rows of its trial."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from events.models import Event
from events.record import record
from logs.levels import Level, UnknownLevel, parse

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
    rows = Event.objects.filter(kind=Event.Kind.TRIAL, subject=str(trial_id), reason=REASON)
    if rows.count() >= PER_TRIAL:
        return
    detail = {
        "level": str(data.get("level") or "INFO")[:16],
        "title": str(data.get("title") or "")[:TITLE_CHARACTERS],
        "description": str(data.get("description") or "")[:DESCRIPTION_CHARACTERS],
    }
    record(
        Event.Kind.TRIAL, trial_id, reason=REASON, actor="training code", detail=detail, task_id=task_id,
        experiment_id=experiment_id,
    )  # fmt: skip


def alert_of(event: Event) -> Alert | None:
    """None for an event of another kind."""
    if event.kind != Event.Kind.TRIAL or event.reason != REASON:
        return None
    try:
        level = parse(str(event.detail.get("level")))
    except UnknownLevel:
        level = Level.INFO
    return Alert(level, str(event.detail.get("title") or ""), str(event.detail.get("description") or ""))
