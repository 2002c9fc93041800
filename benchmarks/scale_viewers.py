"""Up to ten thousand viewers of one log, over several web processes: processor time and memory of each viewer."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from benchmarks.log_flood import shipper
from benchmarks.logs_live import cpu_seconds, gang, viewers

LINES_PER_SECOND, BATCHES_PER_SECOND, SECONDS = 10, 1, 10


@dataclass
class Watched:
    """What so many viewers took of all web processes together."""

    level: int  # viewers
    connect_cpu_ms: float  # a viewer
    frame_cpu_ms: float  # a frame to a viewer, the ingest of its lines included
    memory_kb: float  # a viewer
    missing: int


def measure(webs: list[Any], count: int) -> Watched:
    """An even flow of lines to viewers, an equal share of them at each web process."""
    from tests.rig.rows import RUN_TOKEN

    member, token, _ = gang(webs[0])
    total, path = LINES_PER_SECOND * SECONDS, f"/ws/tasks/{member.allocation.task_id}/logs"
    before, idle = _cpu(webs), _memory_kb(webs)
    with ExitStack() as stack:
        seen = [
            stack.enter_context(
                viewers(f"{web.socket_url}{path}", total, token=token, count=count // len(webs))
            )
            for web in webs
        ]
        connected, memory = _cpu(webs), _memory_kb(webs)
        shipper(webs[0].url, member, RUN_TOKEN).pace(LINES_PER_SECOND, BATCHES_PER_SECOND, total)
        found = [each() for each in seen]
        over = _cpu(webs)
    frames = sum(each["frames"] for each in found)
    return Watched(
        count,
        1000 * (connected - before) / count,
        1000 * (over - connected) / frames,
        (memory - idle) / count,
        sum(each["missing"] for each in found),
    )


def _cpu(webs: list[Any]) -> float:
    return sum(cpu_seconds(web.pid) for web in webs)


def _memory_kb(webs: list[Any]) -> float:
    from benchmarks.idle import memory

    return sum(memory(web.pid) for web in webs) / 1024
