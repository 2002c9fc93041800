"""Carries events to the searcher and its operations back to trials, with the search's state saved beside them.

The searcher itself is pure (queue/searching). Everything here runs with the experiment locked, in the
transaction of the event, so a server killed at any point neither loses nor doubles a trial.
"""

from __future__ import annotations

import math
import time as clock
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from django.db import transaction
from django.db.models import F, Value
from django.db.models.functions import Greatest

import searching
from accounts.refusals import Code, Refusal
from events.announce import announce
from events.prepared import Prepared, cursor
from experiments import sources
from experiments.models import Experiment, Trial
from experiments.states import GOING_ON, TRIAL_END_STATES, ExperimentState, TrialState
from experiments.transitions import (
    fail,
    finish_if_done,
    lock,
    rest_trial,
    set_experiment_state,
    set_trial_state,
    stop_trial,
    trial_promoted,
    upload_block,
    wake_trial,
)
from jobs import transitions as jobs
from jobs.models import Task
from jobs.states import Reason, TaskState
from logs import alerts
from searching import custom

_STEPS_GROW = math.log(1.02)


def start(experiment: Experiment, *, actor: str) -> None:
    """Begin the search of a new experiment: its first trials are made."""
    config = experiment.config
    state, operations = searching.start(
        config["searcher"], config.get("hyperparameters") or {}, experiment.seed
    )
    carry_on(experiment, state, operations, actor=actor)


def carry_on(
    experiment: Experiment, state: dict[str, Any], operations: list[searching.Operation], *, actor: str
) -> None:
    """Do what the search asks for, and save its state when it wants no more."""
    _follow(experiment, state, operations, actor)
    _keep(experiment, state)


@dataclass(frozen=True, slots=True)
class Validation:
    """What a search is told of one report. `metric`: NaN for one that is no finite number. `time` is the value of the
    config's `time_metric`, which then measures the rungs instead of the steps. `lacks`: the name of either if the
    report has no such metric.
    """

    metric: float
    steps_completed: int
    time: float | None = None
    lacks: str = ""


def validations_reported(experiment: Experiment, trial: Trial, validations: Sequence[Validation]) -> None:
    """In their order, as far as the experiment goes on. The state of the search is kept once, after the last of them:
    a backlog of thousands, as an absence leaves it, costs what one costs."""
    state = searching.upgraded(experiment.search)
    told = state["told"]
    for each in validations:
        if experiment.state not in GOING_ON:
            break
        if each.lacks:
            if searching.compares(state):
                _fail(experiment, trial, each)
            continue
        event = searching.ValidationReported(
            str(trial.request_id), each.metric, each.steps_completed, time=each.time, at=_now()
        )
        _follow(experiment, state, searching.advance(state, event), "searcher")
    if state["told"] > told:
        _keep(experiment, state)


def _fail(experiment: Experiment, trial: Trial, validation: Validation) -> None:
    """A search that compares trials by what one of them does not report cannot go on (features.md 10.2)."""
    said = {
        "level": "ERROR",
        "title": f"The validation at step {validation.steps_completed} lacks {validation.lacks}",
        "description": "The search compares trials by it, so the experiment has been ended. Report it with each "
        "validation, or set searcher.metric (or searcher.time_metric) to a metric that is reported.",
    }
    alerts.raised(trial.pk, trial.task_id, experiment.pk, said)
    fail(experiment, reason=Reason.METRIC_MISSING, actor="searcher")


def trial_exited(experiment: Experiment, trial: Trial, reason: searching.ExitReason, *, actor: str) -> None:
    """Every end of a trial comes here, or its search waits for it for ever."""
    state = searching.upgraded(experiment.search)
    told = state["told"]
    exited = searching.TrialExited(str(trial.request_id), reason, at=_now())
    operations = searching.advance(state, exited)
    if state["told"] > told:
        carry_on(experiment, state, operations, actor=actor)


def _follow(
    experiment: Experiment, state: dict[str, Any], operations: list[searching.Operation], actor: str
) -> None:
    """Do what the search asks for, and tell it of what that ended at once."""
    experiment.search = state
    left = list(operations)
    while left:
        operation = left.pop(0)
        if ended := _done(experiment, operation, actor):
            left += searching.advance(
                state, searching.TrialExited(ended, searching.ExitReason.COMPLETED, _now())
            )


def _keep(experiment: Experiment, state: dict[str, Any]) -> None:
    Experiment.objects.filter(pk=experiment.pk).update(search=state, progress=_further(experiment))


