"""How long one pass of the scheduler takes with PostgreSQL: survey, decide, apply, by thousands of waiting jobs.

    WAITING=10000 HOSTS=1000 ROUNDS=5 python -m benchmarks.one_pass

Starts a PostgreSQL (durable commits) and a Redis of its own in a temporary folder, prints a table and writes
benchmarks/reports/one_pass.md. Experiments of one trial each, of 1 to 16 slots, every tenth of a size that never fits,
wait on idle hosts; the first pass of each round starts 500 of them, the second finds those running. Then the hosts of
the last round are filled, and in each steady pass 20 runs have ended. With BESIDE=FOLDER, another checkout, the same is
measured with its code first, and the report has the ratios.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import time
import uuid
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks import database
from benchmarks.rows import Row, finish, size

ROOT = Path(__file__).resolve().parent.parent
#: the checkout whose code is measured
CODE = Path(os.environ.get("CODE") or ROOT)
sys.path[:0] = [str(CODE), str(CODE / "queue")]
os.environ["DJANGO_SETTINGS_MODULE"] = "webui.settings"
os.environ["TRAINMASTER_SECRET_KEY"] = "benchmark"
os.environ["TRAINMASTER_LOG_LEVEL"] = "WARNING"

SLOTS_PER_HOST = 8
WAITING = size("WAITING", 10_000, quick=2_000)
HOSTS = size("HOSTS", 1_000, quick=200)
ROUNDS = size("ROUNDS", 5, quick=2)
ENDED, STEADY = 20, size("STEADY", 10, quick=3)
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
    """The processor time of a process of this machine."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


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


def end_some(pool: Any, chance: random.Random) -> None:
    """End some of what runs, as their hosts said, without their trials' part in it."""
    from django.utils import timezone

    from jobs.models import Allocation, Member, PortLease, SlotHold, Task

    runs = Allocation.objects.filter(pool=pool).exclude(state="TERMINATED").order_by("pk")
    ids = chance.sample(list(runs.values_list("pk", flat=True)), ENDED)
    SlotHold.objects.filter(member__allocation__in=ids).update(released_at=timezone.now())
    Member.objects.filter(allocation__in=ids).update(state="ENDED")
    PortLease.objects.filter(allocation__in=ids).delete()
    Task.objects.filter(allocations__in=ids).update(state="ENDED")
    Allocation.objects.filter(pk__in=ids).update(state="TERMINATED", ended_at=timezone.now())


Passes = list[dict[str, Any]]


def rounds(waiting: int, hosts: int, count: int) -> tuple[Passes, Passes, Passes]:
    """Return the first pass (over idle hosts) and the second of each round, and steady ones of the last.

    Each round has its own pool. What a worker has imported and read before is there at the first.
    """
    from django.db import connection

    from accounts.models import User

    owner = User.objects.create_user(f"bench-{waiting}", role=User.Role.EDITOR)
    first, second, steady = [], [], []
    warm = make_pool(f"warm{waiting}", 10)
    make_waiting(warm, owner, 50)
    timed_pass(warm)
    for number in range(count):
        pool = make_pool(f"p{waiting}-{number}", hosts)
        make_waiting(pool, owner, waiting)
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE")
        first.append(timed_pass(pool))
        second.append(timed_pass(pool))
    while timed_pass(pool)["starts"]:
        pass
    chance = random.Random(1)
    for _ in range(STEADY):
        end_some(pool, chance)
        steady.append(timed_pass(pool))
    return first, second, steady


def processor(passes: Passes) -> float:
    """Milliseconds of processor of a pass without its forecast, which comes after it and not each time."""
    times = [each["CPU of Python"] + each["CPU of PostgreSQL"] for each in passes if "forecast" not in each]
    times = times or [each["CPU of Python"] + each["CPU of PostgreSQL"] for each in passes]
    return statistics.median(times)


def measured_here() -> tuple[Passes, Passes, Passes]:
    from tests.rig.parts import private_folder

    with ExitStack() as stack:
        folders = [stack.enter_context(private_folder(name)) for name in ("postgres", "redis")]
        stack.enter_context(database.parts(folders[0], folders[1]))
        return rounds(WAITING, HOSTS, ROUNDS)


def measured(code: Path) -> tuple[Passes, Passes, Passes]:
    """The same with the code of a checkout, by a process of its own."""
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks.one_pass"],
        cwd=ROOT, env={**os.environ, "CODE": str(code)}, stdout=subprocess.PIPE, check=True,
    )  # fmt: skip
    first, second, steady = json.loads(ran.stdout.splitlines()[-1])
    return first, second, steady


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
    if "CODE" in os.environ:
        print(json.dumps(measured_here()))
        return 0
    beside = os.environ.get("BESIDE")
    former = measured(Path(beside)) if beside else None
    first, second, steady = measured(ROOT)
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
        *table(f"Steady passes, {ENDED} runs ended before each", steady),
    ]
    parts = ("survey+decide+apply", "all", "CPU of Python", "CPU of PostgreSQL")
    found = [
        Row(f"{which} pass, {part}", statistics.median(each.get(part, 0.0) for each in measured), "ms")
        for which, measured in (("first", first), ("second", second), ("steady", steady))
        for part in parts
    ]
    if former:
        for which, then, now in zip(
            ("first", "second", "steady"), former, (first, second, steady), strict=True
        ):
            ratio = processor(now) / processor(then)
            most, goal = (0.3, 0.1) if which == "steady" else (0.4, None)
            found.append(Row(f"{which} pass, processor", ratio, "x the code beside it", most=most, goal=goal))
            lines.append(
                f"{which.capitalize()} pass: {processor(then):.0f} ms of processor with the code beside it, "
                f"{processor(now):.0f} ms here: {ratio:.2f} x."
            )
    return finish(REPORT, "\n".join(lines), found)


if __name__ == "__main__":
    sys.exit(main())
