"""Which log policies the lines of a task have matched, read from event rows."""

from __future__ import annotations

from dataclasses import dataclass

from events.models import Event
from jobs.models import Allocation
from jobs.states import Reason, TaskState

CANCEL_RETRIES, EXCLUDE_NODE = "cancel_retries", "exclude_node"


@dataclass(frozen=True)
class Match:
    """The first line of an attempt that a policy matched. `name` is empty for a policy without one."""

    name: str
    pattern: str
    actions: list[str]
    line: int
    rank: int | None
    host: str

    @property
    def called(self) -> str:
        """The policy in a sentence."""
        return f"log policy “{self.name}”" if self.name else f"the log policy for {self.pattern!r}"

    @property
    def sentence(self) -> str:
        """What matched where, and what comes of it."""
        done = []
        if CANCEL_RETRIES in self.actions:
            done.append("it will not be retried after a failure")
        if EXCLUDE_NODE in self.actions:
            done.append(f"{self.host} will not be used for it again")
        return self.told(done)

    def told(self, done: list[str]) -> str:
        """What matched where, and what was done about it."""
        who = f"rank {self.rank} on {self.host}" if self.rank is not None else self.host
        called = self.called[:1].upper() + self.called[1:]
        return f"{called} matched line {self.line} ({who}){': ' if done else ''}{' and '.join(done)}."


def of_attempt(allocation: Allocation) -> list[Match]:
    """In the order of their lines."""
    rows = Event.objects.filter(
        kind=Event.Kind.ALLOCATION, subject=allocation.pk, reason=Reason.LOG_POLICY
    ).order_by("id")
    return [match_of(row) for row in rows]


def cancels_retries(task_id: str) -> bool:
    """Whether a line has matched a policy that lets the task not be tried again, since it was last revived."""
    revived = Event.objects.filter(kind=Event.Kind.TASK, subject=task_id, from_state=TaskState.ENDED).last()
    rows = Event.objects.filter(task_id=task_id, kind=Event.Kind.ALLOCATION, reason=Reason.LOG_POLICY)
    since = rows.filter(pk__gt=revived.pk) if revived else rows
    return any(CANCEL_RETRIES in match_of(row).actions for row in since)


def match_of(event: Event) -> Match:
    detail = event.detail
    return Match(
        str(detail.get("policy") or ""),
        str(detail.get("pattern") or ""),
        list(detail.get("actions") or []),
        int(detail.get("line") or 0),
        detail.get("rank"),
        str(detail.get("host") or ""),
    )
