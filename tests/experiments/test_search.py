"""A search hears of every end of its trials, so that an experiment always comes to its own."""

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dispatch.passes import pool_pass
from dispatch.runs import settle
from events.models import Event
from experiments import metric_reports, outcomes, reports, search, submit
from experiments import transitions as experiments
from experiments.config import parse
from experiments.models import Experiment, Trial
from experiments.states import ExperimentState, TrialState
from jobs import transitions as jobs
from jobs.models import Member
from jobs.states import Reason, StopKind
from shown import timeline
from submissions import contexts
from tests.rig.world import make_host, make_project, make_user

pytestmark = pytest.mark.django_db

RANDOM = """
name: search
entrypoint: python3 train.py
hyperparameters: {lr: {type: double, minval: 0, maxval: 1}}
searcher: {name: random, metric: loss, max_trials: %d, max_concurrent_trials: %d}
resources: {slots_per_trial: 1}
"""
HALVING = """
name: halving
entrypoint: python3 train.py
hyperparameters: {lr: {type: double, minval: 0, maxval: 1}}
searcher: {name: async_halving, metric: loss, time_metric: batches, max_time: 16, num_rungs: 3, max_trials: 6,
           max_concurrent_trials: 2}
resources: {slots_per_trial: 1}
"""


def submitted(text: str) -> Experiment:
    return submit.create(
        owner=make_user(),
        config=parse(text),
        original=text,
        context=contexts.empty(),
        project=make_project(),
        parent=None,
        activate=True,
        idempotency_key=None,
        actor="user:ada",
    )


def trials(experiment: Experiment) -> list[Trial]:
    return list(experiment.trials.select_related("experiment", "task").order_by("pk"))


def story(experiment: Experiment) -> dict[str, Any]:
    """All that a search has done, but for its clock; of two experiments with the same seed it can be compared."""
    experiment.refresh_from_db()
    rows = trials(experiment)
    state = experiment.search
    for rung in (rung for bracket in state["brackets"] for rung in bracket["rungs"]):
        rung["entries"] = [[metric, number, outcome] for metric, number, _, outcome in rung["entries"]]
    number = {str(trial.pk): place for place, trial in enumerate(rows)}
    events = Event.objects.filter(experiment_id=experiment.pk).order_by("id")
    return {
        "search": state,
        "progress": experiment.progress,
        "state": experiment.state,
        "trials": [(str(row.request_id), row.hparams, row.seed, row.state, row.task.state) for row in rows],
        "events": [(each.kind, number.get(each.subject), each.from_state, each.to_state, each.reason, each.detail)
                   for each in events],
    }  # fmt: skip


def end(trial: Trial, code: int = 0) -> None:
    member = Member.objects.get(allocation__task=trial.task, ended_at=None)
    settle.member_exited(member.pk, code=code, signal=None, ended_at=None, first_failure=None)


def validated(trial: Trial, loss: float, steps: int) -> None:
    experiment = experiments.lock(trial.experiment_id)
    metric_reports.tell(experiment, trial, [search.Validation(loss, steps)])


def test_a_trial_killed_while_it_waits_does_not_keep_its_experiment_open() -> None:
    make_host("gpu0", 1)
    experiment = submitted(RANDOM % (2, 2))
    pool_pass.run(experiment.job.pool_id)
    running, waiting = trials(experiment)
    outcomes.kill_trial(waiting.pk, actor="user:ada")
    end(running)
    experiment.refresh_from_db()
    assert experiment.state == ExperimentState.COMPLETED


def test_killing_the_only_living_trial_lets_the_search_make_the_next() -> None:
    experiment = submitted(RANDOM % (3, 1))
    outcomes.kill_trial(trials(experiment)[0].pk, actor="user:ada")
    experiment.refresh_from_db()
    assert experiment.state == ExperimentState.ACTIVE and len(trials(experiment)) == 2


def test_an_experiment_whose_trials_were_all_killed_is_canceled() -> None:
    make_host("gpu0", 1)
    experiment = submitted(RANDOM % (2, 2))
    pool_pass.run(experiment.job.pool_id)
    for trial in trials(experiment):
        outcomes.kill_trial(trial.pk, actor="user:ada")
    end(trials(experiment)[0], 137)
    experiment.refresh_from_db()
    assert experiment.state == ExperimentState.CANCELED


