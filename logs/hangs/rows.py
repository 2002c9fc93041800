"""The rows of hangs: what the looks at an attempt found, and which of it pages and programs are told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Count, Q, QuerySet
from django.db.models.functions import Now

from logs.hangs import evidence, places
from logs.hangs.evidence import Told
from logs.hangs.verdict import Verdict
from logs.lines import plain
from logs.models import Hang

#: of one task
MOST_SHOWN = 20
#: A worker that has not kept its look by then is taken for dead, and what it keeps later is refused.
_LOOKING_SECONDS = 300.0
_OF_A_LOOK = (
    "looks", "looked_at", "era", "looking_until", "evidence", "lines", "kind", "ranks", "collective", "sentence",
)  # fmt: skip


@dataclass(frozen=True)
class Found:
    """One hang as it is shown. `lines` say where each rank was."""

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
    pk: int


@transaction.atomic
def begin(allocation_id: str, since: datetime) -> Hang:
    """The open row of an attempt that makes no progress."""
    row, _ = Hang.objects.get_or_create(allocation_id=allocation_id, over_at=None, defaults={"since": since})
    return row


def end(allocation_ids: Sequence[str]) -> None:
    """These make progress again, or have ended; what was never told is forgotten."""
    rows = Hang.objects.filter(allocation_id__in=allocation_ids, over_at=None)
    rows.filter(told_at=None).delete()
    rows.update(over_at=Now())


def claim(row: Hang, now: datetime) -> bool:
    """The right to make the next look; False while another worker has it, or has made it."""
    until = now + timedelta(seconds=_LOOKING_SECONDS)
    free = (
        Q(looking_until=None) | Q(looking_until__lte=now) | Q(looking_until__gt=until)
    )  # or of another clock
    claimed = Hang.objects.filter(free, pk=row.pk, looks=row.looks, told_at=None, over_at=None)
    row.looking_until = until
    return bool(claimed.update(looking_until=until))


def keep_look(row: Hang, gang: Sequence[Told], verdict: Verdict | None, at: datetime, era: int) -> bool:
    """What a look has found, in place of the one before; False if it is over, or another worker has looked since."""
    mine = Hang.objects.filter(
        pk=row.pk, looks=row.looks, looking_until=row.looking_until, told_at=None, over_at=None
    )
    row.looks, row.looked_at, row.era, row.looking_until = row.looks + 1, at, era, None
    row.evidence, row.lines = evidence.kept(gang), [_line(told) for told in gang]
    row.kind, row.ranks = (verdict.kind, list(verdict.ranks)) if verdict else ("", [])
    row.collective, row.sentence = (verdict.collective, verdict.sentence) if verdict else ("", "")
    return bool(mine.update(**{name: getattr(row, name) for name in _OF_A_LOOK}))


def conclude(row: Hang, outcome: str) -> bool:
    """It is told now, with what was done about it; False if it is over, told, or was looked at again."""
    row.outcome = outcome
    current = Hang.objects.filter(pk=row.pk, looks=row.looks, told_at=None, over_at=None)
    return bool(current.update(told_at=Now(), outcome=outcome))


def told_before(allocation_ids: Sequence[str]) -> dict[str, int]:
    """How many hangs of these attempts were told and are over."""
    told = Hang.objects.filter(allocation_id__in=allocation_ids, told_at__isnull=False, over_at__isnull=False)
    return dict(told.values_list("allocation_id").annotate(Count("pk")))


def told_of(task_id: str) -> QuerySet[Hang]:
    """Those of a task that two looks agree on, the newest first; their evidence is read where it is asked for."""
    told = Hang.objects.filter(allocation__task_id=task_id, told_at__isnull=False)
    return told.select_related("allocation").defer("evidence").order_by("-pk")


def open_of(task_id: str) -> Found | None:
    """What keeps the task's running attempt now."""
    row = told_of(task_id).filter(over_at=None).first()
    return shown(row) if row else None


def sentences(task_ids: Sequence[str]) -> dict[str, str]:
    """Task -> what keeps its running attempt now; tasks that nothing keeps are left out."""
    told = Hang.objects.filter(allocation__task_id__in=task_ids, told_at__isnull=False, over_at=None)
    found = told.order_by("pk").values_list("allocation__task_id", "sentence")
    return {task_id: plain(sentence) for task_id, sentence in found}


def shown(row: Hang) -> Found:
    assert row.told_at is not None
    return Found(
        row.allocation.number, row.since, row.told_at, row.over_at, row.kind, row.ranks, row.collective, row.sentence,
        row.outcome, row.lines, row.pk,
    )  # fmt: skip


def stacks(row: Hang) -> str:
    """Those of all ranks as one text."""
    parts = []
    for told in evidence.of_kept(row.evidence):
        state = f"process {told.pid}, state {told.state}" if told.pid else told.state or "unknown"
        parts.append(f"rank {told.rank} on {told.host}: {state}\n\n{told.text or told.message}\n")
    return "\n".join(parts)


def _line(told: Told) -> str:
    words = f"Rank {told.rank} on {told.host} {places.place_of(told).words}."
    newest = [
        f"{group.calls[-1].name} number {group.calls[-1].number}{'' if group.calls[-1].done else ' (waiting)'}"
        for _, group in sorted((told.groups or {}).items())[:3]
        if group.calls
    ]
    return f"{words} Last collective: {', '.join(newest)}." if newest else words
