"""The rows of hangs: what the looks at an attempt found, and which of it pages and programs are told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from logs.hangs import evidence, places
from logs.hangs.evidence import Told
from logs.hangs.verdict import Verdict
from logs.models import Hang

#: of one task
MOST_SHOWN = 20


@dataclass(frozen=True)
class Found:
    """One hang as it is shown. `lines` say where each rank was, `stacks` are all of them as one text."""

    attempt: int
    since: datetime
    told_at: datetime
    over_at: datetime | None
    kind: str
    ranks: Sequence[int]
    collective: str
    sentence: str
    outcome: str
    lines: Sequence[str]
    stacks: str
    pk: int


@transaction.atomic
def begin(allocation_id: str, stood_seconds: float) -> Hang:
    """The open row of an attempt that makes no progress."""
    since = timezone.now() - timedelta(seconds=stood_seconds)
    row, _ = Hang.objects.get_or_create(allocation_id=allocation_id, over_at=None, defaults={"since": since})
    return row


def end(allocation_ids: Sequence[str]) -> None:
    """These make progress again, or have ended; what was never told is forgotten."""
    rows = Hang.objects.filter(allocation_id__in=allocation_ids, over_at=None)
    rows.filter(told_at=None).delete()
    rows.update(over_at=timezone.now())


def claim(row: Hang) -> bool:
    """Count one more look; False if another worker has begun it."""
    return bool(Hang.objects.filter(pk=row.pk, looks=row.looks, told_at=None).update(looks=row.looks + 1))


def keep_look(row: Hang, gang: Sequence[Told], verdict: Verdict | None) -> datetime:
    """What a look has found, in place of the one before. Returns when it was."""
    row.looked_at = looked_at = timezone.now()
    row.evidence = evidence.kept(gang)
    row.kind, row.ranks = (verdict.kind, list(verdict.ranks)) if verdict else ("", [])
    row.collective, row.sentence = (verdict.collective, verdict.sentence) if verdict else ("", "")
    fields = ("looked_at", "evidence", "kind", "ranks", "collective", "sentence")
    # it may be gone: the attempt has moved since
    Hang.objects.filter(pk=row.pk).update(**{name: getattr(row, name) for name in fields})
    return looked_at


def conclude(row: Hang, outcome: str) -> bool:
    """It is told now, with what was done about it; False if it is over."""
    row.outcome = outcome
    return bool(Hang.objects.filter(pk=row.pk, over_at=None).update(told_at=timezone.now(), outcome=outcome))


def told_of(task_id: str) -> QuerySet[Hang]:
    """Those of a task that two looks agree on, the newest first."""
    told = Hang.objects.filter(allocation__task_id=task_id, told_at__isnull=False)
    return told.select_related("allocation").order_by("-pk")


def open_of(task_id: str) -> Found | None:
    """What keeps the task's running attempt now."""
    row = told_of(task_id).filter(over_at=None).first()
    return shown(row) if row else None


def shown(row: Hang) -> Found:
    gang = evidence.of_kept(row.evidence)
    assert row.told_at is not None
    return Found(
        row.allocation.number, row.since, row.told_at, row.over_at, row.kind, row.ranks, row.collective, row.sentence,
        row.outcome, [_line(told) for told in gang], _stacks(gang), row.pk,
    )  # fmt: skip


def _line(told: Told) -> str:
    words = f"Rank {told.rank} on {told.host} {places.place_of(told).words}."
    newest = [
        f"{group.calls[-1].name} number {group.calls[-1].number}{'' if group.calls[-1].done else ' (waiting)'}"
        for _, group in sorted((told.groups or {}).items())[:3]
        if group.calls
    ]
    return f"{words} Last collective: {', '.join(newest)}." if newest else words


def _stacks(gang: Sequence[Told]) -> str:
    parts = []
    for told in gang:
        state = f"process {told.pid}, state {told.state}" if told.pid else told.state or "unknown"
        parts.append(f"rank {told.rank} on {told.host}: {state}\n\n{told.text or told.message}\n")
    return "\n".join(parts)
