"""How long the REST resources of the job queue take with thousands of waiting jobs: lists, edits, previews.

    WAITING=10000 HOSTS=500 ROUNDS=5 python -m benchmarks.job_queue

Starts a PostgreSQL (durable commits) and a Redis of its own in a temporary folder, makes one real pass, and prints
the median and the worst of each request beside that of the smallest one (`/api/v1/me`), all in this process.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks import database, one_pass
from benchmarks.rows import Row, finish, size

WAITING = size("WAITING", 10_000, quick=2_000)
HOSTS = size("HOSTS", 500, quick=100)
ROUNDS = size("ROUNDS", 5, quick=2)
BULK = 200
REPORT = Path(__file__).parent / "reports" / "job_queue.md"


class Requests:
    """Requests of one admin; `jobs` are ids in the order of the queue."""

    def __init__(self, pool: Any, owner: Any) -> None:
        from django.test import Client

        from accounts.models import LoginToken
        from jobs.queue_order import listed

        self.pool = pool.name
        self.client = Client()
        self.headers = {"authorization": f"Bearer {LoginToken.issue(owner)}"}
        self.jobs = [str(pk) for pk in listed(pool).values_list("pk", flat=True)]
        self.taken = 0

    def get(self, path: str) -> Any:
        return self._read(self.client.get(f"/api/v1/{path}", headers=self.headers))

    def send(self, path: str, updates: list[dict[str, Any]]) -> Any:
        answer = self.client.post(
            f"/api/v1/{path}", json.dumps({"updates": updates}), "application/json", headers=self.headers
        )
        return self._read(answer)

    def _read(self, answer: Any) -> Any:
        assert answer.status_code == 200, answer.content[:500]
        return json.loads(answer.content)

    def next_job(self) -> str:
        """Another job from the end of the queue each time."""
        self.taken += 1
        return self.jobs[-self.taken]


def requests_of(asked: Requests) -> dict[str, Callable[[], Any]]:
    from experiments.models import Experiment

    jobs, pool = "job-queues-v2?resourcePool=" + asked.pool, asked.pool
    shown = Experiment.objects.get(job_id=asked.jobs[-1]).pk

    def many(count: int, **fields: Any) -> list[dict[str, Any]]:
        return [{"jobId": asked.next_job(), **fields} for _ in range(count)]

    return {
        "me (the yardstick)": lambda: asked.get("me"),
        "list, first 50": lambda: asked.get(f"{jobs}&limit=50"),
        "list, 50 from nine tenths on": lambda: asked.get(f"{jobs}&limit=50&offset={WAITING * 9 // 10}"),
        "list, 50 scheduled": lambda: asked.get(f"{jobs}&limit=50&states=STATE_SCHEDULED"),
        "stats": lambda: asked.get(f"job-queues/stats?resourcePools={pool}"),
        "experiment with its summary": lambda: asked.get(f"experiments/{shown}"),
        "explain": lambda: asked.get(f"jobs/{asked.jobs[-1]}/explain"),
        "preview of a move to the top": lambda: asked.send("job-queues/preview", many(1, toTop=True)),
        "move to the top": lambda: asked.send("job-queues", many(1, toTop=True)),
        "position in the middle": lambda: asked.send("job-queues", many(1, position=WAITING // 2)),
        f"priority of {BULK} at once": lambda: asked.send("job-queues", many(BULK, priority=41)),
        "undo": lambda: asked.send("job-queues/undo", []),
    }


def measured(asked: Requests, rounds: int) -> list[tuple[str, float, float]]:
    """(request, median, worst) in milliseconds; each is warmed once."""
    rows = []
    for name, request in requests_of(asked).items():
        taken = []
        for _ in range(rounds + 1):
            begin = time.perf_counter()
            request()
            taken.append((time.perf_counter() - begin) * 1000)
        rows.append((name, statistics.median(taken[1:]), max(taken[1:])))
    return rows


def main() -> int:
    from tests.rig.parts import private_folder

    with ExitStack() as stack:
        folders = [stack.enter_context(private_folder(name)) for name in ("postgres", "redis")]
        stack.enter_context(database.parts(*folders))
        from django.db import connection

        from accounts.models import User

        owner = User.objects.create_user("bench", role=User.Role.ADMIN)
        pool = one_pass.make_pool("bench", HOSTS)
        one_pass.make_waiting(pool, owner, WAITING)
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE")
        one_pass.timed_pass(pool)
        measures = measured(Requests(pool, owner), ROUNDS)
    lines = [
        "# Requests about a long queue",
        "",
        f"{WAITING:,} jobs, {HOSTS:,} hosts of {one_pass.SLOTS_PER_HOST} slots, {ROUNDS} rounds on {os.cpu_count()} "
        f"cores at a load of {os.getloadavg()[0]:.1f}; in this process, without a web server.",
        "",
        "| ms | median | worst |",
        "|---|---|---|",
        *(f"| {name} | {median:.0f} | {worst:.0f} |" for name, median, worst in measures),
        "",
    ]
    yardstick = measures[0][1]
    found = [Row(name, median / yardstick, "x GET me") for name, median, _ in measures[1:]]
    return finish(REPORT, "\n".join(lines), found)


if __name__ == "__main__":
    sys.exit(main())
