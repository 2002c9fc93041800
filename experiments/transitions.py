"""The one writer of the states of experiments, trials and checkpoints (law 2; features.md 4.2, 4.3)."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet
from django.db.models.expressions import RawSQL
from django.utils import timezone

import searching
from accounts.refusals import Code, Refusal
from events.announce import announce, wake
from events.models import Event
from events.prepared import Prepared
from events.record import record, store
from events.steps import step
from experiments import borrowers
from experiments.models import Checkpoint, Experiment, Trial
from experiments.states import (
    CHECKPOINT_STEPS,
    EXPERIMENT_END_STATES,
    EXPERIMENT_STEPS,
    TRIAL_END_STATES,
    TRIAL_STEPS,
    CheckpointState,
    ExperimentState,
    TrialState,
)
from jobs import transitions as jobs
from jobs.models import Allocation
from jobs.states import AllocationState, JobState, Reason, StopKind, TaskState
from searching import custom


class NoSuchExperiment(Refusal):
    """No experiment or trial has this id."""


def lock(experiment_id: int) -> Experiment:
    """The experiment, locked for the rest of the transaction. Always locked before its allocations."""
    if (experiment := _locked.find(experiment_id)) is None:
        raise NoSuchExperiment(f"There is no experiment {experiment_id}.")
    return experiment


def lock_to_report(trial_id: int) -> Trial:
    """The trial, with what its reports change, and before it its experiment: both locked. Raises NoSuchExperiment."""
    if (trial := _to_report.find(trial_id)) is None:
        raise NoSuchExperiment(f"There is no trial {trial_id}.")
    return trial


def lock_of_run(run: Allocation) -> Trial | None:
    """The trial of a run, locked as by `lock_to_report`."""
    return _to_report_by_task.find(run.task_id)


def read_to_report(rows: QuerySet[Trial]) -> QuerySet[Trial]:
    """Trials as `metric_reports.store_alone` takes them: `version` is another one whenever the row has been written."""
    return rows.only(*REPORTED).annotate(version=RawSQL("experiments_trial.xmin::text", []))


REPORTED = ("task", "experiment", "run_id", "steps_completed", "summary_metrics", "experiment__unmanaged")
_WITH_REPORTS = [
    "run_id", "steps_completed", "progress", "best_validation", "latest_validation", "summary_metrics",
    "searcher_metric", "request_id", "state", "task", "early_exit",
    *(f"experiment__{name}" for name in ("job", "state", "search", "unmanaged", "best_metric", "best_trial_id")),
]  # fmt: skip


def _locked_with_reports() -> QuerySet[Trial]:
    locked = Trial.objects.select_for_update(of=("experiment", "self"), no_key=True)
    return locked.select_related("experiment").only("experiment", *_WITH_REPORTS)


_to_report = Prepared(_locked_with_reports)
_to_report_by_task = Prepared(_locked_with_reports, "task_id", "of no task")
_locked = Prepared(
    lambda: Experiment.objects.select_for_update(of=("self",), no_key=True).select_related("job")
)


def set_experiment_state(
    experiment: Experiment, to: ExperimentState, *, reason: Reason, actor: str, at: datetime | None = None
) -> bool:
    """One guarded step of a locked experiment; False when it is not legal from its state. `at`: its end, if not now."""
    ended = (at or timezone.now()) if to in EXPERIMENT_END_STATES else None
    changes: dict[str, Any] = {"ended_at": ended}
    # At its end, what is superfluous of its checkpoints is deleted (experiments.checkpoint_deletion). Those of detached
    # runs stay, as in Determined: their scripts say nowhere how many to keep, and may resume from any; a policy that
    # somebody sets later counts.
    if not experiment.unmanaged and (ended or experiment.state in EXPERIMENT_END_STATES):
        changes["collect_due"] = ended is not None
    event = Event(
        kind=Event.Kind.EXPERIMENT,
        subject=str(experiment.pk),
        reason=reason,
        actor=actor,
        job_id=experiment.job_id,
        experiment_id=experiment.pk,
        pools=[] if experiment.unmanaged else [experiment.job.pool_id],
    )
    if not step(experiment, EXPERIMENT_STEPS, to, event, **changes):
        return False
    if ended:
        succeeded = to == ExperimentState.COMPLETED
        jobs.set_job_state(
            experiment.job_id, JobState.ENDED, reason=reason, actor=actor, at=ended, succeeded=succeeded
        )
        wake("dispatch.tasks.collect_checkpoints", experiment.pk)
    announce(f"experiment:{experiment.pk}", "experiments")
    return True


def set_trial_state(
    trial: Trial,
    to: TrialState,
    *,
    reason: Reason,
    actor: str,
    detail: dict[str, Any] | None = None,
    at: datetime | None = None,
) -> bool:
    """One guarded step of a trial whose experiment is locked. `at`: its end, if not now."""
    ended = (at or timezone.now()) if to in TRIAL_END_STATES else None
    if not step(trial, TRIAL_STEPS, to, _event_of(trial, reason, actor, detail), ended_at=ended):
        return False
    announce(f"experiment:{trial.experiment_id}")
    return True


def _event_of(trial: Trial, reason: Reason, actor: str, detail: dict[str, Any] | None) -> Event:
    return Event(
        kind=Event.Kind.TRIAL,
        subject=str(trial.pk),
        reason=reason,
        actor=actor,
        detail=detail or {},
        task_id=trial.task_id,
        job_id=trial.experiment.job_id,
        experiment_id=trial.experiment_id,
    )


def trial_promoted(trial: Trial, *, actor: str, detail: dict[str, Any] | None) -> None:
    """Its search lets a trial go on as it is: no change of state, but part of its story."""
    event = _event_of(trial, Reason.SEARCHER_PROMOTED, actor, detail)
    event.from_state = event.to_state = trial.state
    store(event)
    announce(f"experiment:{trial.experiment_id}")


def set_checkpoint_state(checkpoint: Checkpoint, to: CheckpointState, *, reason: str, actor: str) -> bool:
    """One guarded step of a checkpoint; False when it is not legal from its state, or another writer was faster."""
    event = Event(
        kind=Event.Kind.CHECKPOINT,
        subject=str(checkpoint.pk),
        reason=reason,
        actor=actor,
        detail={"steps_completed": checkpoint.steps_completed},
        experiment_id=checkpoint.trial.experiment_id,
    )
    if not step(checkpoint, CHECKPOINT_STEPS, to, event):
        return False
    announce(f"experiment:{checkpoint.trial.experiment_id}")
    return True


# --- what people ask for --------------------------------------------------------------------------


def refuse_unmanaged(experiment: Experiment, what: str) -> None:
    """Raises Refusal: a program that the server did not start is not the server's to stop."""
    if experiment.unmanaged:
        raise Refusal(
            f"Experiment {experiment.pk} is unmanaged: its program runs outside the queue and cannot be {what} here. "
            "End the program where you started it.",
            Code.CONFLICT,
        )


