"""Every state has one writer: what its table does not allow is refused, and of two writers one wins."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models import Model
from django.utils import timezone

from commands import transitions as commands
from commands.states import STEPS as COMMAND_STEPS
from commands.states import CommandState
from events.models import Event
from events.steps import Table
from experiments import transitions as experiments
from experiments.models import Checkpoint
from experiments.states import (
    CHECKPOINT_STEPS,
    EXPERIMENT_STEPS,
    TRIAL_STEPS,
    CheckpointState,
    ExperimentState,
    TrialState,
)
from hosts import transitions as hosts
from hosts.states import ADMISSION_STEPS, CONTACT_STEPS, Admission, Contact
from jobs import job_transitions
from jobs import transitions as jobs
from jobs.models import Job, Task
from jobs.states import (
    ALLOCATION_STEPS,
    JOB_STEPS,
    TASK_STEPS,
    AllocationState,
    JobState,
    Reason,
    TaskState,
)
from tests.rig import trial_rows
from tests.rig.rows import make_command, make_gang
from tests.rig.world import make_host, make_project, make_user

ROOT = Path(__file__).parents[2]
WHY: dict[str, Any] = {"reason": Reason.COMPLETED, "actor": "user:ada"}


@dataclass(frozen=True)
class Kind:
    """A kind of rows with a state: `make` one, `write` its state."""

    states: type
    table: Table
    make: Callable[[], Any]
    write: Callable[[Any, Any], bool]
    field: str = "state"

    def legal(self) -> set[tuple[str, str]]:
        return {(str(old), str(new)) for old, steps in self.table.items() for new in steps}

    def pairs(self) -> Iterator[tuple[str, str]]:
        return ((str(old), str(new)) for old in self.states for new in self.states)


def a_trial() -> Any:
    make_project()
    make_user("admin")
    return trial_rows.add("one", "ACTIVE")


def a_checkpoint() -> Checkpoint:
    trial = a_trial()
    return Checkpoint.objects.create(
        trial=trial,
        allocation_id=f"{trial.task_id}.1",
        steps_completed=1,
        storage={"type": "server"},
        reported_at=timezone.now(),
    )


KINDS = {
    "experiment": Kind(
        ExperimentState, EXPERIMENT_STEPS,
        lambda: a_trial().experiment, lambda row, to: experiments.set_experiment_state(row, to, **WHY),
    ),
    "trial": Kind(
        TrialState, TRIAL_STEPS, a_trial, lambda row, to: experiments.set_trial_state(row, to, **WHY)
    ),
    "checkpoint": Kind(
        CheckpointState, CHECKPOINT_STEPS,
        a_checkpoint, lambda row, to: experiments.set_checkpoint_state(row, to, **WHY),
    ),
    "command": Kind(
        CommandState, COMMAND_STEPS, make_command, lambda row, to: commands.set_state(row, to, **WHY)
    ),
    "job": Kind(
        JobState, JOB_STEPS,
        lambda: Job.objects.get(pk=make_command().job_id), lambda row, to: jobs.set_job_state(row.pk, to, **WHY),
    ),
    "task": Kind(
        TaskState, {old: steps - {TaskState.RUNNING} for old, steps in TASK_STEPS.items()},  # only `assign` does that
        lambda: Task.objects.get(pk=make_command().task_id), lambda row, to: jobs.set_task_state(row.pk, to, **WHY),
    ),
    "allocation": Kind(
        AllocationState, ALLOCATION_STEPS,
        lambda: make_gang()[0].allocation,
        lambda row, to: job_transitions.step_allocation(row, to, Reason.COMPLETED, "user:ada"),
    ),
    "admission": Kind(
        Admission, ADMISSION_STEPS,
        lambda: make_host("gpu1", 1), lambda row, to: hosts.set_admission(row, to, **WHY), "admission",
    ),
    "contact": Kind(
        Contact, CONTACT_STEPS,
        lambda: make_host("gpu1", 1), lambda row, to: hosts.set_contact(row, to, silent_for=None), "contact",
    ),
}  # fmt: skip


def now_in(row: Model, field: str) -> str:
    return str(type(row)._base_manager.values_list(field, flat=True).get(pk=row.pk))


@pytest.mark.django_db
@pytest.mark.parametrize("name", KINDS)
def test_a_state_changes_by_the_steps_of_its_table_alone_and_each_leaves_an_event(name: str) -> None:
    kind = KINDS[name]
    row = kind.make()
    for old, new in kind.pairs():
        type(row)._base_manager.filter(pk=row.pk).update(**{kind.field: old})
        setattr(row, kind.field, old)
        events = Event.objects.filter(kind=name if kind.field == "state" else "host", subject=str(row.pk))
        before = events.count()
        is_legal = (old, new) in kind.legal()
        assert kind.write(row, kind.states(new)) == is_legal, (old, new)
        assert now_in(row, kind.field) == (new if is_legal else old)
        assert events.count() - before == is_legal
        if is_legal:
            assert (events.last().from_state, events.last().to_state) == (old, new)  # type: ignore[union-attr]


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("name", "stale", "true", "to"),
    [
        ("trial", "ACTIVE", "PAUSED", "COMPLETED"),
        ("checkpoint", "PARTIAL", "ERROR", "COMPLETED"),
        ("admission", "admitting", "removed", "ready"),
        ("contact", "reachable", "silent", "silent"),
    ],
)
def test_who_read_an_older_state_changes_nothing(name: str, stale: str, true: str, to: str) -> None:
    kind = KINDS[name]
    row = kind.make()
    type(row)._base_manager.filter(pk=row.pk).update(**{kind.field: true})
    setattr(row, kind.field, stale)
    before = Event.objects.count()
    assert not kind.write(row, kind.states(to))
    assert now_in(row, kind.field) == true and Event.objects.count() == before


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("name", "old", "first", "second"),
    [
        ("checkpoint", "COMPLETED", "PARTIALLY_DELETED", "DELETING"),
        ("checkpoint", "PARTIAL", "ERROR", "COMPLETED"),
        ("admission", "ready", "suspended", "lost"),
        ("contact", "reachable", "silent", "silent"),
    ],
)
def test_of_two_writers_that_read_the_same_state_the_first_wins(
    name: str, old: str, first: str, second: str
) -> None:
    kind = KINDS[name]
    row = kind.make()
    type(row)._base_manager.filter(pk=row.pk).update(**{kind.field: old})
    mine, theirs = (type(row)._base_manager.get(pk=row.pk) for _ in range(2))
    events = Event.objects.count()
    won: list[bool] = []

    def write_too() -> None:
        try:
            won.append(kind.write(theirs, kind.states(second)))
        finally:
            connection.close()

    other = Thread(target=write_too)
    with transaction.atomic():
        assert kind.write(mine, kind.states(first))
        other.start()
        wait_for_a_blocked_statement()
        assert other.is_alive() and not won
    other.join(30)
    assert won == [False]
    assert now_in(row, kind.field) == first and Event.objects.count() == events + 1


def wait_for_a_blocked_statement(seconds: float = 30.0) -> None:
    """Until another connection to this database waits for a lock that is held here."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(*) FROM pg_locks WHERE pg_backend_pid() = ANY(pg_blocking_pids(pid))"
            )
            if cursor.fetchone()[0]:
                return
        time.sleep(0.02)
    raise AssertionError(f"nobody waited for this transaction within {seconds:.0f} s")


def test_other_code_writes_no_state_but_for_many_rows_at_once() -> None:
    rooms = [
        "embedded",
        "webui",
        "shown",
        "queue",
        "experiments",
        "commands",
        "submissions",
        "logs",
        "metrics",
    ]
    writers = [
        str(path.relative_to(ROOT))
        for room in rooms
        for path in sorted((ROOT / room).rglob("*.py"))
        if "migrations" not in path.parts
        if re.search(r"\.update\(\s*(state|admission|contact)=", path.read_text())
    ]
    # those lock the rows before; the state of a job in Slurm is Slurm's own word (jobs.feeding)
    assert writers == [
        "queue/jobs/assigning.py", "queue/jobs/detached.py", "queue/jobs/feeding.py",
        "queue/jobs/job_transitions.py", "commands/transitions.py",
    ]  # fmt: skip