def test_a_validation_that_comes_while_the_experiment_is_canceled_makes_no_new_trial() -> None:
    make_host("gpu0", 2)
    experiment = submitted(HALVING)
    pool_pass.run(experiment.job.pool_id)
    first, second = trials(experiment)
    experiments.cancel(experiment.pk, actor="user:ada")
    for trial in (first, second):
        trial.refresh_from_db()
        trial.experiment = experiment = experiments.lock(experiment.pk)
        for batches in (1, 4, 16):
            data = {
                "group": "validation",
                "steps_completed": batches,
                "metrics": {"loss": 1.0, "batches": batches},
            }
            (validation,) = metric_reports.store(experiment, trial, [metric_reports.report_of(trial, data)])
            assert validation
            metric_reports.tell(experiment, trial, [validation])
    assert len(trials(experiment)) == 2
    end(first)
    end(second)
    experiment.refresh_from_db()
    assert experiment.state == ExperimentState.CANCELED


def test_a_killed_trial_is_canceled_by_who_killed_it_even_if_its_attempt_was_stopped_before() -> None:
    make_host("gpu0", 1)
    experiment = submitted(RANDOM % (1, 1))
    pool_pass.run(experiment.job.pool_id)
    trial = trials(experiment)[0]
    attempt = trial.task.allocations.get()
    jobs.request_stop(attempt.pk, StopKind.STOP, reason=Reason.HOST_DISABLED, actor="server")
    outcomes.kill_trial(trial.pk, actor="user:ada")
    end(trial, 137)
    trial.refresh_from_db()
    experiment.refresh_from_db()
    assert (trial.state, experiment.state) == (TrialState.CANCELED, ExperimentState.CANCELED)


@pytest.mark.parametrize(
    ("searcher", "values", "time"),
    [
        ({"max_length": 8}, {"loss": 1.0}, None),
        ({"max_length": {"epochs": 8}}, {"loss": 1.0, "epoch": 2.5}, 2.5),
        ({"max_length": {"epochs": 8}}, {"loss": 1.0, "epochs": 3, "epoch": 2.5}, 3),
        ({"max_length": {"batches": 8}}, {"loss": 1.0}, None),
        ({"time_metric": "hours", "max_time": 8}, {"hours": 7}, 7),
    ],
)
def test_rungs_are_measured_in_the_unit_of_the_search(
    searcher: dict[str, object], values: dict[str, float], time: float | None
) -> None:
    assert metric_reports._time(searcher, values) == time


def test_a_time_without_end_brings_a_trial_to_no_rung() -> None:
    time = metric_reports._time({"time_metric": "hours", "max_time": 8}, {"hours": "Infinity"})
    assert time is not None and math.isnan(time)
    make_host("gpu0", 2)
    experiment = submitted(HALVING)
    trial, _ = trials(experiment)
    metric_reports.tell(experiments.lock(experiment.pk), trial, [search.Validation(0.5, 4, time)])
    experiment.refresh_from_db()
    assert experiment.search["told"] == 0