def _done(experiment: Experiment, operation: searching.Operation, actor: str) -> str | None:
    """One operation; the request id of the trial that it ended at once: no end of an attempt will tell the search."""
    if isinstance(operation, searching.Create):
        create_trial(experiment, operation, actor=actor)
    elif isinstance(operation, searching.Again):
        _run_again(experiment, operation, actor)
    elif isinstance(operation, searching.Shutdown):
        _shut_down(experiment, operation, actor)
    else:
        return _judged(experiment, operation, actor)
    return None


def _judged(
    experiment: Experiment,
    operation: searching.Park | searching.Promote | searching.Stop,
    actor: str,
) -> str | None:
    trial = experiment.trials.select_related("experiment", "latest_checkpoint").get(
        request_id=operation.request_id
    )
    trial.experiment = experiment
    detail = asdict(operation.why) if operation.why else None
    if isinstance(operation, searching.Stop):
        stopped = TrialState.STOPPING_COMPLETED
        stop_trial(trial, stopped, reason=Reason.SEARCHER_STOPPED, actor=actor, detail=detail)
        return operation.request_id if trial.state in TRIAL_END_STATES else None
    if isinstance(operation, searching.Park):
        rest_trial(trial, reason=Reason.SEARCHER_PARKED, actor=actor, detail=detail)
    elif trial.state == TrialState.PAUSED and experiment.state == ExperimentState.ACTIVE:
        wake_trial(trial, reason=Reason.SEARCHER_PROMOTED, actor=actor, detail=detail)
    else:
        trial_promoted(trial, actor=actor, detail=detail)
    return None


def _now() -> int:
    return int(clock.time())


def progress_reported(experiment: Experiment, before: float | None, now: float) -> None:
    """A trial said how far it is, 0 to 1, and what it had said before. Whole percents move the search."""
    if before is None or int(before * 100) != int(now * 100):
        _move(experiment)


def steps_reported(experiment: Experiment, before: int, now: int) -> None:
    """A trial has trained further, whether it validates or not. Each two percent more of its steps move the search."""
    if moves(before, now):
        _move(experiment)


def moves(before: int, now: int) -> bool:
    """Whether that many more steps of a trial move its search."""
    if now <= before:
        return False
    return not before or int(math.log(now) / _STEPS_GROW) != int(math.log(before) / _STEPS_GROW)


def _move(experiment: Experiment) -> None:
    """Write how far its search is, without Django's own queries: batches of metrics come by here."""
    search = _searches.find(experiment.pk)
    if search is None or not search.search or custom.is_custom(search.search):
        return  # a custom search's is what its program says
    now = _progress(search)
    with cursor() as writes:
        writes.execute(_RAISE, [now, experiment.pk])


_searches = Prepared(lambda: Experiment.objects.only("search", "config"))
#: never less than before, as `_further` says
_RAISE = "UPDATE experiments_experiment SET progress = GREATEST(progress, %s) WHERE id = %s"
_REACHED = """SELECT request_id, progress, steps_completed FROM experiments_trial
WHERE experiment_id = %s AND request_id = ANY(%s::uuid[])"""


def _further(experiment: Experiment) -> Any:
    """Its progress as it is written: never less than before, though a trial restarts or is promoted after all.

    A custom search's is what its program says.
    """
    now = _progress(experiment)
    return now if custom.is_custom(experiment.search) else Greatest(F("progress"), Value(now))


def _progress(experiment: Experiment) -> float:
    partly = searching.partly_done(experiment.search)
    with cursor() as asks:
        asks.execute(_REACHED, [experiment.pk, partly])
        rows = asks.fetchall()
    length = _length_in_steps(experiment)
    reached = {str(name): max(said or 0.0, steps / length if length else 0.0) for name, said, steps in rows}
    return searching.progress(experiment.search, reached)


def time_name(searcher: Mapping[str, Any]) -> str:
    """The metric that says how far a trial is, in the unit of the search; empty or "batches": its steps do."""
    length = searcher.get("max_length")
    unit = searcher.get("unit") or (next(iter(length), "") if isinstance(length, dict) else "")
    return str(searcher.get("time_metric") or unit)


def _length_in_steps(experiment: Experiment) -> int | None:
    searcher = experiment.searcher
    if time_name(searcher) not in ("", "batches") or not searching.has_length(searcher):
        return None
    return searching.max_time(searcher)


def _shut_down(experiment: Experiment, operation: searching.Shutdown, actor: str) -> None:
    to, reason = ExperimentState.STOPPING_COMPLETED, Reason.COMPLETED
    if operation.cancel:  # nobody but people cancels a trial
        to, reason = ExperimentState.STOPPING_CANCELED, Reason.KILLED_BY_USER
    elif operation.failure:
        to, reason = ExperimentState.STOPPING_ERROR, Reason.RANK_FAILED
    set_experiment_state(experiment, to, reason=reason, actor=actor)
    finish_if_done(experiment, actor=actor)