def _open_allocation(trial: Trial) -> Allocation | None:
    """The attempt that holds slots. None is a promise: no pass makes one before this transaction ends."""
    jobs.lock_tasks([trial.task_id])
    return Allocation.objects.filter(task_id=trial.task_id).exclude(state=AllocationState.TERMINATED).first()


def _living(experiment: Experiment) -> list[Trial]:
    """Trials that have not ended, their tasks locked (all at once: the order of locks is tasks, then allocations)."""
    trials = list(experiment.trials.exclude(state__in=TRIAL_END_STATES).select_related("experiment"))
    jobs.lock_tasks([trial.task_id for trial in trials])
    return trials


def _preempt(trial: Trial, allocation: Allocation, reason: Reason, actor: str) -> None:
    timeout = trial.experiment.config.get("preemption_timeout")
    jobs.request_stop(
        allocation.pk, StopKind.PREEMPT, reason=reason, actor=actor, preemption_timeout_seconds=timeout
    )


def _switch(
    experiment_id: int, to: ExperimentState, what: str, reason: Reason, actor: str
) -> tuple[Experiment, bool]:
    """The experiment, locked, and whether this has brought it into the state; False if it was there. Raises Refusal."""
    experiment = lock(experiment_id)
    refuse_unmanaged(experiment, what)
    if experiment.state == to:
        return experiment, False
    if experiment.state in EXPERIMENT_END_STATES:
        raise Refusal(
            f"experiment in terminal state: experiment {experiment_id} is {experiment.state}.", Code.ENDED
        )
    if not set_experiment_state(experiment, to, reason=reason, actor=actor):
        raise _illegal(experiment, to)
    return experiment, True


@transaction.atomic
def pause(experiment_id: int, *, actor: str) -> Experiment:
    """Save and free the slots: allocations are preempted, waiting trials rest, the place in the queue is kept."""
    reason = Reason.PAUSED_BY_USER
    experiment, is_new = _switch(experiment_id, ExperimentState.PAUSED, "paused", reason, actor)
    if is_new:
        for trial in _living(experiment):
            rest_trial(trial, reason=reason, actor=actor)
        # last, as everywhere: the job's row is locked after the allocations
        jobs.set_job_state(experiment.job_id, JobState.PAUSED, reason=reason, actor=actor)
    return experiment