def test_a_trial_is_parked_at_its_rung_and_comes_back_when_it_is_promoted() -> None:
    make_host("gpu0", 2)
    promoting = HALVING.replace("time_metric: batches, max_time: 16", "max_length: 16, divisor: 2")
    experiment = submitted(promoting.replace("max_trials: 6", "max_trials: 4"))
    pool_pass.run(experiment.job.pool_id)
    one, two = trials(experiment)
    validated(one, 0.9, 4)
    one = trials(experiment)[0]
    assert one.state == TrialState.PAUSED and len(trials(experiment)) == 3, "another has its place"
    member = Member.objects.get(allocation__task=one.task)
    assert (member.allocation.stop_kind, member.allocation.stop_reason) == (
        StopKind.PREEMPT,
        Reason.SEARCHER_PARKED,
    )
    jobs.preempt_acknowledged(member.allocation_id)  # it has saved: code 0 is not the end of its training
    end(one)
    one = trials(experiment)[0]
    assert (one.state, one.task.state, one.restarts) == (TrialState.PAUSED, "PAUSED", 0)
    experiments.pause(experiment.pk, actor="user:ada")
    experiments.activate(experiment.pk, actor="user:ada")
    assert trials(experiment)[0].task.state == "PAUSED", "it is its search that wakes it"
    validated(two, 0.5, 4)
    outcomes.kill_trial(trials(experiment)[2].pk, actor="user:ada")
    outcomes.kill_trial(trials(experiment)[3].pk, actor="user:ada")
    one = trials(experiment)[0]
    assert (one.state, one.task.state) == (TrialState.ACTIVE, "WAITING"), "the second best of four"
    events = Event.objects.filter(kind=Event.Kind.TRIAL, subject=str(one.pk)).order_by("id")
    told = [(event.reason, event.detail["place"], event.detail["among"]) for event in events if event.detail]
    assert told == [(Reason.SEARCHER_PARKED, 1, 1), (Reason.SEARCHER_PROMOTED, 2, 4)]
    entries = timeline.of_experiment(
        experiment.pk, {each.task_id: each.pk for each in trials(experiment)}, "batches"
    )
    told_to_people = [(entry.sentence, entry.actor) for entry in entries]
    judged = "2nd of 4 at rung 1 (4 batches), 0.9; the best 2 are promoted"
    assert (f"Trial {one.pk}: active, promoted by the searcher ({judged})", "ada") in told_to_people
    attempts = [(words, actor) for words, actor in told_to_people if "attempt" in words.casefold()]
    assert (
        f"Trial {one.pk}, attempt 1 is being stopped, parked at a rung of its search",
        "the searcher",
    ) in attempts
    assert all(words.startswith("Trial ") for words, _ in attempts), "of which trial"


#: (of which trial, its (loss, steps further)): what one batch of a runner brings after an absence
BACKLOG = st.tuples(st.integers(0, 7), st.lists(st.tuples(st.floats(0, 1), st.integers(1, 6)), max_size=6))


@settings(max_examples=8, deadline=None)
@given(stop_once=st.booleans(), backlogs=st.lists(BACKLOG, min_size=3, max_size=10))
def test_a_backlog_of_validations_is_heard_as_if_they_had_come_one_by_one(
    stop_once: bool, backlogs: list[tuple[int, list[tuple[float, int]]]]
) -> None:
    text = f"{HALVING.rstrip()}\nreproducibility: {{experiment_seed: 7}}\n"
    text = text.replace("num_rungs", f"divisor: 2, stop_once: {str(stop_once).lower()}, num_rungs")
    at_once, one_by_one = submitted(text), submitted(text)
    reached: dict[int, int] = {}
    for which, steps in backlogs:
        place, heard = which % len(trials(at_once)), []
        for loss, more in steps:
            reached[place] = reached.get(place, 0) + more
            heard.append(search.Validation(loss, reached[place]))
        metric_reports.tell(experiments.lock(at_once.pk), trials(at_once)[place], heard)
        for each in heard:
            metric_reports.tell(experiments.lock(one_by_one.pk), trials(one_by_one)[place], [each])
        assert story(at_once) == story(one_by_one)


def reported(trial: Trial, steps: int, metrics: dict[str, Any]) -> None:
    experiment = trial.experiment = experiments.lock(trial.experiment_id)
    data = {"group": "validation", "steps_completed": steps, "metrics": metrics}
    told = metric_reports.store(experiment, trial, [metric_reports.report_of(trial, data)])
    metric_reports.tell(experiment, trial, [each for each in told if each])


