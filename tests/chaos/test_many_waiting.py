"""5,000 commands wait while workers are killed: three workers with a beat each tick at once, each message comes twice.

PostgreSQL, Redis and Celery's workers are real; the hosts are stood in for (tests/rig/doubled.py), since 5,000 runs of
Python cannot be started on two cores in the time.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings
from django.db import connection
from django.db.models import F

from hosts.models import ResourcePool
from jobs.models import Allocation, SlotHold, Task
from jobs.states import AllocationState, Reason, TaskState
from tests.rig import pace
from tests.rig.many import make_commands, make_hosts
from tests.rig.pace import wait_until
from tests.rig.parts import end
from tests.rig.web import ROOT, database_url
from tests.rig.world import make_user

pytestmark = [pytest.mark.chaos, pytest.mark.django_db(transaction=True)]

WAITING, HOSTS, SLOTS = 5000, 40, 8
PARTS = 3
#: slots given and runs started on hosts are counted in steps of this length, and none may be empty; no plan is older.
#: All slots may be held by runs that are still to be started, so one of the two alone may rest.
STEP_SECONDS = 30.0
SETTLE_SECONDS = 300.0


class Celery:
    """Three workers, and so three beats, on the test database. A killed one is replaced."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "runs").mkdir()
        self.environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "queue")]),
            "DATABASE_URL": database_url(),
            "REDIS_URL": settings.REDIS_URL,
            "TRAINMASTER_DATA_DIR": str(folder),
            "TRAINMASTER_SECRET_KEY": settings.SECRET_KEY,
            "TRAINMASTER_SWEEP_SECONDS": "1",
            "TRAINMASTER_LOG_LEVEL": "WARNING",
            "CHAOS_HOSTS": str(folder / "runs"),
        }
        self.workers = [self.worker(number) for number in range(PARTS)]

    def worker(self, number: int) -> "subprocess.Popen[bytes]":
        quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat"]
        return self._spawn("worker", "--pool", "threads", "-c", "4", "-n", f"w{number}@%h", *quiet)

    def _spawn(self, *words: str) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "celery", "-A", "tests.rig.doubled", *words]
        with (self.folder / "celery.log").open("ab") as log:
            return subprocess.Popen(
                command, cwd=ROOT, env=self.environment, stdout=log, stderr=log, start_new_session=True
            )

    def ready(self) -> list[int]:
        """Numbers of the workers that take messages."""
        return [
            number
            for number, child in enumerate(self.workers)
            if (self.folder / f"ready-{child.pid}").exists()
        ]

    def kill_a_worker(self, chance: random.Random) -> None:
        """Any that works, as long as another does: with none at all nothing could start."""
        assert wait_until(lambda: len(self.ready()) > 1, 120), self.said()[-4000:]
        number = chance.choice(self.ready())
        self.workers[number].send_signal(signal.SIGKILL)
        self.workers[number].wait()
        self.workers[number] = self.worker(number)

    def said(self) -> str:
        return (self.folder / "celery.log").read_text(errors="replace")

    def close(self) -> None:
        for child in self.workers:
            child.send_signal(signal.SIGKILL)
            end(child, signal.SIGKILL)


@pytest.fixture
def pool() -> ResourcePool:
    """5,000 commands of one slot and 320 slots."""
    made = ResourcePool.objects.create(name="many", default_compute=True, default_aux=True)
    make_hosts(made, HOSTS, SLOTS)
    make_commands(made, make_user(), WAITING)
    return made


@pytest.fixture
def celery(pool: ResourcePool, redis_server: object, tmp_path: Path) -> Iterator[Celery]:
    parts = Celery(tmp_path)
    try:
        assert wait_until(lambda: len(parts.ready()) == PARTS, 120), parts.said()[-4000:]
        yield parts
    finally:
        parts.close()


def started() -> int:
    return Allocation.objects.count()


