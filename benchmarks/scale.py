"""How costs grow: up to 1,000 hosts, 100,000 jobs, 1,000 million log lines and 10,000 viewers.

`python -m benchmarks.scale` writes docs/scale.md and its pictures in docs/img. Costs are processor time, which other
work on the machine changes little. Each point is kept in build/scale as soon as it is measured, so a run that was
stopped continues where it was; remove that folder to measure everything again. Each part runs in a process of its own
and gets PART_SECONDS; the page tells which sizes it did not reach. `python -m benchmarks.scale logs` measures one part
in this process and writes no page, `python -m benchmarks.scale page` writes it from the points that are kept.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import database
from benchmarks.rows import QUICK, size
from benchmarks.scale_report import KINDS, Found, Hosts, Passes, Ssh, pictures, report

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "queue")]
os.environ["DJANGO_SETTINGS_MODULE"] = "webui.settings"
os.environ["TRAINMASTER_SECRET_KEY"] = "benchmark"
os.environ["TRAINMASTER_LOG_LEVEL"] = "WARNING"

LEVELS = {
    "hosts": [10, 100] if QUICK else [10, 100, 1_000],
    "jobs": [1_000, 5_000] if QUICK else [1_000, 10_000, 100_000],
    "logs": [500_000, 2_000_000] if QUICK else [500_000, 10_000_000, 100_000_000, 1_000_000_000],
    "viewers": [10, 100] if QUICK else [10, 100, 1_000, 10_000],
    "ssh": [5] if QUICK else [20],
}
#: How much longer the next level takes, at most: one that would not end in time is not begun.
GROWTH = {"hosts": 2, "jobs": 6, "logs": 8, "viewers": 4, "ssh": 1}
PART_SECONDS = float(size("PART_SECONDS", 300, quick=90))
#: what a part gets to clean up after it was told to end
END_SECONDS = 60.0
JOB_HOSTS, GANG = 200 if QUICK else 1_000, 8
SMALL_BATCHES = 100
MOST_PASSES = 30
KEPT = ROOT / "build" / ("scale-quick" if QUICK else "scale")
REPORT = ROOT / "docs" / "scale.md"
Keep = Callable[[Any], None]


def kept(part: str) -> list[dict[str, Any]]:
    """The points of a part that were measured, the smallest first."""
    path = KEPT / f"{part}.json"
    return list(json.loads(path.read_text())) if path.exists() else []


def keep(part: str, point: Any) -> None:
    """Store one more point, which replaces the file as a whole."""
    KEPT.mkdir(parents=True, exist_ok=True)
    path = KEPT / f"{part}.json"
    path.with_suffix(".new").write_text(json.dumps([*kept(part), asdict(point)]))
    path.with_suffix(".new").replace(path)


def climb(part: str, one: Callable[[int], Any]) -> None:
    """Measure the levels that are missing, as long as the next one would end within the time."""
    until, took = time.monotonic() + PART_SECONDS, 0.0
    for level in LEVELS[part][len(kept(part)) :]:
        began = time.monotonic()
        if began + took * GROWTH[part] > until:
            return
        keep(part, one(level))
        took = time.monotonic() - began
        print(f"{part}: {level:,} in {took:.0f} s, load {os.getloadavg()[0]:.1f}", flush=True)


def spent() -> float:
    """Seconds of processor time of this process and of all of PostgreSQL."""
    from benchmarks.samples_ingest import postgres_cpu

    return time.process_time() + postgres_cpu()


def hosts(stack: ExitStack) -> None:
    """Simulated hosts that run work: samples each ten seconds, heartbeats each five, and small batches of lines."""
    from benchmarks import samples_ingest
    from benchmarks.log_flood import batch, shipper, texts
    from benchmarks.simulated_hosts import CLIENTS, RANKS, Load, SimulatedHost
    from jobs.models import Member
    from jobs.states import MemberState
    from tests.rig.rows import RUN_TOKEN, make_gang

    web = _webs(stack, 1)[0]
    gangs = [make_gang(GANG) for _ in range(-(-max(LEVELS["hosts"]) // GANG))]
    Member.objects.update(state=MemberState.RUNNING)
    simulated = [SimulatedHost(web.url, member) for gang in gangs for member in gang]
    Load(simulated[:CLIENTS], 1, True).run()
    stream = shipper(web.url, make_gang()[0], RUN_TOKEN)
    body = batch(texts(RANKS))
    stream.ship(body)

    def one(count: int) -> Hosts:
        level = samples_ingest.measure(simulated[:count], web.pid, True)
        before = samples_ingest.cpu_seconds(web.pid), samples_ingest.postgres_cpu()
        for _ in range(SMALL_BATCHES):
            stream.ship(body)
        after = samples_ingest.cpu_seconds(web.pid), samples_ingest.postgres_cpu()
        shares = [(end - begin) / SMALL_BATCHES for begin, end in zip(before, after, strict=True)]
        seconds = level.answers.seconds
        return Hosts(
            count, level.web_cpu / seconds, level.postgres_cpu / seconds, level.requests / seconds,
            level.answers.refused, *shares,
        )  # fmt: skip

    climb("hosts", one)


def jobs(stack: ExitStack) -> None:
    """Passes over trials that wait on hosts of eight slots each."""
    from django.db import connection

    from accounts.models import User
    from benchmarks import one_pass

    owner = User.objects.create_user("scale", role=User.Role.EDITOR)
    warm = one_pass.make_pool("warm", 10)
    one_pass.make_waiting(warm, owner, 50)
    one_pass.timed_pass(warm)

    def one(waiting: int) -> Passes:
        pool = one_pass.make_pool(f"scale{waiting}", JOB_HOSTS)
        one_pass.make_waiting(pool, owner, waiting)
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE")
        passes = [one_pass.timed_pass(pool)]
        while passes[-1]["starts"] and len(passes) < MOST_PASSES:
            passes.append(one_pass.timed_pass(pool))
        if len(passes) == 1:
            passes.append(one_pass.timed_pass(pool))
        first, full = (
            [each[f"CPU of {part}"] / 1000 for part in ("Python", "PostgreSQL")]
            for each in (passes[0], passes[-1])
        )
        return Passes(waiting, passes[0]["starts"], *first, *full)

    climb("jobs", one)


def logs(stack: ExitStack) -> None:
    from benchmarks import scale_logs

    climb("logs", scale_logs.Growing(LEVELS["logs"][0], spent).measured)


def viewers(stack: ExitStack) -> None:
    from benchmarks import scale_viewers

    webs = _webs(stack, 2)
    climb("viewers", lambda count: scale_viewers.measure(webs, count))


def ssh(stack: ExitStack) -> None:
    """Idle hosts that a worker of `up` asks over SSH."""
    from benchmarks import idle
    from tests.rig.hosts import HostRig
    from tests.rig.server import Server
    from tests.rig.stack import Stack

    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="scale-")))
    folder.chmod(0o711)
    rig = HostRig(folder / "hosts")
    stack.callback(rig.close)
    server = Server(folder / "data", rig.server_address)
    stack.callback(server.close)
    server.settings.clear()
    server.start()
    alone = idle.idle(server)["worker"].cpu

    def one(count: int) -> Ssh:
        Stack(server, rig.take(count)).add_hosts(slots=8, python=sys.executable)
        return Ssh(count, max(0.0, (idle.idle(server)["worker"].cpu - alone) / 60))

    climb("ssh", one)


def _webs(stack: ExitStack, count: int) -> list[Any]:
    from tests.rig.parts import private_folder
    from tests.rig.web import running_web

    settings = {"TRAINMASTER_SOCKETS_PER_USER": str(max(LEVELS["viewers"]))}
    return [
        stack.enter_context(running_web(stack.enter_context(private_folder("web")), **settings))
        for _ in range(count)
    ]


MEASURE = {"hosts": hosts, "jobs": jobs, "logs": logs, "viewers": viewers, "ssh": ssh}


def measure(part: str) -> None:
    """Measure a part in this process, with a PostgreSQL and a Redis of its own unless it starts a whole server."""
    from tests.rig.parts import private_folder

    with ExitStack() as stack:
        if part != "ssh":
            folders = [stack.enter_context(private_folder(name)) for name in ("postgres", "redis")]
            stack.enter_context(database.parts(folders[0], folders[1]))
        MEASURE[part](stack)


def measure_apart(part: str) -> None:
    """Measure a part in a process of its own, which is told to end if it takes much more than its time."""
    if len(kept(part)) == len(LEVELS[part]):
        return
    child = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.scale", part], cwd=ROOT, start_new_session=True
    )
    for seconds, sign in ((1.5 * PART_SECONDS, signal.SIGINT), (END_SECONDS, signal.SIGKILL)):
        try:
            child.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, sign)
    child.wait()


def main() -> int:
    chosen = sys.argv[1] if len(sys.argv) > 1 else ""
    if chosen in MEASURE:
        measure(chosen)
        return 0
    if chosen != "page":
        for part in LEVELS:
            measure_apart(part)
    points = {part: [kind(**each) for each in kept(part)] for part, kind in KINDS.items()}
    if missing := [part for part, found in points.items() if not found]:
        print(f"Could not measure {', '.join(missing)}: see what was printed above.")
        return 1
    found = Found(**points, levels=LEVELS)
    text = report(found)
    if not QUICK:
        for name, picture in pictures(found).items():
            (ROOT / "docs" / "img" / name).write_text(picture)
        REPORT.write_text(text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
