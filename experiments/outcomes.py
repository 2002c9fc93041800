"""What the end of an attempt means for its trial and its experiment: done, once more, or over."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import Min
from django.utils import timezone

import searching
from events.models import ASKED, Event
from experiments import detached, same_failures, search
from experiments.models import Experiment, Trial
from experiments.states import GOING_ON, TRIAL_END_STATES, ExperimentState, TrialState
from experiments.transitions import (
    END_OF,
    NoSuchExperiment,
    finish_if_done,
    lock,
    refuse_unmanaged,
    set_experiment_state,
    set_trial_state,
    stop_trial,
    upload_block,
)
from jobs import failed_starts, quarantine
from jobs import transitions as jobs
from jobs.models import Allocation, SlotHold
from jobs.states import HOST_TAKEN, NEVER_STARTED, NOT_THE_CODES_FAULT, Reason, TaskState
from jobs.time_limits import time_used
from logs import log_labels
from searching import custom

_ACTOR = "server"
#: An attempt that could not even start is tried again after this long, times its number.
LAUNCH_BACKOFF_SECONDS = 2.0
_BACKOFF_SECONDS = {
    Reason.LAUNCH_FAILED: LAUNCH_BACKOFF_SECONDS,
    Reason.HOST_LOST: LAUNCH_BACKOFF_SECONDS,
    Reason.HOST_FAULT: LAUNCH_BACKOFF_SECONDS,
    Reason.HANG_OF_HOST: LAUNCH_BACKOFF_SECONDS,
    # another host may have it, or the mount comes back; one that is wrong stays wrong, so the attempts are few
    Reason.STORAGE_FAILED: 10.0,
}
#: The same for a hook that failed: what it could not download may be back by then.
HOOK_BACKOFF_SECONDS = 5.0
_MOST_BACKOFFS = 15
#: What training code says of hyperparameters that it cannot train with, before its first step and later.
_INVALID_HP = frozenset({"INVALID_HP", "INIT_INVALID_HP"})


def lock_for(allocation_id: str) -> Experiment | None:
    """Lock the experiment that an allocation belongs to: always before the allocation itself."""
    trial = Trial.objects.filter(task__allocations__id=allocation_id).first()
    return lock(trial.experiment_id) if trial else None


def allocation_ended(allocation: Allocation) -> None:
    """Decide what follows. Runs in the transaction that terminated the allocation, the experiment locked."""
    trial = Trial.objects.select_related("latest_checkpoint", "task").get(task_id=allocation.task_id)
    experiment = lock(trial.experiment_id)
    trial.experiment = experiment
    reason, end = Reason(allocation.exit_reason), partial(_end, experiment, trial, at=allocation.ended_at)
    if experiment.unmanaged:
        detached.attempt_ended(experiment, trial, reason)
        return
    stopped_at = END_OF.get(trial.state)
    if stopped_at is not None:
        end(stopped_at, *_wish_behind(trial, reason))
    elif trial.early_exit in _INVALID_HP:
        invalid = searching.ExitReason.INVALID_HP
        end(TrialState.ERROR, Reason.INVALID_HP, searcher_reason=invalid)
    elif reason == Reason.KILLED_BY_USER:  # not here, else it was stopping: where it ran, as by scancel
        end(TrialState.CANCELED, reason)
    elif reason == Reason.COMPLETED or trial.early_exit == "USER_REQUESTED_STOP":
        end(TrialState.COMPLETED, Reason.COMPLETED)
    elif reason == Reason.TIME_LIMIT or _time_is_up(trial):
        end(TrialState.ERROR, Reason.TIME_LIMIT)
    elif (
        reason in NOT_THE_CODES_FAULT
        and not _starts_exhausted(trial, reason)
        and not _faults_go_on(trial, reason)
    ):
        recovers = _has_lost_its_host(allocation, reason)
        _again(experiment, trial, reason, _BACKOFF_SECONDS.get(reason, 0.0), recovers=recovers)
    elif reason not in NEVER_STARTED and log_labels.cancels_retries(trial.task_id):
        end(TrialState.ERROR, Reason.RETRIES_CANCELED)
    elif reason in NEVER_STARTED or trial.restarts >= int(experiment.config.get("max_restarts", 5)):
        end(TrialState.ERROR, reason)
    elif same := _same_failure(trial, allocation):
        end(TrialState.ERROR, Reason.SAME_FAILURE, more=same)
    else:
        trial.restarts += 1
        Trial.objects.filter(pk=trial.pk).update(restarts=trial.restarts)
        # a failure that has a sentence of the host's is that of a hook, before the entrypoint
        pause = HOOK_BACKOFF_SECONDS if "sentence" in allocation.exit_detail else 0.0
        _again(experiment, trial, reason, pause, is_counted=True)


def _same_failure(trial: Trial, allocation: Allocation) -> dict[str, Any] | None:
    same_failures.note(trial, allocation)
    return same_failures.repeated(trial)


def _time_is_up(trial: Trial) -> bool:
    """However its attempt ended: another would be stopped as soon as it had started."""
    limit = trial.task.max_time_seconds
    return limit is not None and time_used([trial.task_id]).get(trial.task_id, 0.0) >= limit


def _starts_exhausted(trial: Trial, reason: Reason) -> bool:
    """True when the last attempts, one after the other, could not even start, whatever kept each of them."""
    return reason in NEVER_STARTED and failed_starts.exhausted(trial.task_id)


#: a fault that is still there costs restarts from then on: its host may be in use because the pool has no other
_FREE_FAULTS = 5


def _faults_go_on(trial: Trial, reason: Reason) -> bool:
    """True when more attempts than are free have failed of their hosts' faults since the trial last saved anything."""
    if reason not in (Reason.HOST_FAULT, Reason.HANG_OF_HOST):
        return False
    failed = trial.task.allocations.filter(exit_reason=reason)
    failed = failed.exclude(exit_code=0, stop_reason=Reason.HOST_FAULT)
    if saved := trial.latest_checkpoint:
        of_step = trial.checkpoints.filter(steps_completed=saved.steps_completed)
        failed = failed.filter(assigned_at__gt=of_step.aggregate(at=Min("reported_at"))["at"])
    return failed.count() > _FREE_FAULTS


