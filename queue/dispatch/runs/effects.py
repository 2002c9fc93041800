"""What the records of a batch change besides the log, samples and timings: reports, states and ends.

`dispatch.runs.intake` calls it within the transaction of the batch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from django.db import InterfaceError, OperationalError, connection, transaction

from commands import burn_in, group_burn_in, services
from dispatch.runs import batches, settle
from experiments.models import Experiment, Trial
from experiments.transitions import lock as lock_experiment
from jobs import rank_ends, transitions
from jobs.models import Member
from logs import store as log_store
from logs import streams

_STATEFUL = {"core", "state", "exit"}
#: Records of the launch modules -> whether the rank ended by itself, not because it was told to.
_RANK_ENDS = {"rank_failed": True, "rank_ended": False}


def is_stateful(record: dict[str, Any]) -> bool:
    """Whether it changes the trial or its attempt; a batch without such takes no lock on the experiment."""
    return record.get("k") in _STATEFUL


def of_kind(records: Sequence[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """Those of one kind."""
    return [record for record in records if record.get("k") == kind]


def apply(member: Member, records: Sequence[dict[str, Any]], trial: Trial | None) -> None:
    """Do what the records say, in their order and in the caller's transaction. `trial`: that of `trial_of_metrics`."""
    missing = sum(int(record.get("bytes") or 0) for record in of_kind(records, "gap"))
    if missing:
        streams.count_missing(member.pk, missing)
    stateful = [record for record in records if is_stateful(record)]
    if not stateful:
        return
    if trial is None and any(record["k"] == "core" for record in stateful):
        trial = _trial(member)
    reporting = batches.Reporting(trial, member, stateful) if trial else None
    measured = [] if trial else [record["d"] for record in stateful if burn_in.is_about(record)]
    if measured:
        _kept(member, lambda: _measured(member, measured))
    for place in reporting.left() if reporting else range(len(stateful)):
        record = stateful[place]
        if record["k"] == "core" and _rank_ended(member, record.get("d")):
            continue
        if record["k"] == "core" and reporting:
            reporting.apply(place)
        elif record["k"] == "core" and not burn_in.is_about(record):
            _kept(member, partial(services.reported, member.allocation.task_id, record.get("d")))
        elif record["k"] == "state" and record.get("state") == "running":
            transitions.member_running(member, at=_time_of(member, record))
        elif record["k"] == "exit":
            if trial:  # what it reported before may have changed its allocation
                member.allocation = transitions.lock_allocation(member.allocation_id)
            exited(member, record)


#: Written out, since metrics come with every other batch; what the rows lack is read when it is asked for.
_EXPERIMENT = """
SELECT experiment.id, experiment.state, experiment.best_trial_id, experiment.best_metric, experiment.unmanaged
FROM experiments_experiment experiment WHERE experiment.id = (
  SELECT trial.experiment_id FROM experiments_trial trial JOIN jobs_allocation allocation USING (task_id)
  JOIN jobs_member member ON member.allocation_id = allocation.id WHERE member.id = %s)
FOR NO KEY UPDATE OF experiment
"""
_EXPERIMENT_COLUMNS = (
    "id",
    "state",
    "best_trial_id",
    "best_metric",
    "unmanaged",
)  # in the order of the model, as `from_db` wants
#: A statement of its own, which sees what others have stored under the experiment's lock before.
_TRIAL = """
SELECT trial.id, trial.experiment_id, trial.task_id, trial.run_id, trial.steps_completed,
  trial.best_validation, trial.latest_validation, trial.summary_metrics, trial.searcher_metric
FROM experiments_trial trial JOIN jobs_allocation allocation USING (task_id)
JOIN jobs_member member ON member.allocation_id = allocation.id WHERE member.id = %s
"""
_TRIAL_COLUMNS = (
    "id", "experiment_id", "task_id", "run_id", "steps_completed",
    "best_validation", "latest_validation", "summary_metrics", "searcher_metric",
)  # fmt: skip