@transaction.atomic
def activate(experiment_id: int, *, actor: str) -> Experiment:
    """Back into the queue at the old place. Trials that still stop for the pause queue again when they have ended."""
    reason = Reason.ACTIVATED_BY_USER
    experiment, is_new = _switch(experiment_id, ExperimentState.ACTIVE, "activated", reason, actor)
    if is_new:
        jobs.set_job_state(experiment.job_id, JobState.ACTIVE, reason=reason, actor=actor)
        parked = searching.parked(experiment.search)
        for trial in _living(experiment):
            if str(trial.request_id) not in parked:
                wake_trial(trial, reason=reason, actor=actor)
    return experiment


def rest_trial(trial: Trial, *, reason: Reason, actor: str, detail: dict[str, Any] | None = None) -> None:
    """Save, and free the slots of one trial of a locked experiment; it wants none until it is woken."""
    set_trial_state(trial, TrialState.PAUSED, reason=reason, actor=actor, detail=detail)
    if allocation := _open_allocation(trial):
        _preempt(trial, allocation, reason, actor)
    else:
        jobs.set_task_state(trial.task_id, TaskState.PAUSED, reason=reason, actor=actor)


def wake_trial(trial: Trial, *, reason: Reason, actor: str, detail: dict[str, Any] | None = None) -> None:
    """Back into the queue. One that still stops queues again when it has ended."""
    set_trial_state(trial, TrialState.ACTIVE, reason=reason, actor=actor, detail=detail)
    if not _open_allocation(trial):
        jobs.set_task_state(
            trial.task_id, TaskState.WAITING, reason=reason, actor=actor, blocked_by=upload_block(trial)
        )


def upload_block(trial: Trial) -> str:
    """The reason code that keeps a trial from starting while its newest checkpoint is still being uploaded."""
    newest = trial.latest_checkpoint
    if newest is not None and newest.state == CheckpointState.PARTIAL:
        return Reason.WAITS_FOR_UPLOAD
    return ""


@transaction.atomic
def cancel(experiment_id: int, *, actor: str) -> Experiment:
    """Save, then end. An ended experiment is left as it is."""
    return _stop(experiment_id, ExperimentState.STOPPING_CANCELED, Reason.CANCELED_BY_USER, actor)


@transaction.atomic
def kill(experiment_id: int, *, actor: str) -> Experiment:
    """End now; what was not saved is lost. An ended experiment is left as it is."""
    return _stop(experiment_id, ExperimentState.STOPPING_KILLED, Reason.KILLED_BY_USER, actor)


def _stop(experiment_id: int, to: ExperimentState, reason: Reason, actor: str) -> Experiment:
    experiment = lock(experiment_id)
    refuse_unmanaged(experiment, "killed" if to == ExperimentState.STOPPING_KILLED else "canceled")
    if experiment.state in EXPERIMENT_END_STATES or experiment.state == to:
        return experiment
    if not set_experiment_state(experiment, to, reason=reason, actor=actor):
        raise _illegal(experiment, to)
    _stop_trials(experiment, TrialState(to), reason, actor)  # its trials stop by the same name
    return experiment


def fail(experiment: Experiment, *, reason: Reason, actor: str) -> None:
    """End a locked experiment with an error: its trials save and leave."""
    if set_experiment_state(experiment, ExperimentState.STOPPING_ERROR, reason=reason, actor=actor):
        _stop_trials(experiment, TrialState.STOPPING_ERROR, reason, actor)


def _stop_trials(experiment: Experiment, to: TrialState, reason: Reason, actor: str) -> None:
    for trial in _living(experiment):
        stop_trial(trial, to, reason=reason, actor=actor)
    finish_if_done(experiment, actor=actor)


def stop_trial(
    trial: Trial, to: TrialState, *, reason: Reason, actor: str, detail: dict[str, Any] | None = None
) -> None:
    """Bring one trial of a locked experiment to its end, by preemption or, for a kill, by force.

    One without an open attempt has ended when this returns: who goes on with the search tells it so.
    """
    set_trial_state(trial, to, reason=reason, actor=actor, detail=detail)
    allocation = _open_allocation(trial)
    if allocation is None:
        jobs.set_task_state(trial.task_id, TaskState.ENDED, reason=reason, actor=actor)
        set_trial_state(trial, END_OF[to], reason=reason, actor=actor)
    elif to == TrialState.STOPPING_KILLED:
        grace = settings.KILL_GRACE_SECONDS
        jobs.request_stop(allocation.pk, StopKind.STOP, reason=reason, actor=actor, grace_seconds=grace)
    else:
        _preempt(trial, allocation, reason, actor)


