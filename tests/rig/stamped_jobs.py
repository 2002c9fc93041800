"""A stream of small experiments whose ranks leave stamps outside the product, and what must be true of each at its end.

A rank's stamp is a file `<run key>-<rank>`: when it began and was last alive (monotonic clock, which all hosts of the
tests share) and the last number that it printed.
"""

from __future__ import annotations

import json
import random
import re
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import NamedTuple, TypeVar
from urllib.error import HTTPError

import psycopg

from tests.rig.light_gang import LAUNCHER
from tests.rig.stack import END_STATES, Stack, config

WORKER = """
import json, os, pathlib, sys, time
import determined as det

rank, size, local, local_size, here, hosts = map(int, sys.argv[1:])
job = json.loads({job!r})
key = os.environ["TRAINMASTER_RUN"]
stamp = pathlib.Path(job["told"]) / f"{{key}}-{{rank}}"
begun = time.monotonic()
if stamp.exists():
    stamp.with_name(stamp.name + "-twice").touch()

def say(number):
    new = stamp.with_name(stamp.name + ".new")
    new.write_text(json.dumps([begun, time.monotonic(), number]))
    new.rename(stamp)

say(0)
info = det.get_cluster_info()
distributed = det.core.DistributedContext(
    rank=rank, size=size, local_rank=local, local_size=local_size, cross_rank=here, cross_size=hosts,
    chief_ip=info.container_addrs[0])
with det.core.init(distributed=distributed) as context:
    first = 1
    if job["saves"] and info.latest_checkpoint:
        with context.checkpoint.restore_path(info.latest_checkpoint) as folder:
            first = int((folder / "number").read_text()) + 1
    for number in range(first, job["last"] + 1):
        print(f"line {{key}} {{number}}", flush=True)
        say(number)
        time.sleep(job["pause"])
        distributed.allgather(number)
        if job["saves"] and context.preempt.should_preempt():
            with context.checkpoint.store_path({{"steps_completed": number}}) as (folder, _):
                (folder / "number").write_text(str(number))
            break
say(number)
sys.exit(job["code"])
"""
_STAMP = re.compile(r"(.+)\.(\d+)\.(\d+)-(\d+)")
_LINE = re.compile(r"line (\S+)\.(\d+)\.\d+ (\d+)")
#: An attempt that ended so may have ranks that had begun: the gang never came together.
NEVER_STARTED = {"launch_failed", "port_in_use", "storage_failed"}
#: The end of a run as its host tells it, after the last sign of its last rank.
END_SECONDS = 60.0


Answer = TypeVar("Answer")


class Stamp(NamedTuple):
    begun: float
    alive: float
    number: int


class Attempt(NamedTuple):
    """A row of the database. `ended`: epoch seconds."""

    number: int
    state: str
    exit_reason: str
    exit_code: int | None
    ended: float
    #: it was backfilled, so it may have to leave when the job before it fits
    on_sufferance: bool


@dataclass
class Job:
    """What was asked for. `acts`: what a person does with it, and after how many seconds."""

    kind: str
    slots: int
    last: int
    code: int = 0
    saves: bool = False
    acts: list[tuple[float, str]] = field(default_factory=list)
    once: str = field(default_factory=lambda: str(uuid.uuid4()))
    submitted: float = 0.0
    experiment: int = 0


def counts(chance: random.Random) -> Job:
    return Job("counts", 1, chance.randint(10, 80))


def counts_on_one_host(chance: random.Random) -> Job:
    return Job("counts", 2, chance.randint(10, 80))


def gang(chance: random.Random) -> Job:
    return Job("gang of two hosts", 4, chance.randint(30, 120))


def fails(chance: random.Random) -> Job:
    return Job("fails", 1, chance.randint(5, 40), code=chance.randint(2, 100))


def paused(chance: random.Random) -> Job:
    at = chance.uniform(2, 25)
    return Job("paused", 1, 80, saves=True, acts=[(at, "pause"), (at + chance.uniform(0, 20), "activate")])


def killed(chance: random.Random) -> Job:
    return Job("killed", chance.choice([1, 4]), 400, acts=[(chance.uniform(0, 40), "kill")])


KINDS: list[Callable[[random.Random], Job]] = [counts, counts_on_one_host, gang, fails, paused, killed]