def _has_lost_its_host(allocation: Allocation, reason: Reason) -> bool:
    """Whether we know that it had to leave its host: the run's own word of its kernel or a restart opens no spare."""
    if reason not in HOST_TAKEN:
        return False
    if reason in (Reason.HOST_LOST, allocation.stop_reason):
        return True
    members = allocation.members.select_related("host", "allocation")
    if reason == Reason.HOST_RESTARTED:
        return any(one.boot_id and one.host.boot_id not in ("", one.boot_id) for one in members)
    held = SlotHold.objects.filter(member__allocation=allocation)
    return held.exclude(slot__quarantine={}).exists() or any(
        one.host.quarantine or quarantine.fault_of(one) for one in members
    )


def _again(
    experiment: Experiment,
    trial: Trial,
    reason: Reason,
    backoff_seconds: float,
    *,
    is_counted: bool = False,
    recovers: bool = False,
) -> None:
    """From the latest checkpoint: back into the queue, or to rest with a paused experiment or at a rung.

    In the queue it waits for `backoff_seconds`, times the number of attempts that ended so.
    """
    detail = {**_restarts(experiment, trial), "is_counted": is_counted}
    if experiment.state == ExperimentState.PAUSED or trial.state == TrialState.PAUSED:
        jobs.set_task_state(trial.task_id, TaskState.PAUSED, reason=reason, actor=_ACTOR, detail=detail)
        return
    not_before = None
    if backoff_seconds:
        attempts = trial.task.allocations.filter(exit_reason=reason).count()
        not_before = timezone.now() + timedelta(seconds=backoff_seconds * min(attempts, _MOST_BACKOFFS))
    jobs.set_task_state(
        trial.task_id,
        TaskState.WAITING,
        reason=reason,
        actor=_ACTOR,
        not_before=not_before,
        blocked_by=upload_block(trial),
        detail=detail,
        recovers=recovers,
    )


def _restarts(experiment: Experiment, trial: Trial) -> dict[str, int]:
    return {"restarts": trial.restarts, "max_restarts": int(experiment.config.get("max_restarts", 5))}


def _end(
    experiment: Experiment,
    trial: Trial,
    state: TrialState,
    reason: Reason,
    actor: str = _ACTOR,
    *,
    at: datetime | None = None,
    searcher_reason: searching.ExitReason | None = None,
    more: dict[str, Any] | None = None,
) -> None:
    set_trial_state(trial, state, reason=reason, actor=_ACTOR, at=at)
    detail = {**_restarts(experiment, trial), **(more or {})}
    jobs.set_task_state(trial.task_id, TaskState.ENDED, reason=reason, actor=_ACTOR, detail=detail, at=at)
    _search_goes_on(experiment, trial, searcher_reason or _SEARCHER_REASON[state], actor)
    if (
        experiment.state in GOING_ON
        and state == TrialState.ERROR
        and not custom.is_custom(experiment.search)  # its program may make another
        and not experiment.trials.exclude(state__in=TRIAL_END_STATES).exists()
    ):
        set_experiment_state(experiment, ExperimentState.STOPPING_ERROR, reason=reason, actor=_ACTOR)
    finish_if_done(experiment, actor=actor)


def _search_goes_on(
    experiment: Experiment, trial: Trial, reason: searching.ExitReason, actor: str = _ACTOR
) -> None:
    """Tell the search of a trial's end, unless the experiment as a whole is being ended."""
    if experiment.state in GOING_ON:
        search.trial_exited(
            experiment, trial, reason, actor=actor if reason == searching.ExitReason.CANCELED else "searcher"
        )


def _wish_behind(trial: Trial, otherwise: Reason) -> tuple[Reason, str]:
    """Why, and by whom, a stopping trial was told to stop. Its attempt may have had another order before."""
    event = Event.objects.filter(kind=Event.Kind.TRIAL, subject=str(trial.pk), to_state=trial.state).last()
    return (Reason(event.reason), event.actor) if event else (otherwise, _ACTOR)


@transaction.atomic
def kill_trial(trial_id: int, *, actor: str) -> Trial:
    """Kill one trial. Its search hears of it when it has ended: at once if it holds no slots. Raises Refusal."""
    experiment_id = Trial.objects.filter(pk=trial_id).values_list("experiment_id", flat=True).first()
    if experiment_id is None:
        raise NoSuchExperiment(f"There is no trial {trial_id}.")
    experiment = lock(experiment_id)
    refuse_unmanaged(experiment, "killed")
    trial = Trial.objects.select_related("experiment").get(pk=trial_id)
    if trial.state in TRIAL_END_STATES:
        return trial
    reason, alone = Reason.KILLED_BY_USER, {ASKED: "trial"}
    stop_trial(trial, TrialState.STOPPING_KILLED, reason=reason, actor=actor, detail=alone)
    if trial.state in TRIAL_END_STATES:
        _search_goes_on(experiment, trial, searching.ExitReason.CANCELED, actor)
        finish_if_done(experiment, actor=actor)
    return trial


_SEARCHER_REASON = {
    TrialState.COMPLETED: searching.ExitReason.COMPLETED,
    TrialState.CANCELED: searching.ExitReason.CANCELED,
    TrialState.ERROR: searching.ExitReason.ERRORED,
}