def _run_again(experiment: Experiment, operation: searching.Again, actor: str) -> None:
    """A trial that has ended goes back into the queue, its restarts counted anew."""
    rows = experiment.trials.select_related("experiment", "latest_checkpoint")
    trial, resources = rows.get(request_id=operation.request_id), experiment.config["resources"]
    hparams = trial.hparams if operation.hparams is None else operation.hparams
    checkpoint = trial.latest_checkpoint
    steps = checkpoint.steps_completed if checkpoint and checkpoint.trial_id == trial.pk else 0
    rows.filter(pk=trial.pk).update(
        restarts=0, early_exit="", runner_state="", progress=None, steps_completed=steps, hparams=hparams
    )
    Task.objects.filter(pk=trial.task_id).update(
        slots=resources["slots_per_trial"],
        single_host=bool(resources.get("is_single_node")),
        max_time_seconds=resources.get("max_time"),
        only_hosts=resources.get("hosts") or [],
    )
    reason = Reason.ACTIVATED_BY_USER
    set_trial_state(trial, TrialState.ACTIVE, reason=reason, actor=actor, detail={"continued": True})
    jobs.set_task_state(
        trial.task_id, TaskState.WAITING, reason=reason, actor=actor, blocked_by=upload_block(trial)
    )
    if experiment.state == ExperimentState.PAUSED:
        set_trial_state(trial, TrialState.PAUSED, reason=Reason.PAUSED_BY_USER, actor=actor)
        jobs.set_task_state(trial.task_id, TaskState.PAUSED, reason=Reason.PAUSED_BY_USER, actor=actor)


def create_trial(experiment: Experiment, operation: searching.Create, *, actor: str) -> Trial:
    """A trial and its task, waiting in the queue with its experiment's job."""
    resources = experiment.config.get("resources") or {}
    task_id = f"{experiment.pk}.{uuid.UUID(operation.request_id)}"
    task = jobs.create_task(
        job=experiment.job,
        task_id=task_id,
        kind=Task.Kind.TRIAL,
        name="",  # the trial's
        slots=int(resources.get("slots_per_trial", 1)),
        single_host=bool(resources.get("is_single_node")),
        max_time_seconds=resources.get("max_time"),
        only_hosts=resources.get("hosts") or (),
        actor=actor,
    )
    source = sources.of(experiment)
    trial = Trial.objects.create(
        experiment=experiment,
        task=task,
        request_id=operation.request_id,
        state=TrialState.PAUSED if experiment.state == ExperimentState.PAUSED else TrialState.ACTIVE,
        hparams=operation.hparams,
        seed=operation.seed,
        source_checkpoint=source,
        latest_checkpoint=source,
    )
    trial.name_task()
    return trial


# --- a search that its user's program runs (features.md 10.2) ------------------------------------


def custom_events(experiment_id: int) -> list[dict[str, Any]]:
    """What the program has not answered yet, the oldest first; the last says so once the experiment is over.

    Raises Refusal for a search that the server runs.
    """
    experiment = Experiment.objects.get(pk=experiment_id)
    _check_custom(experiment)
    found = custom.events(experiment.search)
    if experiment.state not in GOING_ON:
        over = {"experimentState": f"STATE_{experiment.state}"}
        found.append({"id": experiment.search["custom"]["next"], "experimentInactive": over})
    return found


@transaction.atomic
def operate(experiment_id: int, wanted: list[custom.Wanted], event_id: int, *, actor: str) -> None:
    """Do what the program asks for in answer to an event; once, however often it asks.

    Raises BadSearch for what cannot be done, and Refusal for an experiment that is over.
    """
    experiment = lock(experiment_id)
    _check_custom(experiment)
    if experiment.state not in GOING_ON:
        raise Refusal(f"experiment {experiment_id} is {experiment.state}: its search has ended.", Code.ENDED)
    state = searching.upgraded(experiment.search)
    operations = custom.operate(state, wanted, event_id)
    carry_on(experiment, state, operations, actor=actor)
    announce(f"experiment:{experiment_id}")


def _check_custom(experiment: Experiment) -> None:
    if not custom.is_custom(experiment.search):
        name = experiment.searcher.get("name")
        raise Refusal(
            f"experiment {experiment.pk} has a {name} search, which the server runs; you run only custom searches.",
            Code.CONFLICT,
        )