class Stream:
    """Submits jobs as a seed has them, a few unfinished at a time, until told to stop. `run` is for a thread."""

    UNFINISHED = 5
    PAUSE_SECONDS = (0.0, 4.0)
    STEP_SECONDS = 0.4

    def __init__(self, stack: Stack, told: Path, seed: int) -> None:
        self.stack = stack
        self.told = told
        self.chance = random.Random(seed)
        self.jobs: list[Job] = []
        self.stopped = threading.Event()

    def run(self) -> None:
        following = 0.0
        while not self.stopped.is_set() or not all(job.experiment and not job.acts for job in self.jobs):
            if not self.stopped.is_set() and time.monotonic() > following and self._few():
                self.jobs.append(self.chance.choice(KINDS)(self.chance))
                following = time.monotonic() + self.chance.uniform(*self.PAUSE_SECONDS)
            for job in self.jobs:
                self._act(job)
            time.sleep(0.2)

    def _few(self) -> bool:
        """Whether few enough are unfinished; what is not answered counts as unfinished."""
        submitted = [job for job in self.jobs if job.experiment]
        states = self._answered(lambda: self.states()) if submitted else {}
        if states is None:
            return False
        open_ones = [job for job in self.jobs if states.get(job.experiment) not in END_STATES]
        return len(open_ones) < self.UNFINISHED

    def states(self) -> dict[int, str]:
        found = self.stack.get("/api/v1/experiments?limit=-1")["experiments"]  # 0 would be 100 of them
        return {int(each["id"]): str(each["state"]) for each in found}

    def _act(self, job: Job) -> None:
        if not job.experiment:
            job.experiment = self._answered(lambda: self._submit(job)) or 0
            job.submitted = time.monotonic()
        elif job.acts and time.monotonic() > job.submitted + job.acts[0][0]:
            path = f"/api/v1/experiments/{job.experiment}/{job.acts[0][1]}"
            if self._answered(lambda: self._post(path)):
                job.acts.pop(0)

    def _submit(self, job: Job) -> int:
        about = {"told": str(self.told), "last": job.last, "pause": self.STEP_SECONDS}
        worker = WORKER.format(job=json.dumps({**about, "code": job.code, "saves": job.saves}))
        return self.stack.submit(
            {"launch.py": LAUNCHER, "worker.py": worker}, config(job.slots, name=job.kind), job.once
        )

    def _post(self, path: str) -> bool:
        """True: it is done, or the experiment has ended before."""
        try:
            self.stack.post(path)
        except HTTPError as error:
            if error.code >= 500:
                raise
        return True

    def _answered(self, ask: Callable[[], Answer]) -> Answer | None:
        """None while the server is away: what was asked is asked again."""
        try:
            return ask()
        except HTTPError as error:
            if error.code < 500:
                raise AssertionError(f"refused: {error.code} {error.msg}") from error
        except (OSError, HTTPException, ValueError):
            pass
        return None


