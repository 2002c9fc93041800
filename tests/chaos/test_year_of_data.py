"""After a year of use, pages and lists are as fast as in a small database of the same run, and read as few rows.

YEAR_TRIALS (default 1,000,000) makes the year smaller. What a request reads is what PostgreSQL counts, table by table.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from django.conf import LazySettings
from django.db import connection
from django.test import Client

from accounts.models import User
from dispatch.passes import pool_pass
from tests.rig.world import default_pool, make_user, submit_experiment
from tests.rig.year import BASE, TRIALS_EACH, begin

pytestmark = [pytest.mark.chaos, pytest.mark.django_db(transaction=True)]

TRIALS = int(os.environ.get("YEAR_TRIALS") or 1_000_000)
SMALL = 4_000
WAITING = 30
ROUNDS = 5
SLOWER, SLACK_SECONDS = 3.0, 0.05
#: a request that reads so many rows more than in the small database reads what grows with the year
MORE_ROWS = 2_000
LARGE_ROWS = 10_000
#: the token with which /metrics is read
SCRAPER = "scraper"
#: {e}: an experiment of 20 trials, {t}: a trial of it that has a log, {k}: its task, {h}: a host
PAGES = [
    "/experiments/{e}",
    "/experiments/{e}/trials",
    "/experiments/{e}/visualization",
    "/trials/{t}",
    "/trials/{t}/logs",
    "/trials/{t}/lines",
    "/trials/{t}/metrics",
    "/trials/{t}/profiler",
    "/jobs",
    "/jobs/default",
    "/jobs/default?show=all",
    "/hosts",
    "/pools",
    "/pools/default",
    "/tasks",
    "/commands",
    "/api/v1/experiments/{e}",
    "/api/v1/experiments/{e}/trials",
    "/api/v1/experiments/{e}/checkpoints",
    "/api/v1/trials/{t}",
    "/api/v1/trials/{t}/workloads",
    "/api/v1/trials/{t}/checkpoints",
    "/api/v1/tasks",
    "/api/v1/tasks/count",
    "/api/v1/tasks/{k}",
    "/api/v1/job-queues-v2",
    "/api/v1/hosts",
    "/api/v1/agents",
    "/api/v1/resource-pools",
    "/api/v1/master",
    "/metrics",
    "/templates",
    "/templates/usual",
    "/cluster",
    "/experiments",
    "/experiments?state=completed",
    "/experiments?q=sweep",
    "/experiments?q=sweep+77",
    "/overview",
    "/find?q=sweep+77",
    "/find?q=pause+{e}",
    "/find?q=lr%3D0.123456",
    "/audit",
    "/pools/default/history",
    "/users",
    "/experiments?state=failed",
    "/experiments?archived",
    "/experiments?label=kind-3",
    "/experiments?pool=default",
    "/experiments?page=3",
    "/hosts/{h}",
    "/workspaces",
    "/workspaces/1",
    "/projects/1",
    "/api/v1/experiments?limit=50",
    "/api/v1/experiments?limit=50&states=STATE_COMPLETED",
    "/api/v1/experiments?limit=50&orderBy=ORDER_BY_DESC&archived=false",
    "/api/v1/job-queues/stats",
    "/api/v1/workspaces",
    "/api/v1/workspaces/1/projects",
    "/api/v1/experiment/labels",
]


@dataclass(frozen=True)
class Cost:
    """What one request takes: the median of some, and the rows that it reads, by table."""

    seconds: float
    rows: dict[str, int]
    #: of these, those that were read from the first to the last row of a table
    whole: dict[str, int]

    @property
    def read(self) -> int:
        return sum(self.rows.values())


def read_so_far() -> dict[str, tuple[int, int]]:
    """(rows read by scans of whole tables, rows read by indexes) since the database was made, by table."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush()")
        cursor.execute("SELECT pg_stat_clear_snapshot()")
        cursor.execute("SELECT relname, seq_tup_read, coalesce(idx_tup_fetch, 0) FROM pg_stat_user_tables")
        return {name: (whole, some) for name, whole, some in cursor.fetchall()}


def cost(ask: Callable[[], object]) -> Cost:
    ask()
    before = read_so_far()
    ask()
    after = read_so_far()
    took = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        ask()
        took.append(time.perf_counter() - begun)
    whole = {name: after[name][0] - before[name][0] for name in before}
    some = {name: after[name][1] - before[name][1] for name in before}
    return Cost(
        statistics.median(took),
        {name: whole[name] + some[name] for name in before if whole[name] + some[name]},
        {name: rows for name, rows in whole.items() if rows},
    )


def costs(client: Client) -> dict[str, Cost]:
    trial = TRIALS - TRIALS % 100 or TRIALS
    words = {
        "e": BASE + (trial - 1) // TRIALS_EACH + 1,
        "t": BASE + trial,
        "k": f"trial.{trial}",
        "h": "default-0001",
    }

    def asking(path: str) -> Callable[[], object]:
        def ask() -> None:
            headers = {"accept": "*/*"} | (
                {"authorization": f"Bearer {SCRAPER}"} if path == "/metrics" else {}
            )
            answer = client.get(path, headers=headers, follow=True)
            assert answer.status_code == 200, f"{path} answers {answer.status_code}"

        return ask

    found = {path: cost(asking(path.format(**words))) for path in PAGES}
    found["a pass of the scheduler"] = cost(lambda: pool_pass.run(default_pool().pk))
    return found


def large_tables() -> dict[str, int]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT relname, reltuples::bigint FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE n.nspname = 'public' AND relkind = 'r' AND reltuples > %s",
            [LARGE_ROWS],
        )
        return dict(cursor.fetchall())


@pytest.mark.survive(33)
def test_pages_and_lists_are_as_fast_after_a_year(
    client: Client, redis_server: object, settings: LazySettings
) -> None:
    settings.METRICS_TOKEN = SCRAPER
    year = begin(TRIALS)
    for number in range(WAITING):
        submit_experiment(name=f"waits {number}", slots=100, owner=year.users[number % 3])
    client.force_login(make_user("root", User.Role.ADMIN))
    assert default_pool().name == "default"
    year.fill(TRIALS - SMALL + 1, TRIALS)
    small = costs(client)
    begun = time.perf_counter()
    year.fill(1, TRIALS - SMALL)
    large = large_tables()
    print(f"{TRIALS:,} trials in {time.perf_counter() - begun:.0f} s; rows: {large}")
    found = costs(client)
    slow = []
    for path, one in found.items():
        before = small[path]
        print(
            f"{path}: {before.seconds * 1000:.0f} to {one.seconds * 1000:.0f} ms, {before.read} to {one.read} rows"
        )
        whole = {name: rows for name, rows in one.whole.items() if name in large and rows >= large[name] // 2}
        if whole:
            slow.append(f"{path} reads whole tables: {whole}")
        if one.read > SLOWER * before.read + MORE_ROWS:
            grown = {name: rows for name, rows in one.rows.items() if rows > before.rows.get(name, 0) + 500}
            slow.append(f"{path} reads {one.read} rows, not {before.read}: {grown}")
        if one.seconds > SLOWER * before.seconds + SLACK_SECONDS:
            slow.append(
                f"{path} takes {one.seconds * 1000:.0f} ms, not {before.seconds * 1000:.0f}; it reads {one.rows}"
            )
    assert not slow, "\n".join(slow)
