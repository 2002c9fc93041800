"""The rows of a year of use: one of each kind is made by the product's own code, and PostgreSQL copies it.

A year with 1 million trials has 50,000 experiments, 5 million events, a million each of attempts, members, holds, usage
records, checkpoints and chunks of metrics, 200,000 chunks of samples, and 100,000 chunks of logs with 1,000 lines each.
That is a tenth of the 10^9 lines that its logs may have: a reader finds chunks by an index of task and line, whose
depth a tenth more or less does not change.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module

from django.db import connection, transaction
from django.db.models import Model
from django.utils import timezone

from accounts.models import User
from events.models import Event
from experiments import templates
from experiments.models import Checkpoint, Experiment, Trial, Workspace
from experiments.states import CheckpointState, ExperimentState, TrialState
from hosts.models import Host, Slot
from jobs.models import Allocation, FirstStart, Job, Member, SlotHold, Task, UsageRecord
from jobs.states import AllocationState, JobState, MemberState, Reason, TaskState
from logs import store
from logs.lines import Block
from logs.models import Chunk as LogChunk
from logs.models import TaskLog
from metrics import ingest, sample_store
from metrics.models import Chunk as MetricChunk
from metrics.models import Group, SampleChunk
from tests.rig.many import make_hosts
from tests.rig.world import default_pool, make_user, submit_experiment, trial_of

#: ids of copies are above
BASE = 1_000_000
TRIALS_EACH, EVENTS_EACH, LINES_PER_CHUNK = 20, 5, 1000
HOSTS, SLOTS, USERS = 20, 8, 10


#: what the triggers, which are not called for copies, and the folding of their rows have made of it in a year
COUNTED = (
    "TRUNCATE experiments_experimentcount, experiments_labelcount; "
    + import_module("experiments.migrations.0012_kept_counts").SO_FAR
)


@dataclass
class Year:
    """`made`: the key of the row of each kind that is copied, `trials`: how many there are in a whole year."""

    trials: int
    made: dict[type[Model], object]
    hosts: list[Host]
    users: list[User]

    def fill(self, first: int, last: int) -> None:
        """Copy them for the trials of these numbers, both included; the last of a year is `trials`, and is now."""
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(
                "SET LOCAL session_replication_role = replica"
            )  # rows refer to others that come later
            experiments = range((first - 1) // TRIALS_EACH + 1, (last - 1) // TRIALS_EACH + 2)
            for model, values in self._of_experiments().items():
                copy(model, self.made[model], experiments, values)
            for model, values in self._of_trials().items():
                copy(model, self.made[model], range(first, last + 1), values)
            copy(Event, self.made[Event], range(first * EVENTS_EACH, (last + 1) * EVENTS_EACH), self._event())
            copy(LogChunk, self.made[LogChunk], range(first // 10 + 1, last // 10 + 1), self._log_chunk())
            copy(SampleChunk, self.made[SampleChunk], range(first // 5 + 1, last // 5 + 1), self._samples())
        with connection.cursor() as cursor:
            cursor.execute(COUNTED)
            cursor.execute("VACUUM ANALYZE")  # as autovacuum does in a year

    def _moment(self, number: str, each: int = 1) -> str:
        return f"now() - interval '365 days' * (1 - {number}::float * {each} / {self.trials})"

    def _of_experiments(self) -> dict[type[Model], dict[str, str]]:
        owner = any_of([user.pk for user in self.users])
        begun, ended = self._moment("n", TRIALS_EACH), f"{self._moment('n', TRIALS_EACH)} + interval '1 hour'"
        return {
            Job: {
                "id": "md5('job' || n)::uuid",
                "owner_id": owner,
                "name": "'sweep ' || n",
                "position": f"extract(epoch FROM {begun})",
                "submitted_at": begun,
                "ended_at": ended,
                "entity_id": f"({BASE} + n)::text",
            },
            FirstStart: {"job_id": "md5('job' || n)::uuid", "submitted_at": begun, "at": begun},
            Experiment: {
                "id": f"{BASE} + n",
                "job_id": "md5('job' || n)::uuid",
                "owner_id": owner,
                "name": "'sweep ' || n",
                "started_at": begun,
                "ended_at": ended,
                "best_trial_id": f"{BASE} + n * {TRIALS_EACH}",
                "labels": "jsonb_build_array('label-' || n % 50, 'kind-' || n % 4)",
                "state": "CASE WHEN n % 100 = 7 THEN 'ERROR' ELSE 'COMPLETED' END",
                "archived": "n % 100 = 17",
                "template_name": "CASE WHEN n % 2 = 0 THEN 'usual' ELSE '' END",
            },
        }

    def _of_trials(self) -> dict[type[Model], dict[str, str]]:
        experiment = f"(n - 1) / {TRIALS_EACH} + 1"
        begun, ended = self._moment("n"), f"{self._moment('n')} + interval '50 minutes'"
        task, attempt, row = "'trial.' || n", "'trial.' || n || '.1'", f"{BASE} + n"
        slots = list(Slot.objects.values_list("pk", flat=True))
        return {
            Task: {
                "id": task,
                "job_id": f"md5('job' || ({experiment}))::uuid",
                "created_at": begun,
                "ended_at": ended,
            },
            Trial: {
                "id": row,
                "experiment_id": f"{BASE} + {experiment}",
                "task_id": task,
                "request_id": "gen_random_uuid()",
                "started_at": begun,
                "ended_at": ended,
                "searcher_metric": "random()",
                "latest_checkpoint_id": "md5('checkpoint' || n)::uuid",
            },
            Allocation: {
                "id": attempt,
                "task_id": task,
                "token_hash": "''",
                "assigned_at": begun,
                "started_at": begun,
                "ended_at": ended,
                "settled_at": ended,
            },
            Member: {
                "id": row,
                "allocation_id": attempt,
                "host_id": any_of([host.pk for host in self.hosts]),
                "launched_at": begun,
                "ended_at": ended,
            },
            SlotHold: {"id": row, "member_id": row, "slot_id": any_of(slots), "released_at": ended},
            UsageRecord: {"run_key": f"{attempt} || '.0'", "started_at": begun, "ended_at": ended},
            Checkpoint: {
                "uuid": "md5('checkpoint' || n)::uuid",
                "trial_id": row,
                "allocation_id": attempt,
                "reported_at": ended,
            },
            TaskLog: {"task_id": task},
            Group: {"id": row, "trial_id": row},
            MetricChunk: {"id": row, "group_id": row},
        }

    def _event(self) -> dict[str, str]:
        trial = f"(n / {EVENTS_EACH})"
        return {
            "id": f"{BASE} + n",
            "at": f"now() - interval '365 days' * (1 - n::float / {EVENTS_EACH * self.trials})",
            "kind": "(ARRAY['trial', 'task', 'allocation', 'member', 'checkpoint'])[1 + n % 5]",
            "subject": f"({BASE} + {trial})::text",
            "task_id": f"'trial.' || {trial}",
            "experiment_id": f"{BASE} + ({trial} - 1) / {TRIALS_EACH} + 1",
            "job_id": f"md5('job' || (({trial} - 1) / {TRIALS_EACH} + 1))::uuid",
        }

    def _log_chunk(self) -> dict[str, str]:
        """Ten for each hundredth trial."""
        line = f"(n % 10) * {LINES_PER_CHUNK} + 1"
        return {
            "id": f"{BASE} + n",
            "task_id": "'trial.' || n / 10 * 100",
            "first_line": line,
            "last_line": f"{line} + {LINES_PER_CHUNK - 1}",
            "members": f"ARRAY[{BASE} + n / 10 * 100]",
            "stored_at": self._moment("n", 10),
        }

    def _samples(self) -> dict[str, str]:
        clock = f"extract(epoch FROM {self._moment('n', 5)})"
        return {
            "id": f"{BASE} + n",
            "task_id": "'trial.' || n * 5",
            "host_id": any_of([host.pk for host in self.hosts]),
            "first_time": clock,
            "last_time": f"{clock} + 900",
            "grain": "2",
        }


def any_of(values: list[object]) -> str:
    """SQL that takes one of the values for each number in turn."""
    words = ", ".join(str(value) if isinstance(value, int) else f"'{value}'::uuid" for value in values)
    return f"(ARRAY[{words}])[1 + n % {len(values)}]"


def copy(model: type[Model], made: object, numbers: range, values: Mapping[str, str]) -> None:
    """Copy the row `made`, once for each number `n`; `values` are expressions of the columns that differ."""
    table, key = model._meta.db_table, model._meta.pk.column
    columns = [field.column for field in model._meta.concrete_fields]
    unknown = set(values) - set(columns)
    assert not unknown, f"{table} has no columns {unknown}"
    found = ", ".join(values.get(column, f'one."{column}"') for column in columns)
    names = ", ".join(f'"{column}"' for column in columns)
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {table} ({names}) SELECT {found} FROM generate_series({numbers.start}, "
            f"{numbers.stop - 1}) n, {table} one WHERE one.\"{key}\" = '{made}'"
        )


def begin(trials: int) -> Year:
    """Make hosts, users, and the rows that are copied: an experiment whose only trial has ended, with all it left."""
    pool = default_pool()
    hosts = make_hosts(pool, HOSTS, SLOTS)
    users = [make_user(f"user{number}") for number in range(USERS)]
    templates.create("usual", "max_restarts: 1\n", workspace=Workspace.objects.get(pk=1), user=users[0])
    experiment = submit_experiment(name="sweep", owner=users[0])
    trial, now = trial_of(experiment), timezone.now()
    allocation = Allocation.objects.create(
        id=f"{trial.task_id}.1", task=trial.task, number=1, pool=pool, slots=1, exit_code=0,
        state=AllocationState.TERMINATED, exit_reason=Reason.COMPLETED, started_at=now, ended_at=now, settled_at=now,
    )  # fmt: skip
    member = Member.objects.create(
        allocation=allocation, index=0, host=hosts[0], slots=1, state=MemberState.ENDED, exited=True,
        ended_at=now, finished_at=now, removed_at=now, exit_code=0, exit_reason=Reason.COMPLETED,
    )  # fmt: skip
    FirstStart.objects.create(job=experiment.job, pool=pool, submitted_at=experiment.job.submitted_at, at=now)
    hold = SlotHold.objects.create(slot=hosts[0].slots.first(), member=member, released_at=now)
    usage = UsageRecord.objects.create(
        run_key=member.run_key, kind=Task.Kind.TRIAL, owner=users[0], pool=pool, slots=1,
        started_at=now - timedelta(hours=1), ended_at=now, experiment_number=experiment.pk, workspace="Uncategorized",
    )  # fmt: skip
    checkpoint = Checkpoint.objects.create(
        trial=trial, allocation_id=allocation.pk, state=CheckpointState.COMPLETED, steps_completed=1000,
        resources={"weights": 10**9}, size_bytes=10**9, storage={"type": "server"}, reported_at=now,
    )  # fmt: skip
    _train(trial, member)
    Job.objects.filter(pk=experiment.job_id).update(state=JobState.ENDED, ended_at=now)
    Task.objects.filter(pk=trial.task_id).update(state=TaskState.ENDED, ended_at=now, run_count=1)
    Trial.objects.filter(pk=trial.pk).update(
        state=TrialState.COMPLETED, ended_at=now, run_id=1, steps_completed=1000, hparams={"lr": 0.1},
        searcher_metric=0.5, latest_checkpoint=checkpoint,
    )  # fmt: skip
    Experiment.objects.filter(pk=experiment.pk).update(
        state=ExperimentState.COMPLETED, ended_at=now, best_trial_id=trial.pk, best_metric=0.5, progress=1.0
    )
    made = {
        each: each._default_manager.order_by("pk").values_list("pk", flat=True)[0]
        for each in (Event, LogChunk, MetricChunk, Group, SampleChunk)
    }
    rows: dict[type[Model], object] = {
        Job: experiment.job_id, FirstStart: experiment.job_id, Experiment: experiment.pk,
        Task: trial.task_id, Trial: trial.pk,
        Allocation: allocation.pk, Member: member.pk, SlotHold: hold.pk, UsageRecord: usage.pk,
        Checkpoint: checkpoint.pk, TaskLog: trial.task_id, **made,
    }  # fmt: skip
    return Year(trials, rows, hosts, users)


def _train(trial: Trial, member: Member) -> None:
    """1,000 lines, 1,000 reports, and a quarter of an hour of samples."""
    text = "\n".join(
        f"step {n} loss {2 - n / 1e4:.5f} lr 2.8e-4 {5000 + n % 300} tok/s" for n in range(LINES_PER_CHUNK)
    )
    store.append(trial.task_id, member, member.host.name, [Block(time.time(), 0, "stdout", [], [], text)])
    now = time.time()
    with transaction.atomic():
        ingest.store(
            trial.pk, [ingest.Report(1, "validation", n, now + n, {"loss": 1 / n}) for n in range(1, 1001)]
        )
        record = {
            "k": "samples",
            "t": [now + n for n in range(900)],
            "v": {"cpu_util_simple": [n % 7.0 for n in range(900)]},
        }
        sample_store.store(trial.task_id, member.host_id, member.host.name, [record])