#: where a stopping trial ends; a stopping experiment ends by the same name
END_OF: dict[str, TrialState] = {
    TrialState.STOPPING_CANCELED: TrialState.CANCELED,
    TrialState.STOPPING_KILLED: TrialState.CANCELED,
    TrialState.STOPPING_COMPLETED: TrialState.COMPLETED,
    TrialState.STOPPING_ERROR: TrialState.ERROR,
}


def finish_if_done(experiment: Experiment, *, actor: str) -> None:
    """End a stopping experiment once its last trial has ended. The experiment is locked.

    One is COMPLETED when its checkpoints can be fetched: who waits for that fetches them next. Slots are free before.
    """
    end = END_OF.get(experiment.state)
    if end is None or experiment.trials.exclude(state__in=TRIAL_END_STATES).exists():
        return
    uploading = Checkpoint.objects.filter(trial__experiment=experiment, state=CheckpointState.PARTIAL)
    if end == TrialState.COMPLETED and uploading.exists():
        return
    last = experiment.trials.order_by("-ended_at").first()
    event = Event.objects.filter(kind=Event.Kind.TRIAL, subject=str(last.pk)).last() if last else None
    reason = Reason(event.reason) if event and event.reason in Reason.values else Reason.COMPLETED
    at = _end_after(experiment, last)
    set_experiment_state(experiment, ExperimentState(end), reason=reason, actor=actor, at=at)


def _end_after(experiment: Experiment, last: Trial | None) -> datetime | None:
    """When a stopping experiment ended whose last trial may have ended long before the server learned of it.

    Not before a person or a program has told it to end. None: now.
    """
    if last is None or last.ended_at is None:
        return None
    by_a_person = {ExperimentState.STOPPING_CANCELED, ExperimentState.STOPPING_KILLED}
    if experiment.state not in by_a_person and not custom.is_custom(experiment.search):
        return last.ended_at
    wish = Event.objects.filter(
        kind=Event.Kind.EXPERIMENT, subject=str(experiment.pk), to_state=experiment.state
    ).last()
    return max(last.ended_at, wish.at) if wish else last.ended_at


@transaction.atomic
def archive(experiment_id: int, *, actor: str) -> Experiment:
    return _set_archived(experiment_id, True, actor)


@transaction.atomic
def unarchive(experiment_id: int, *, actor: str) -> Experiment:
    return _set_archived(experiment_id, False, actor)


def _set_archived(experiment_id: int, archived: bool, actor: str) -> Experiment:
    experiment = lock(experiment_id)
    if experiment.state not in EXPERIMENT_END_STATES:
        raise Refusal(
            f"Experiment is not in terminal state: experiment {experiment_id} is {experiment.state}; "
            f"{_how_to_end(experiment)} first.",
            Code.CONFLICT,
        )
    if experiment.archived != archived:
        Experiment.objects.filter(pk=experiment_id).update(archived=archived)
        reason = "archived" if archived else "unarchived"
        record(Event.Kind.EXPERIMENT, experiment_id, reason=reason, actor=actor, experiment_id=experiment_id)
    experiment.archived = archived
    announce(f"experiment:{experiment_id}", "experiments")
    return experiment


@transaction.atomic
def delete(experiment_id: int, *, actor: str) -> Experiment:
    """Mark an ended experiment for deletion; dispatch removes its rows and files in the background."""
    experiment = lock(experiment_id)
    if experiment.state not in EXPERIMENT_END_STATES | {ExperimentState.DELETE_FAILED}:
        raise Refusal(
            f"Experiment is not in terminal state: experiment {experiment_id} is {experiment.state}; "
            f"{_how_to_end(experiment)} before deleting it.",
            Code.CONFLICT,
        )
    goes_on, begin = borrowers.of(
        Checkpoint.objects.filter(trial__experiment=experiment).values_list("pk", flat=True)
    )
    if goes_on:
        raise Refusal(
            f"Trial {min(goes_on.values())} is training from a checkpoint of experiment {experiment_id}; end it first, "
            "or wait until it has its own checkpoint.",
            Code.CONFLICT,
        )
    if begin:
        raise Refusal(
            f"The trials of experiment {min(begin.values())}, which is running, start from a checkpoint of experiment "
            f"{experiment_id}; end it first.",
            Code.CONFLICT,
        )
    set_experiment_state(experiment, ExperimentState.DELETING, reason=Reason.KILLED_BY_USER, actor=actor)
    wake("dispatch.tasks.delete_experiment", experiment_id)
    return experiment


def _illegal(experiment: Experiment, to: ExperimentState) -> Refusal:
    return Refusal(
        f"illegal transition {experiment.state} -> {to} for experiment {experiment.pk}", Code.CONFLICT
    )


def _how_to_end(experiment: Experiment) -> str:
    return "end its program" if experiment.unmanaged else "cancel or kill it"