def trial_of_metrics(member_id: int, records: Sequence[dict[str, Any]]) -> Trial | None:
    """The trial of a batch whose only reports are metrics, its experiment locked; None for any other batch.

    Its attempt cannot end meanwhile: only dispatch.runs.settle ends one, with the experiment locked. Nor has it ended
    before: whether it is over is read after this lock.
    """
    for record in records:
        if is_stateful(record) and not batches.is_metrics(record.get("d")):
            return None
    with connection.cursor() as cursor:
        cursor.execute(_EXPERIMENT, [member_id])
        row = cursor.fetchone()
        if row is None:
            return None
        experiment = Experiment.from_db(connection.alias, _EXPERIMENT_COLUMNS, row)
        cursor.execute(_TRIAL, [member_id])
        *plain, best, latest, summary, searcher_metric = cursor.fetchone()
    documents = [value and json.loads(value) for value in (best, latest, summary)]
    trial = Trial.from_db(connection.alias, _TRIAL_COLUMNS, [*plain, *documents, searcher_metric])
    trial.experiment = experiment
    return trial


def _trial(member: Member) -> Trial | None:
    """The trial that reports, its experiment locked; None for other kinds of work."""
    trial = Trial.objects.select_related("task").filter(task_id=member.allocation.task_id).first()
    if trial:
        trial.experiment = lock_experiment(trial.experiment_id)
    return trial


def _rank_ended(member: Member, data: object) -> bool:
    """Keep how a rank ended, of any kind of work. False: the report is another one, or none that can be read."""
    kind = data.get("type") if isinstance(data, dict) else None
    if not isinstance(data, dict) or kind not in _RANK_ENDS:
        return False
    try:
        rank_ends.keep(member, data, failed=_RANK_ENDS[kind])
    except (KeyError, TypeError, ValueError):
        return False
    return True


def _measured(member: Member, records: Sequence[dict[str, Any]]) -> None:
    burn_in.reported(member, records)
    group_burn_in.reported(member, records)


def _kept(member: Member, keep: Callable[[], None]) -> None:
    """What a service or a burn-in reports; what cannot be kept is named in the log and left behind."""
    try:
        with transaction.atomic():
            keep()
    except (OperationalError, InterfaceError):
        raise
    except Exception as error:  # whatever its program may have written
        line = batches.left_out(ValueError(f"{type(error).__name__}: {error}"))
        log_store.append(member.allocation.task_id, member, member.host.name, batches.blocks([line]))


def exited(member: Member, record: dict[str, Any]) -> None:
    """The last record: everything before it is stored, so the end may be shown."""
    streams.close(member.pk)
    if settle.ended_by_slurm(member, stopped=record.get("stopped") is True):
        return  # dispatch.runs.clusters asks Slurm, and settles it
    failure, kills = record.get("first_failure"), record.get("oom_kills")
    port = record.get("port_in_use")
    settle.member_exited(
        member,
        code=record.get("code"),
        signal=record.get("signal"),
        ended_at=_stamp(record),
        first_failure=failure if isinstance(failure, dict) else None,
        boot_id=str(record.get("boot_id") or ""),
        oom_kills=kills if isinstance(kills, dict) else None,
        port_in_use=port if isinstance(port, int) else None,
        storage_fault=str(record.get("storage_fault") or ""),
        image_fault=str(record.get("image_fault") or ""),
        hook_fault=str(record.get("hook_fault") or ""),
        kernel=record.get("kernel"),
        left=_left(record.get("left")),
    )


def _left(pids: object) -> list[dict[str, Any]] | None:
    """The processes of the run that have survived SIGKILL; older runners do not say."""
    return [{"pid": pid} for pid in pids if isinstance(pid, int)] or None if isinstance(pids, list) else None


def _stamp(record: dict[str, Any]) -> float | None:
    stamp = record.get("t")
    return stamp if isinstance(stamp, int | float) else None


def _time_of(member: Member, record: dict[str, Any]) -> datetime | None:
    """When it was on its host, in the server's time; None where it does not say."""
    stamp = _stamp(record)
    return None if stamp is None else member.server_time(stamp)
