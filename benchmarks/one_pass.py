"""How long one pass of the scheduler takes with PostgreSQL, and where its processor goes, by thousands of waiting jobs.

    WAITING=10000 HOSTS=1000 ROUNDS=2 python -m benchmarks.one_pass

Starts a PostgreSQL (durable commits) and a Redis of its own in a temporary folder for each round, prints tables and
writes benchmarks/reports/one_pass.md. Experiments of one trial each, of 1 to 16 slots, every tenth of a size that never
fits, wait on idle hosts; the first pass of each round starts 500 of them, the second finds those running. Then the
hosts are filled, and before each steady pass 20 runs have ended. With BESIDE=FOLDER, another checkout, each round is
measured with its code too, one after the other, and the report has the ratios. A round takes a minute of processor.
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
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks import database
from benchmarks.rows import Row, finish, size

ROOT = Path(__file__).resolve().parent.parent
CODE = database.CODE
sys.path[:0] = [str(CODE), str(CODE / "queue")]
os.environ["DJANGO_SETTINGS_MODULE"] = "webui.settings"
os.environ["TRAINMASTER_SECRET_KEY"] = "benchmark"
os.environ["TRAINMASTER_LOG_LEVEL"] = "WARNING"

SLOTS_PER_HOST = 8
WAITING = size("WAITING", 10_000, quick=2_000)
HOSTS = size("HOSTS", 1_000, quick=200)
ROUNDS = size("ROUNDS", 2, quick=1)
ENDED, STEADY = 20, size("STEADY", 8, quick=3)
REPORT = ROOT / "benchmarks" / "reports" / "one_pass.md"
#: the parts of a pass that it times itself; what is left are commits and messages
PARTS = ("survey", "decide", "apply", "store", "forecast")
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
    """One pass as the server makes it: milliseconds of each part, and its processor time here and in PostgreSQL."""
    from django.db import connection

    from dispatch.passes import pool_pass
    from hosts.models import PoolChange

    PoolChange.objects.create(pool=pool)
    backend = connection.connection.info.backend_pid

    def used() -> list[float]:
        return [time.process_time() * 1000, cpu_seconds(backend) * 1000]

    processor: dict[str, list[float]] = {}

    def timed(times: dict[str, float], part: str, work: Callable[[], Any]) -> Any:
        begun, before = time.perf_counter(), used()
        result = work()
        processor[part] = [now - then for now, then in zip(used(), before, strict=True)]
        times[part] = (time.perf_counter() - begun) * 1000
        return result

    begin, before = time.perf_counter(), used()
    with mock.patch.object(pool_pass, "timed", timed):
        made = pool_pass.one(pool.pk)
    total = (time.perf_counter() - begin) * 1000
    assert made is not None
    whole = [now - then for now, then in zip(used(), before, strict=True)]
    rest = [
        all_of_it - sum(each)
        for all_of_it, each in zip(whole, zip(*processor.values(), strict=True), strict=True)
    ]
    return {
        **made.milliseconds,
        "all": total,
        "starts": made.started,
        "processor": {**processor, "rest": rest},
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
#: the first pass of each round (over idle hosts), the second ones, and the steady ones
KINDS = ("first", "second", "steady")
#: of the processor of the code beside: at most, and the goal
FLOORS: Mapping[str, tuple[float | None, float | None]] = {
    "first": (0.4, None),
    "second": (None, None),
    "steady": (0.3, 0.1),
}


def one_round() -> dict[str, Passes]:
    """Measure here. What a worker has imported and read before is there at the first pass."""
    from tests.rig.parts import private_folder

    with ExitStack() as stack:
        folders = [stack.enter_context(private_folder(name)) for name in ("postgres", "redis")]
        stack.enter_context(database.parts(folders[0], folders[1]))
        from django.db import connection

        from accounts.models import User

        owner = User.objects.create_user("bench", role=User.Role.EDITOR)
        warm, pool = make_pool("warm", 10), make_pool("full", HOSTS)
        make_waiting(warm, owner, 50)
        timed_pass(warm)
        make_waiting(pool, owner, WAITING)
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE")
        found: dict[str, Passes] = {"first": [timed_pass(pool)], "second": [timed_pass(pool)], "steady": []}
        while timed_pass(pool)["starts"]:
            pass
        chance = random.Random(1)
        for _ in range(STEADY):
            end_some(pool, chance)
            found["steady"].append(timed_pass(pool))
        return found


def measured(codes: Sequence[Path]) -> list[dict[str, Passes]]:
    """All rounds with the code of each checkout, each round by a process of its own."""
    found: list[dict[str, Passes]] = [{kind: [] for kind in KINDS} for _ in codes]
    for _ in range(ROUNDS):
        for code, passes in zip(codes, found, strict=True):
            ran = subprocess.run(
                [sys.executable, "-m", "benchmarks.one_pass"],
                cwd=ROOT, env={**os.environ, "CODE": str(code)}, stdout=subprocess.PIPE, check=True,
            )  # fmt: skip
            for kind, more in json.loads(ran.stdout.splitlines()[-1]).items():
                passes[kind] += more
    return found


def processor(passes: Passes, part: str, where: int | None = None) -> float:
    """Milliseconds of processor of a part, the median; `where`: 0 in Python, 1 in PostgreSQL, None in both."""
    times = [each["processor"][part] for each in passes if part in each["processor"]]
    return statistics.median(sum(each) if where is None else each[where] for each in times) if times else 0.0


def whole(passes: Passes, kind: str) -> float:
    """Milliseconds of processor of all parts; without the forecast in steady passes, of which few make one."""
    return sum(processor(passes, part) for part in (*PARTS, "rest") if kind != "steady" or part != "forecast")


def profile(named: Mapping[str, dict[str, Passes]]) -> list[str]:
    """Lines of a Markdown table: where the processor goes."""
    lines = [f"| | {' | '.join((*PARTS, 'rest'))} | all |", f"|---|{'---|' * (len(PARTS) + 2)}"]
    for kind in KINDS:
        for name, passes in named.items():
            each = [
                f"{processor(passes[kind], part, 0):.0f} + {processor(passes[kind], part, 1):.0f}"
                for part in (*PARTS, "rest")
            ]
            lines.append(f"| {kind}, {name} | {' | '.join(each)} | {whole(passes[kind], kind):.0f} |")
    return [*lines, ""]


def table(title: str, measured: list[dict[str, Any]]) -> list[str]:
    """Lines of a Markdown table: milliseconds of each part, the median and the extremes of all rounds."""
    columns = list(
        dict.fromkeys(name for row in measured for name in row if name not in ("starts", "processor"))
    )
    lines = [f"{title}: {measured[0]['starts']} starts.", ""]
    lines += [f"| ms | {' | '.join(columns)} |", f"|---|{'---|' * len(columns)}"]
    for name, choose in (("median", statistics.median), ("least", min), ("most", max)):
        values = [f"{choose(row.get(column, 0.0) for row in measured):.0f}" for column in columns]
        lines.append(f"| {name} | {' | '.join(values)} |")
    return [*lines, ""]


def main() -> int:
    if "CODE" in os.environ:
        print(json.dumps(one_round()))
        return 0
    beside = os.environ.get("BESIDE")
    here, *former = measured([ROOT, Path(beside)] if beside else [ROOT])
    load = os.getloadavg()[0]
    lines = [
        "# One pass of the scheduler with PostgreSQL",
        "",
        f"{WAITING:,} trials wait on {HOSTS:,} hosts of {SLOTS_PER_HOST} slots; {ROUNDS} "
        f"rounds on {os.cpu_count()} cores at a load of {load:.1f}, durable commits. `store` keeps the plan for the "
        "pages; `forecast` follows after the commit; `all` has commits and messages too. Milliseconds.",
        "",
        *table("First pass, idle hosts", here["first"]),
        *table("Second pass", here["second"]),
        *table(f"Steady passes, {ENDED} runs ended before each", here["steady"]),
        "## Where the processor goes",
        "",
        "Milliseconds of processor, Python + PostgreSQL, the median of all rounds; `rest`: commits and messages. The "
        "sum of steady passes is without forecasts, of which one is made every few seconds.",
        "",
        *profile({"here": here, **({"the code beside it": former[0]} if former else {})}),
    ]
    found = [Row(f"{kind} pass, processor", whole(here[kind], kind), "ms") for kind in KINDS]
    for kind in KINDS if former else ():
        ratio = whole(here[kind], kind) / whole(former[0][kind], kind)
        most, goal = FLOORS[kind]
        found.append(Row(f"{kind} pass, processor", ratio, "x the code beside it", most=most, goal=goal))
        bound = "" if most is None else f", at most {most}"
        lines.append(f"{kind.capitalize()} pass: {ratio:.2f} x the processor of the code beside it{bound}.")
    return finish(REPORT, "\n".join(lines), found)


if __name__ == "__main__":
    sys.exit(main())
