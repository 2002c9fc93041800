"""How long one pass of the scheduler takes with PostgreSQL: survey, decide, apply, by thousands of waiting jobs.

    WAITING=10000 HOSTS=1000 ROUNDS=5 python -m benchmarks.one_pass

Starts a PostgreSQL (durable commits) and a Redis of its own in a temporary folder, prints a table and writes
benchmarks/reports/one_pass.md. Experiments of one trial each, of 1 to 16 slots, every tenth of a size that never fits,
wait on idle hosts; the first pass of each round starts 500 of them, the second finds those running.
"""

from __future__ import annotations

import os
import random
import statistics
import sys
import time
import uuid
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks import database
from benchmarks.rows import Row, finish, size

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "queue")]
os.environ["DJANGO_SETTINGS_MODULE"] = "webui.settings"
os.environ["TRAINMASTER_SECRET_KEY"] = "benchmark"
os.environ["TRAINMASTER_LOG_LEVEL"] = "WARNING"

SLOTS_PER_HOST = 8
WAITING = size("WAITING", 10_000, quick=2_000)
HOSTS = size("HOSTS", 1_000, quick=200)
ROUNDS = size("ROUNDS", 5, quick=2)
REPORT = ROOT / "benchmarks" / "reports" / "one_pass.md"
#: what the waiting jobs ask for; every tenth can never start
SIZES = (1, 1, 1, 2, 2, 4, 4, 8, 16)
NEVER = 12


def make_pool(name: str, hosts: int) -> Any:
    from hosts.models import ResourcePool
    from tests.rig.many import make_hosts

    pool = ResourcePool.objects.create(name=name)
    make_hosts(pool, hosts, SLOTS_PER_HOST)
    return pool


def make_waiting(pool: Any, owner: Any, count: int) -> None:
    """Experiments of one trial each, of mixed sizes and priorities."""
    from experiments.models import Experiment, Project, Trial
    from jobs.models import Job, Task
    from tests.rig.many import empty_context

    chance = random.Random(pool.pk)
    project = Project.objects.get(pk=1)
    context = empty_context()
    jobs = [
        Job(
            id=uuid.UUID(int=chance.getrandbits(128)),
            kind=Job.Kind.EXPERIMENT,
            name=f"job {number}",
            owner=owner,
            pool=pool,
            priority=chance.choice((10, 42, 42, 42, 50)),
            position=float(number),
        )
        for number in range(count)
    ]
    Job.objects.bulk_create(jobs)
    experiments = Experiment.objects.bulk_create(
        Experiment(job=job, name=job.name, owner=owner, project=project, context=context, seed=1, config={})
        for job in jobs
    )
    for job, experiment in zip(jobs, experiments, strict=True):
        job.entity_id = str(experiment.pk)
    Job.objects.bulk_update(jobs, ["entity_id"], batch_size=2000)
    tasks = Task.objects.bulk_create(
        Task(
            id=f"{experiment.pk}.{uuid.UUID(int=chance.getrandbits(128))}",
            job=job,
            kind=Task.Kind.TRIAL,
            name=job.name,
            slots=NEVER if number % 10 == 9 else chance.choice(SIZES),
        )
        for number, (job, experiment) in enumerate(zip(jobs, experiments, strict=True))
    )
    Trial.objects.bulk_create(
        Trial(experiment=experiment, task=task, request_id=uuid.uuid4(), hparams={}, seed=1)
        for experiment, task in zip(experiments, tasks, strict=True)
    )


def cpu_seconds(pid: int) -> float:
    """User and system time of a process of this machine."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def timed_pass(pool: Any) -> dict[str, Any]:
    """One pass as the server makes it; milliseconds of each part, and of CPU here and in PostgreSQL for all of it."""
    from django.db import connection

    from dispatch.passes import pool_pass
    from hosts.models import PoolChange

    PoolChange.objects.create(pool=pool)
    backend = connection.connection.info.backend_pid
    begin, here, there = time.perf_counter(), time.process_time(), cpu_seconds(backend)
    made = pool_pass.one(pool.pk)
    total = (time.perf_counter() - begin) * 1000
    assert made is not None
    times = made.milliseconds
    return {
        **times,
        "survey+decide+apply": sum(times[part] for part in ("survey", "decide", "apply")),
        "all": total,
        "CPU of Python": (time.process_time() - here) * 1000,
        "CPU of PostgreSQL": (cpu_seconds(backend) - there) * 1000,
        "starts": made.started,
    }


def rounds(waiting: int, hosts: int, count: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the first pass (over idle hosts) and the second of each round; each round has its own pool."""
    from django.db import connection

    from accounts.models import User

    owner = User.objects.create_user(f"bench-{waiting}", role=User.Role.EDITOR)
    first, second = [], []
    for number in range(count):
        pool = make_pool(f"p{waiting}-{number}", hosts)
        make_waiting(pool, owner, waiting)
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE")
        first.append(timed_pass(pool))
        second.append(timed_pass(pool))
    return first, second


def table(title: str, measured: list[dict[str, Any]]) -> list[str]:
    """Lines of a Markdown table: milliseconds of each part, the median and the extremes of all rounds."""
    columns = list(dict.fromkeys(name for row in measured for name in row if name != "starts"))
    lines = [f"{title}: {measured[0]['starts']} starts.", ""]
    lines += [f"| ms | {' | '.join(columns)} |", f"|---|{'---|' * len(columns)}"]
    for name, choose in (("median", statistics.median), ("least", min), ("most", max)):
        values = [f"{choose(row.get(column, 0.0) for row in measured):.0f}" for column in columns]
        lines.append(f"| {name} | {' | '.join(values)} |")
    return [*lines, ""]


def main() -> int:
    from tests.rig.parts import private_folder

    with ExitStack() as stack:
        folders = [stack.enter_context(private_folder(name)) for name in ("postgres", "redis")]
        stack.enter_context(database.parts(folders[0], folders[1]))
        first, second = rounds(WAITING, HOSTS, ROUNDS)
    load = os.getloadavg()[0]
    lines = [
        "# One pass of the scheduler with PostgreSQL",
        "",
        f"{WAITING:,} trials wait on {HOSTS:,} hosts of {SLOTS_PER_HOST} slots; {ROUNDS} "
        f"rounds on {os.cpu_count()} cores at a load of {load:.1f}, durable commits. Goal: survey, decide and apply "
        "of the first 500 starts in 500 ms on a quiet machine. `store` keeps the plan for the pages; `forecast` "
        "follows after the commit; `all` has commit and messages too.",
        "",
        *table("First pass, idle hosts", first),
        *table("Second pass", second),
    ]
    parts = ("survey+decide+apply", "all", "CPU of Python", "CPU of PostgreSQL")
    found = [
        Row(f"{which} pass, {part}", statistics.median(each.get(part, 0.0) for each in measured), "ms")
        for which, measured in (("first", first), ("second", second))
        for part in parts
    ]
    return finish(REPORT, "\n".join(lines), found)


if __name__ == "__main__":
    sys.exit(main())
