"""Waits for what ranks say they are doing: a worker asks their hosts, for no request ever speaks SSH itself."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from events.wakeups import LOOK_AGAIN_SECONDS, wakeups
from logs import stacks
from logs.models import RankStack
from webui.waiting.threads import reading

#: Longer than a host takes (dispatch.watching.stacks), shorter than clients wait for any answer.
WAIT_SECONDS = 25.0
RANKS_AT_ONCE = 64


async def stacks_of(task_id: str, ranks: Sequence[int], *, by: str) -> list[dict[str, Any]]:
    """{"rank", "text"} of each rank, or {"rank", "message"} with the sentence why there is none; at most 64 ranks.

    Raises Refusal.
    """
    until = time.monotonic() + WAIT_SECONDS
    with wakeups().watch(f"stack:{task_id}") as watch:
        await reading(stacks.ask, task_id, ranks, by=by)
        found = await reading(stacks.answered, task_id, ranks)
        while len(found) < len(set(ranks)) and time.monotonic() < until:
            await watch.wait(LOOK_AGAIN_SECONDS)
            found = await reading(stacks.answered, task_id, ranks)
    return [_encoded(rank, found.get(rank)) for rank in sorted(set(ranks))]


def _encoded(rank: int, row: RankStack | None) -> dict[str, Any]:
    if row is None:
        return {
            "rank": rank,
            "message": f"Rank {rank} did not answer within {WAIT_SECONDS:.0f} s; try again.",
        }
    return {"rank": rank, "text" if row.found else "message": row.text}
