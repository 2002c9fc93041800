"""Event rows as sentences for people: the timeline of an experiment, a trial or a host."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from django.db.models import QuerySet

from events.models import Event
from jobs.states import Reason
from webui.pages import words

SUBJECTS = {
    Event.Kind.EXPERIMENT: "Experiment",
    Event.Kind.TRIAL: "Trial",
    Event.Kind.TASK: "Request",
    Event.Kind.ALLOCATION: "Attempt",
    Event.Kind.MEMBER: "Host's part",
    Event.Kind.CHECKPOINT: "Checkpoint",
    Event.Kind.JOB: "Job",
    Event.Kind.HOST: "Host",
}


@dataclass(frozen=True)
class Entry:
    at: datetime
    sentence: str
    actor: str


def of(events: QuerySet[Event], limit: int = 200) -> list[Entry]:
    """The newest events first."""
    return [_entry(event) for event in events.order_by("-id")[:limit]]


def of_experiment(experiment_id: int, task_ids: Iterable[str]) -> list[Entry]:
    rows = Event.objects.filter(experiment_id=experiment_id) | Event.objects.filter(
        task_id__in=list(task_ids), kind__in=[Event.Kind.ALLOCATION, Event.Kind.MEMBER]
    )
    return of(rows)


def _entry(event: Event) -> Entry:
    kind = SUBJECTS.get(Event.Kind(event.kind), event.kind)
    subject = event.detail.get("host") if event.kind == Event.Kind.MEMBER else event.subject
    name = f"{kind} {str(subject).rsplit('.', 1)[-1] if event.kind == Event.Kind.ALLOCATION else str(subject)[:8]}"
    if event.kind == Event.Kind.MEMBER:
        name = f"Part on {subject}"
    to = words.state(event.to_state).text.lower() if event.to_state else ""
    sentence = f"{name}: {to}" if to else name
    if event.reason in Reason.values:
        sentence += f", {Reason(event.reason).label}"
    elif event.reason:
        sentence += f", {event.reason.replace('_', ' ')}"
    return Entry(event.at, sentence + _details(event), event.actor)


def _details(event: Event) -> str:
    detail = event.detail
    if hosts := detail.get("hosts"):
        return f" ({', '.join(hosts)})"
    if event.kind == Event.Kind.MEMBER and detail.get("code") is not None and event.to_state == "ENDED":
        return f" ({words.exit_code(detail['code'], detail.get('signal'))})"
    if detail.get("rank") is not None:
        how = words.exit_code(detail.get("code"), detail.get("signal"))
        return f" (rank {detail['rank']} on {detail.get('host')}, {how})"
    if detail.get("restarts"):
        return f" (restart {detail['restarts']} of {detail['max_restarts']})"
    return ""