@pytest.mark.survive(18)
def test_workers_die_at_random_while_thousands_wait(celery: Celery, minute: float) -> None:
    step = STEP_SECONDS * pace.factor()
    seconds = max(2 * step, 3 * minute)
    seed = int(os.environ.get("CHAOS_SEED") or time.time())
    print(f"CHAOS_SEED={seed}")
    chance = random.Random(seed)
    assert wait_until(lambda: started() > 0, 60), celery.said()[-4000:]
    begun, oldest = time.time(), 0.0
    while time.time() < begun + seconds:
        time_to_next = chance.uniform(4, 10)
        wait_until(lambda: False, time_to_next)  # the pause between two deaths is what the test is about
        oldest = max(oldest, age_of_plan())
        celery.kill_a_worker(chance)
    rate = starts_by_step(celery, begun, time.time(), step)
    print(f"starts in each {step:.0f} s: {rate}; {started()} of {WAITING}; the oldest plan: {oldest:.0f} s")
    assert len(rate) >= 2 and all(rate), (rate, celery.said()[-4000:])
    assert oldest < step, "passes do not wait behind what is asked of hosts"
    assert_all_that_started_is_carried_out(celery)
    assert_no_slot_twice()


def age_of_plan() -> float:
    """Seconds since the last pass, while something still waits; else 0."""
    planned = ResourcePool.objects.values_list("planned_at", flat=True).get(name="many")
    return time.time() - planned.timestamp() if planned and started() < WAITING else 0.0


def starts_by_step(celery: Celery, begun: float, until: float, step: float) -> list[int]:
    """What was given slots or started on a host in each whole step, while something still waited."""
    assigned = [at.timestamp() for at in Allocation.objects.values_list("assigned_at", flat=True)]
    on_hosts = [run.stat().st_ctime for run in (celery.folder / "runs").glob("*/run.json")]
    last = min(until, max(assigned)) if started() >= WAITING else until
    counted = Counter(int((at - begun) // step) for at in [*assigned, *on_hosts] if at >= begun)
    return [counted[number] for number in range(int((last - begun) // step))]


def assert_all_that_started_is_carried_out(celery: Celery) -> None:
    """Every attempt that was begun until now is launched once, ends and frees its slot; no task is lost."""
    begun = list(Allocation.objects.values_list("pk", flat=True))

    def over() -> bool:
        open_ones = Allocation.objects.filter(pk__in=begun).exclude(state=AllocationState.TERMINATED)
        return not open_ones.exists()

    assert wait_until(over, SETTLE_SECONDS), celery.said()[-4000:]
    ended = Allocation.objects.filter(pk__in=begun)
    assert set(ended.values_list("exit_reason", flat=True)) == {Reason.COMPLETED}
    assert not ended.exclude(number=1).exists(), "nobody's start was thrown away and made again"
    runs = celery.folder / "runs"
    assert all((runs / f"{pk}.0").is_dir() for pk in begun)
    states = Counter(Task.objects.values_list("state", flat=True))
    assert states[TaskState.WAITING] + states[TaskState.RUNNING] + states[TaskState.ENDED] == WAITING
    held = SlotHold.objects.filter(released_at=None)
    assert not held.filter(member__allocation__state=AllocationState.TERMINATED).exists()


def assert_no_slot_twice() -> None:
    """No two holds of a slot overlap in time; every hold is of a slot of its member's host."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM (SELECT a.assigned_at, lag(h.released_at) OVER w AS former, "
            "lag(a.id) OVER w AS before FROM jobs_slothold h JOIN jobs_member m ON m.id = h.member_id "
            "JOIN jobs_allocation a ON a.id = m.allocation_id "
            "WINDOW w AS (PARTITION BY h.slot_id ORDER BY h.id)) held "
            "WHERE before IS NOT NULL AND (former IS NULL OR former > assigned_at)"
        )
        assert cursor.fetchone()[0] == 0
    assert not SlotHold.objects.exclude(slot__host=F("member__host")).exists()
