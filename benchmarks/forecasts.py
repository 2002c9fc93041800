"""Promised starts against real ones: short commands of known lengths on a real server with two hosts of two slots.

Commands of a few kinds come so that some always wait; each waits once, and its first forecast is its promise
(`scheduling.promises`). What became of the promises is read where the Forecasts tab of the pool reads it. Jobs that
wait together wait for the same ends, so single rounds differ by ten points; ROUNDS=4 gives a steadier share.
`python -m benchmarks.forecasts` writes benchmarks/reports/forecasts.md.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any

import psycopg

from benchmarks.rows import QUICK, Row, finish, not_measured
from tests.rig.hosts import HostRig
from tests.rig.server import Server
from tests.rig.stack import Stack

JOBS = int(os.environ.get("JOBS", "60"))
ROUNDS = int(os.environ.get("ROUNDS", "1"))
SEED = int(os.environ.get("SEED", "1"))
REPORT = Path(__file__).parent / "reports" / "forecasts.md"
HOSTS, SLOTS = 2, 2
#: what runs here, with its usual length in seconds; a single one takes more or less than that
KINDS = {"lint": 6.0, "eval": 13.0, "export": 26.0}
SPREAD = 0.2
#: so many have run before the first is measured, and so many wait at most
HISTORY, WAIT_AT_MOST = 16, 5
GOAL = (0.75, 0.85)
#: the history that forecasts go by is read again after so many seconds, as everything here is shorter than usual
SETTINGS = {"TRAINMASTER_FORECAST_HISTORY_SECONDS": "5"}
_LIMIT_SECONDS = 1800.0


@dataclass(frozen=True)
class Kept:
    """One promise and the start that came, in epoch seconds; `missed_at`: when it became "not known"."""

    task: str
    promised_at: float
    earliest: float
    latest: float
    missed_at: float | None
    started_at: float

    @property
    def error(self) -> float:
        """Seconds outside of the range, below 0: sooner."""
        return min(0.0, self.started_at - self.earliest) + max(0.0, self.started_at - self.latest)

    @property
    def width(self) -> float:
        return self.latest - self.earliest

    @property
    def is_broken(self) -> bool:
        """Missed by more than its width while it was shown."""
        return abs(self.error) > self.width and self.missed_at is None


class Pool:
    """The pool as its users load it."""

    def __init__(self, stack: Stack, random: Random) -> None:
        self._stack = stack
        self._random = random
        self._database = stack.server.database_url

    def submit(self) -> None:
        kind, usual = self._random.choice(list(KINDS.items()))
        seconds = usual * self._random.lognormvariate(0, SPREAD)
        config = {"description": kind, "entrypoint": ["sleep", f"{seconds:.2f}"], "resources": {"slots": 1}}
        self._stack.post("/api/v1/commands", {"config": config})

    def load(self, count: int) -> None:
        """Submit so many, at random moments at which not too many wait, and see them end."""
        mean = statistics.mean(KINDS.values()) / (HOSTS * SLOTS)
        until = time.monotonic() + _LIMIT_SECONDS
        for _ in range(count):
            while self.waiting() >= WAIT_AT_MOST:
                time.sleep(0.2)
            self.submit()
            if self.waiting():  # idle slots are filled at once: only those that wait are promised something
                time.sleep(self._random.expovariate(1 / mean))
        while self._left():
            if time.monotonic() > until:
                raise RuntimeError(f"{self._left()} commands are left")
            time.sleep(0.5)

    def waiting(self) -> int:
        return int(self._ask("SELECT count(*) FROM jobs_task WHERE state = 'WAITING'")[0][0])

    def _left(self) -> int:
        return int(self._ask("SELECT count(*) FROM commands_command WHERE ended_at IS NULL")[0][0])

    def promises(self, since: datetime) -> list[Kept]:
        rows = self._ask(
            """SELECT task_id, extract(epoch FROM promised_at), extract(epoch FROM earliest),
            extract(epoch FROM latest), extract(epoch FROM missed_at), extract(epoch FROM started_at)
            FROM jobs_forecastoutcome WHERE promised_at >= %s AND started_at IS NOT NULL ORDER BY promised_at""",
            [since],
        )
        return [
            Kept(row[0], *(None if each is None else float(each) for each in row[1:]))  # type: ignore[arg-type]
            for row in rows
        ]

    def now(self) -> datetime:
        found: datetime = self._ask("SELECT now()")[0][0]
        return found

    def _ask(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with psycopg.connect(self._database) as connection:
            return connection.execute(query, values).fetchall()


def measure() -> tuple[list[list[Kept]], dict[str, Any]]:
    """The promises of each round, and what the pool's page says of all."""
    with tempfile.TemporaryDirectory(prefix="forecasts-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        rig = HostRig(folder / "hosts")
        server = Server(folder / "data", rig.server_address, SETTINGS)
        try:
            stack = Stack(server.start(), rig.take(HOSTS))
            stack.add_hosts(slots=SLOTS, python=sys.executable)
            pool = Pool(stack, Random(SEED))
            pool.load(HISTORY)
            found = []
            for _ in range(ROUNDS):
                since = pool.now()
                pool.load(JOBS)
                found.append(pool.promises(since))
            return found, stack.get("/api/v1/resource-pools/default/forecasts")
        finally:
            server.close()
            rig.close()


def inside(found: Sequence[Kept]) -> float:
    return sum(each.error == 0 for each in found) / len(found)


def report(rounds: Sequence[Sequence[Kept]], page: dict[str, Any]) -> str:
    """The figures as a page."""
    found = [each for one in rounds for each in one]
    sooner, later = (sum(sign * each.error > 0 for each in found) for sign in (-1, 1))
    broken = [each for each in found if each.is_broken]
    after = statistics.median(each.started_at - each.promised_at for each in found)
    rows = [
        ("promises", f"{len(found)} of {ROUNDS * JOBS} commands; the others started at once", ""),
        ("inside", f"{inside(found):.0%}", f"{GOAL[0]:.0%} to {GOAL[1]:.0%}"),
        ("inside, by round", ", ".join(f"{inside(one):.0%}" for one in rounds), ""),
        ("sooner, later", f"{sooner / len(found):.0%}, {later / len(found):.0%}", ""),
        ('became "not known"', f"{sum(each.missed_at is not None for each in found)}", ""),
        ('missed by more than its width, never "not known"', str(len(broken)), "0"),
        ("range: median", f"{statistics.median(each.width for each in found):.1f} s", ""),
        ("start after the promise: median", f"{after:.1f} s", ""),
        (
            "the pool's Forecasts tab, all of the run",
            f"{page['promises']} promises, {page.get('inside')} % inside",
            "",
        ),
    ]
    kinds = ", ".join(f"{name} {seconds:g} s" for name, seconds in KINDS.items())
    return "\n".join(
        [
            "# Promised starts against real ones",
            "",
            f"{ROUNDS} x {JOBS} commands of one slot ({kinds}, each a fifth more or less) on {HOSTS} hosts of {SLOTS} "
            f"slots, after {HISTORY} that forecasts could learn from; seed {SEED}.",
            "",
            "| | | asked |",
            "|---|---|---|",
            *(f"| {name} | {value} | {asked} |" for name, value, asked in rows),
            "",
        ]
    )


def main() -> int:
    if QUICK:
        return not_measured(REPORT, "the share of a few promises says nothing, and more take minutes")
    rounds, page = measure()
    found = [each for one in rounds for each in one]
    text = report(rounds, page)
    for each in found:
        if each.error:
            missed = (
                ""
                if each.missed_at is None
                else f", not known since {each.missed_at - each.latest:.1f} s later"
            )
            print(f"{each.task}: {each.error:+.1f} s, range {each.width:.1f} s{missed}")
    return finish(
        REPORT,
        text,
        [
            Row(
                "starts within the range that was told", inside(found), "of all", least=GOAL[0], most=GOAL[1]
            ),
            Row("promises missed unsaid", sum(each.is_broken for each in found), "promises", most=0),
        ],
    )


if __name__ == "__main__":
    sys.exit(main())