class Ledger:
    """The stamps, the rows and the lines of one job after its end, and what must be true of them."""

    def __init__(self, stream: Stream, job: Job, wrong_clocks: list[tuple[float, float]]) -> None:
        self.job = job
        trial = stream.stack.trial(job.experiment)
        self.restarts = int(trial["restarts"])
        self.state = str(stream.stack.experiment(job.experiment)["state"])
        self.task = str(trial["taskId"])
        self.stamps: dict[int, dict[int, Stamp]] = {}
        self.twice: list[str] = []
        for path in stream.told.glob(f"{self.task}.*"):
            if path.name.endswith("-twice"):
                self.twice.append(path.name)
            elif found := _STAMP.fullmatch(path.name):
                said = Stamp(*json.loads(path.read_text()))
                self.stamps.setdefault(int(found[2]), {})[int(found[4])] = said
        self.attempts = attempts(stream.stack, self.task)
        self.lines = {
            rank: [
                (int(found[2]), int(found[3]))
                for record in stream.stack.records(trial["id"], f"rankIds={rank}")
                if (found := _LINE.fullmatch(record["log"]))
            ]
            for rank in range(job.slots)
        }
        self.wrong_clocks = wrong_clocks

    def faults(self) -> list[str]:
        """Sentences about what is not true; none if all is well."""
        checks = (self._end, self._once, self._lines, self._healthy, self._times)
        name = f"exp {self.job.experiment} ({self.job.kind}, {self.job.slots} slots)"
        return [f"{name}: {fault}" for check in checks for fault in check()]

    def _end(self) -> list[str]:
        done = all(stamp.number == self.job.last for stamp in self.stamps.get(self._newest(), {}).values())
        expected = {"STATE_ERROR"} if self.job.code else {"STATE_COMPLETED"}
        if self.job.kind == "killed":
            expected = {"STATE_CANCELED", *(["STATE_COMPLETED"] if done and self.stamps else [])}
        faults = [] if self.state in expected else [f"{self.state}, not {expected}: {self.attempts}"]
        if self.state != "STATE_CANCELED" and (
            not self.attempts or self.attempts[-1].exit_code != self.job.code
        ):
            faults.append(f"exit code {self.job.code} became {self.attempts}")
        return faults + [f"not over: {each}" for each in self.attempts if each.state != "TERMINATED"]

    def _once(self) -> list[str]:
        """No rank of an attempt ran twice, and no two attempts at one time."""
        faults = [f"ran twice: {name}" for name in self.twice]
        spans = {
            number: (min(one.begun for one in ranks.values()), max(one.alive for one in ranks.values()))
            for number, ranks in sorted(self.stamps.items())
        }
        for earlier, later in zip(list(spans), list(spans)[1:], strict=False):
            if spans[later][0] < spans[earlier][1]:
                faults.append(f"attempts {earlier} and {later} at the same time: {spans}")
        return faults

    def _lines(self) -> list[str]:
        """Of each attempt, each rank's lines from its first to the last that it printed, once and in order."""
        faults = []
        for number, ranks in self.stamps.items():
            for rank, stamp in ranks.items():
                found = [line for attempt, line in self.lines[rank] if attempt == number]
                first = found[0] if found else 1
                if not self.job.saves and first != 1:
                    faults.append(f"attempt {number}, rank {rank} begins with line {first}")
                # one that was killed may have printed a line of which it could not leave a stamp any more
                if found not in (
                    list(range(first, stamp.number + 1)),
                    list(range(first, stamp.number + 2)),
                ):
                    faults.append(f"attempt {number}, rank {rank} printed up to {stamp.number}: {found}")
        if self.job.saves and [line for _, line in self.lines[0]] != list(range(1, self.job.last + 1)):
            faults.append(f"not 1 to {self.job.last}: {self.lines[0]}")
        return faults

    def _healthy(self) -> list[str]:
        """No attempt was ended that nobody asked to leave, and none was counted as a restart."""
        faults = [f"{self.restarts} restarts"] if self.restarts else []
        asked = {"paused_by_user"} if self.job.kind == "paused" else set()
        for attempt in self.attempts[:-1]:
            backfilled = {"preempted"} if attempt.on_sufferance else set()
            if attempt.exit_reason not in {*NEVER_STARTED, *asked, *backfilled}:
                faults.append(f"attempt {attempt.number} ended: {attempt}")
        if self.state in {"STATE_COMPLETED", "STATE_ERROR"}:
            ranks = self.stamps.get(self._newest(), {})
            unfinished = {rank: one.number for rank, one in ranks.items() if one.number != self.job.last}
            if unfinished or len(ranks) != self.job.slots:
                faults.append(f"it ended although ranks were at {unfinished} of {self.job.last}")
        return faults

    def _times(self) -> list[str]:
        """The end of each attempt is as its last rank says, unless a clock was wrong that it was read from."""
        faults = []
        epoch = time.time() - time.monotonic()
        for attempt in self.attempts:
            if not (ranks := self.stamps.get(attempt.number)):
                continue
            begun, alive = min(one.begun for one in ranks.values()), max(one.alive for one in ranks.values())
            if any(begun < until and since < alive + 2 * END_SECONDS for since, until in self.wrong_clocks):
                continue
            late = attempt.ended - (alive + epoch)
            if not -2.0 < late < END_SECONDS:
                faults.append(f"attempt {attempt.number} ended {late:.1f} s after its last rank")
        return faults

    def _newest(self) -> int:
        return max((each.number for each in self.attempts), default=0)


def attempts(stack: Stack, task: str) -> list[Attempt]:
    """All attempts of a task, the first one first."""
    with psycopg.connect(stack.server.database_url) as connection:
        rows = connection.execute(
            "SELECT number, state, exit_reason, exit_code, extract(epoch FROM ended_at)::float, on_sufferance "
            "FROM jobs_allocation WHERE task_id = %s ORDER BY number",
            [task],
        ).fetchall()
    return [Attempt(*row) for row in rows]


def leaks(stack: Stack) -> dict[str, int]:
    """What ended work still holds, by the name of its table; nothing if all is well."""
    asked = {
        "slots": "SELECT count(*) FROM jobs_slothold WHERE released_at IS NULL",
        "ports": "SELECT count(*) FROM jobs_portlease",
        "members": "SELECT count(*) FROM jobs_member WHERE state <> 'ENDED' OR cleaning_since IS NOT NULL",
        "tasks": "SELECT count(*) FROM jobs_task WHERE state <> 'ENDED'",
    }
    with psycopg.connect(stack.server.database_url) as connection:
        counted = {name: connection.execute(statement).fetchone() for name, statement in asked.items()}
    return {name: int(row[0]) for name, row in counted.items() if row is not None and row[0]}
