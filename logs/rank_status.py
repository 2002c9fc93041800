"""What is known of a task's ranks: for status frames, which are encoded once for all viewers, and for expressions."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from typing import Any

from jobs.models import Allocation
from jobs.states import Reason
from logs import pulse, pulse_marks
from logs.models import RankSeen
from logs.rank_expression import Known

#: Up to so many ranks each frame names them all; above, those that changed, and now and then all of them.
RANKS_IN_EVERY_FRAME = 16
WHOLE_EVERY = 5
#: Ages in a frame are at most so much older than the frame.
ENCODED_SECONDS = 0.2
#: A rank is silent when another wrote a line this much later than its own last one.
SILENT_SECONDS = 10.0


@dataclass(frozen=True)
class RankNow:
    """A rank; -1 stands for lines outside any rank. `last_time` is its host's clock, None before its first line.

    What follows is its pulse (logs.pulse), None where nobody knows; `moved_at` is on this process's clock.
    Two equal ones say that nothing happened in between: times, not ages, belong in here.
    """

    rank: int
    host: str
    lines: int
    last_time: float | None
    step: int | None = None
    moved_at: float | None = None
    active: bool | None = None
    ended: bool | None = None
    mark: str | None = None

    def entry(self, clock: float) -> dict[str, Any]:
        """As the frame has it; `clock` is the time now in epoch seconds."""
        known = {
            "step": self.step,
            "stepAge": _age(self.moved_at, clock),
            "active": self.active,
            "ended": self.ended,
            "mark": self.mark,
        }
        written = {
            "rank": self.rank,
            "age": _age(self.last_time, clock),
            "host": self.host,
            "lines": self.lines,
        }
        return {**written, **{name: value for name, value in known.items() if value is not None}}


def _age(time_then: float | None, clock: float) -> float | None:
    return None if time_then is None else round(max(0.0, clock - time_then), 1)


class RankStatus:
    """The ranks as of the last look. `version` counts the looks."""

    def __init__(self) -> None:
        self.ranks: list[RankNow] = []
        self.version = 0
        self._changed: list[RankNow] = []
        self._encoded: dict[bool, tuple[float, str]] = {}

    def update(self, ranks: list[RankNow]) -> None:
        before = {rank.rank: rank for rank in self.ranks}
        self._changed = [rank for rank in ranks if before.get(rank.rank) != rank]
        self.ranks = ranks
        self.version += 1
        self._encoded.clear()

    def fields_since(self, version: int | None) -> str:
        """`"ranks":[…],"whole":…` for a viewer who has seen this version (None: none yet)."""
        whole = (
            version is None
            or version != self.version - 1
            or self.version % WHOLE_EVERY == 0
            or len(self.ranks) <= RANKS_IN_EVERY_FRAME
        )
        now = time.monotonic()
        at, text = self._encoded.get(whole, (0.0, ""))
        if not text or now - at > ENCODED_SECONDS:
            clock = time.time()
            entries = [rank.entry(clock) for rank in (self.ranks if whole else self._changed)]
            encoded = json.dumps(entries, ensure_ascii=False, separators=(",", ":"))
            text = f'"ranks":{encoded},"whole":{"true" if whole else "false"}'
            self._encoded[whole] = (now, text)
        return text


def ranks_of(task_id: str) -> list[RankNow]:
    """The task's ranks that have written or run now, in order. A rank that moved between hosts is one."""
    ranks = _written(task_id)
    for one in pulse.of_task(task_id):
        rank = ranks.get(one.rank) or RankNow(one.rank, one.host, 0, None)
        # to the second: a time that is told anew with each heartbeat is no news
        moved_at = None if one.step_age_seconds is None else float(round(time.time() - one.step_age_seconds))
        ranks[one.rank] = replace(
            rank,
            host=one.host,
            step=one.step,
            moved_at=moved_at,
            active=one.active,
            ended=one.state == pulse_marks.ENDED or None,
            mark=one.mark,
        )
    return [ranks[rank] for rank in sorted(ranks)]


def _written(task_id: str) -> dict[int, RankNow]:
    rows = RankSeen.objects.filter(task_id=task_id).values_list("rank", "host", "lines", "last_time")
    newest: dict[int, RankNow] = {}
    for rank, host, lines, last_time in rows:
        known = newest.get(rank)
        if known is None:
            newest[rank] = RankNow(rank, host, lines, last_time)
        else:
            before = known.last_time or 0.0
            later = host if last_time > before else known.host
            newest[rank] = RankNow(rank, later, lines + known.lines, max(last_time, before))
    return newest


def known(task_id: str) -> list[Known]:
    """All ranks (>= 0) that have written or run, by number; one that moved stands where it runs or wrote last.

    Whether one is silent is told by the lines' own times alone, so it stays true after the end: these stopped first.
    """
    ranks = [each for each in ranks_of(task_id) if each.rank >= 0]
    newest = max((each.last_time or 0.0 for each in ranks), default=0.0)
    failed = _failed_first(task_id)
    return [
        Known(
            each.rank,
            each.host,
            marked=each.mark is not None,
            silent=newest - (each.last_time or 0.0) >= SILENT_SECONDS,
            failed=each.rank in failed,
        )
        for each in ranks
    ]


def _failed_first(task_id: str) -> set[int]:
    """The ranks that were the first to fail in one of the attempts."""
    ended = Allocation.objects.filter(task_id=task_id, exit_reason=Reason.RANK_FAILED)
    ranks = (detail.get("rank") for detail in ended.values_list("exit_detail", flat=True))
    return {rank for rank in ranks if rank is not None}