@pytest.mark.parametrize(("metrics", "lacks"), [({"batches": 4}, "loss"), ({"loss": 0.5}, "batches")])
def test_a_search_that_compares_ends_in_error_when_a_validation_lacks_what_it_compares_by(
    metrics: dict[str, float], lacks: str
) -> None:
    make_host("gpu0", 1)
    experiment = submitted(HALVING)
    pool_pass.run(experiment.job.pool_id)
    running = trials(experiment)[0]
    reported(running, 4, metrics)
    told = Event.objects.get(subject=str(running.pk), reason="alert").detail
    assert told["title"] == f"The validation at step 4 lacks {lacks}" and told["level"] == "ERROR"
    end(running, 0)
    experiment.refresh_from_db()
    assert experiment.state == ExperimentState.ERROR and len(trials(experiment)) == 2
    assert {trial.state for trial in trials(experiment)} == {TrialState.ERROR}


def test_a_search_that_compares_nothing_goes_on_without_its_metric() -> None:
    experiment = submitted(RANDOM % (2, 2))
    reported(trials(experiment)[0], 4, {"accuracy": 0.5})
    experiment.refresh_from_db()
    assert experiment.state == ExperimentState.ACTIVE


def test_a_loss_that_is_no_number_any_more_counts_as_the_worst_of_its_rung() -> None:
    experiment = submitted(HALVING)
    good, diverged = trials(experiment)
    reported(good, 1, {"loss": 0.5, "batches": 1})
    reported(diverged, 1, {"loss": math.nan, "batches": 1})
    states = [trial.state for trial in trials(experiment)[:2]]
    assert states == [TrialState.ACTIVE, TrialState.COMPLETED], "which holds no slots, so it has ended"
    experiment.refresh_from_db()
    assert experiment.best_trial_id == good.pk


ADAPTIVE = """
name: adaptive
entrypoint: python3 train.py
hyperparameters: {lr: {type: double, minval: 0, maxval: 1}}
searcher: {name: adaptive_asha, metric: loss, max_length: {batches: 3000}, max_trials: 16, max_concurrent_trials: 4}
resources: {slots_per_trial: 1}
"""


def progress(experiment: Experiment) -> float:
    experiment.refresh_from_db()
    return float(experiment.progress or 0.0)


def trained(trial: Trial, steps: int) -> None:
    """Reports training metrics, and no validation."""
    trial.refresh_from_db()
    trial.experiment = experiments.lock(trial.experiment_id)
    report = {"group": "training", "steps_completed": steps, "metrics": {"loss": 1.0}}
    metric_reports.store(trial.experiment, trial, [metric_reports.report_of(trial, report)])


def test_training_without_a_validation_is_progress_of_a_search_of_many_trials() -> None:
    experiment = submitted(ADAPTIVE)
    seen = [progress(experiment)]
    assert seen == [0.0]
    for steps in (1, 100, 1900, 3000):
        trained(trials(experiment)[0], steps)
        seen.append(progress(experiment))
    assert seen == sorted(set(seen)) and seen[-1] > 0.1
    trial = trials(experiment)[1]
    reports.progress_reported(experiment, trial, 0.5)
    assert progress(experiment) > seen[-1]


@pytest.mark.parametrize(
    "text", [ADAPTIVE, HALVING.replace("num_rungs: 3", "num_rungs: 3, stop_once: false")]
)
def test_progress_of_a_search_never_goes_back_although_trials_are_promoted(text: str) -> None:
    experiment = submitted(text)
    longest = {"adaptive": 3000, "halving": 16}[experiment.name]
    steps: dict[int, int] = {}
    most = 0.0
    while experiment.state == ExperimentState.ACTIVE:
        living = [trial for trial in trials(experiment) if trial.state == TrialState.ACTIVE]
        trial = living[len(steps) % len(living)]
        steps[trial.pk] = min(longest, steps.get(trial.pk, 0) + longest // 16)
        validated(trial, 1 / trial.pk, steps[trial.pk])
        assert 0 < progress(experiment) >= most
        most = progress(experiment)
    assert most == 1.0


def test_a_task_is_called_by_its_trials_own_id_which_no_other_experiment_has() -> None:
    make_host("gpu1", 2)
    submitted(RANDOM % (2, 2))
    submitted(RANDOM % (2, 2))
    trials = Trial.objects.select_related("task")
    assert len(trials) == 4
    assert [each.task.name for each in trials] == [
        f"Trial {each.pk} (Experiment {each.experiment_id})" for each in trials
    ]
