"""The pulse of a task's ranks: what the runners say of them, and which of them the others wait for."""

from __future__ import annotations

import contextlib
import json
import math
from dataclasses import dataclass, replace
from typing import Any

from django.db import DataError, connection
from django.db.models import QuerySet
from django.utils import timezone

from jobs.states import AllocationState, MemberState
from logs import pulse_marks
from logs.models import MemberPulse
from logs.pulse_marks import Seen, marks

#: A member that has said nothing for so long knows nothing of its ranks: none of them is marked, nor evidence.
SILENT_SECONDS = 20.0
#: The SDK gives at most a short word; anything longer is none of it.
WORD_CHARACTERS = 60
RANKS_MAX = 4096
#: A rank whose processes use at least so much of one processor does something.
ACTIVE_CPU = 0.05


@dataclass(frozen=True)
class Pulse:
    """One rank of a running task.

    `step` is the last one that it has reported, None where it reports none (by convention only the chief does);
    `step_age_seconds` is the time since its last sign of life of any kind, None without the SDK. `active`: it gives
    signs of life, writes lines, or its processes use a processor or a GPU. `state` is the kernel's letter for its
    processes, `ended` when none of them is left, empty while its host is silent. `mark` says why it is the rank
    that the others wait for, else None.
    """

    rank: int
    host: str
    step: int | None
    step_age_seconds: float | None
    active: bool
    state: str
    cpu: float
    gpu: int | None
    doing: str
    mark: str | None


_KEEP = """
INSERT INTO logs_memberpulse (member_id, at, ranks) VALUES (%s, statement_timestamp(), %s::jsonb)
ON CONFLICT (member_id) DO UPDATE SET at = EXCLUDED.at, ranks = EXCLUDED.ranks
RETURNING set_config('synchronous_commit', 'off', true)
"""


def keep(member_id: int, ranks: object) -> None:
    """Keep what a runner says of its ranks, in place of what it said before: one statement, one row.

    It waits for no disk, and so belongs into no transaction: should the database crash, the next one makes it good.
    """
    if not isinstance(ranks, list) or not ranks:
        return
    # the training's own account may have written a word that PostgreSQL does not take, such as one with a NUL
    with contextlib.suppress(DataError), connection.cursor() as cursor:
        cursor.execute(_KEEP, [member_id, json.dumps(ranks[:RANKS_MAX])])


def of_task(task_id: str) -> list[Pulse]:
    """The ranks of the task's running attempt, in order; empty when none runs. One statement.

    Those of a member that has ended have ended with it, at the latest when its runner last spoke of them.
    """
    rows = _members(task_id).values_list("member__host__name", "at", "ranks", "member__state")
    now = timezone.now()
    return judged(
        [
            (host, (now - at).total_seconds(), _all_ended(ranks) if state == MemberState.ENDED else ranks)
            for host, at, ranks, state in rows
        ]
    )


def _all_ended(ranks: list[Any]) -> list[dict[str, Any]]:
    return [
        said
        if said.get("state") == pulse_marks.ENDED
        else {"rank": said.get("rank"), "state": pulse_marks.ENDED}
        for said in ranks
        if isinstance(said, dict)
    ]


def seen_by(said: object, host: str, age: float, *, ended: bool = False) -> list[Seen] | None:
    """The ranks of a member by its runner's words, which are so many seconds old; None if that is too old.

    Those of a member that has ended have ended, whenever it spoke.
    """
    if not isinstance(said, list) or (abs(age) >= SILENT_SECONDS and not ended):
        return None
    said = _all_ended(said) if ended else said
    return [seen for each in said if (seen := _seen(each, host, max(0.0, age)))]


def places(task_id: str) -> dict[int, int]:
    """Rank -> id of the member on whose host it runs, of the ranks that have a pulse."""
    rows = _members(task_id).exclude(member__state=MemberState.ENDED).values_list("member_id", "ranks")
    return {
        seen.rank: member_id for member_id, ranks in rows for said in ranks if (seen := _seen(said, "", 0.0))
    }


def _members(task_id: str) -> QuerySet[MemberPulse]:
    return MemberPulse.objects.filter(member__allocation__task_id=task_id).exclude(
        member__allocation__state=AllocationState.TERMINATED
    )


def judged(members: list[tuple[str, float, list[dict[str, Any]]]]) -> list[Pulse]:
    """The ranks of members given as (host, age of what is known in seconds, what its runner said)."""
    known: dict[int, Seen] = {}
    pulses: dict[int, Pulse] = {}
    for host, age, ranks in members:
        for said in ranks:
            seen = _seen(said, host, max(0.0, age))
            if seen is None:
                continue
            if age < SILENT_SECONDS or seen.ended:  # whatever its host says later, it has ended
                known[seen.rank] = seen
            pulses[seen.rank] = _pulse(seen, silent=age >= SILENT_SECONDS and not seen.ended)
    found = marks(list(known.values()))
    return [replace(pulses[rank], mark=found.get(rank)) for rank in sorted(pulses)]


def _pulse(seen: Seen, *, silent: bool) -> Pulse:
    moves = seen.quiet is not None and seen.quiet < pulse_marks.BEHIND_SECONDS
    writes = seen.wrote is not None and seen.wrote < pulse_marks.BEHIND_SECONDS
    works = writes or seen.cpu >= ACTIVE_CPU or (seen.gpu or 0) > 0
    return Pulse(
        rank=seen.rank,
        host=seen.host,
        step=seen.step,
        step_age_seconds=None if seen.quiet is None else round(seen.quiet, 1),
        active=not silent and seen.state not in {"T", "t", pulse_marks.ENDED} and (moves or works),
        state="" if silent else seen.state,
        cpu=seen.cpu,
        gpu=seen.gpu,
        doing=seen.doing,
        mark=None,
    )


def _seen(said: object, host: str, age: float) -> Seen | None:
    """What a runner said of one rank, `age` seconds ago; None when it is no rank.

    It comes from a host, and of the SDK's part anything may have been written by the training's own account.
    """
    if not isinstance(said, dict) or (rank := _whole(said.get("rank"))) is None:
        return None
    quiet = _number(said.get("beat_seconds"))
    gpu = _whole(said.get("gpu"))
    return Seen(
        rank=rank,
        host=host,
        state=_word(said.get("state")),
        pid=_whole(said.get("pid")) or 0,
        state_seconds=_later(said.get("state_seconds"), age) or age,
        step=_whole(said.get("step")),
        calls=None if quiet is None else _whole(said.get("calls")),
        waits=said.get("waits") is True,
        beats=_whole(said.get("beats")) or 0,
        quiet=_later(quiet, age),
        gap=_number(said.get("gap_seconds")) or 0.0,
        doing=_word(said.get("doing")),
        cpu=_number(said.get("cpu")) or 0.0,
        gpu=None if gpu is None else min(100, gpu),
        wrote=_later(said.get("wrote_seconds"), age),
        idle_seconds=_number(said.get("idle_seconds")) or 0.0,
        waits_in=_word(said.get("waits_in")),
    )


def _later(value: object, age: float) -> float | None:
    seconds = _number(value)
    return None if seconds is None else seconds + age


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:  # a whole number of hundreds of digits
        return None
    return number if math.isfinite(number) and number >= 0 else None


def _whole(value: object) -> int | None:
    number = _number(value)
    return None if number is None or number > 2**53 else int(number)


def _word(value: object) -> str:
    return value[:WORD_CHARACTERS] if isinstance(value, str) else ""
