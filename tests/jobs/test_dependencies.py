"""`depends_on`: who waits for whom, what is refused, and what the end of a job means for those that wait for it."""

import uuid

import pytest

from accounts.refusals import Refusal
from commands.config import CommandConfig, check
from dispatch.passes import pool_pass
from experiments import continuing
from experiments import transitions as experiments
from experiments.config import ConfigError, parse
from experiments.models import Experiment
from experiments.states import ExperimentState
from hosts.models import PoolChange
from hosts.pools import default_pool
from jobs import dependencies
from jobs.models import Dependency, Job, Task
from jobs.states import JobState, Reason, TaskState
from tests.rig.world import CONFIG, make_host, plan_of, submit_experiment, trial_of

pytestmark = pytest.mark.django_db


def ended(experiment: Experiment, state: ExperimentState) -> None:
    """Its work is over, as it is when its trial has ended."""
    row = experiments.lock(experiment.pk)
    assert experiments.set_experiment_state(row, state, reason=Reason.COMPLETED, actor="system")
    Task.objects.filter(job_id=row.job_id).update(state=TaskState.ENDED)


def waiting_for(*entries: str) -> Experiment:
    return submit_experiment(depends_on=entries)


def state_of(experiment: Experiment) -> str:
    return Task.objects.get(job_id=experiment.job_id).state


def why(experiment: Experiment) -> tuple[str, str]:
    reason = plan_of(default_pool())["waits"][trial_of(experiment).task_id]
    return reason["code"], reason["sentence"]


def test_a_job_starts_once_the_one_that_it_waits_for_has_succeeded() -> None:
    make_host("gpu1", 4)
    first = submit_experiment()
    second = waiting_for(f"{first.pk}")
    pool_pass.run(default_pool().pk)
    assert (state_of(first), state_of(second)) == (TaskState.RUNNING, TaskState.WAITING)
    assert why(second) == ("depends", f"waits for exp {first.pk} to succeed")
    unknown = plan_of(default_pool())["unknown"][trial_of(second).task_id]
    assert f"exp {first.pk} to succeed" in unknown
    PoolChange.objects.all().delete()
    ended(first, ExperimentState.COMPLETED)
    assert PoolChange.objects.filter(pool=default_pool()).exists(), "the next pass looks at those that waited"
    pool_pass.run(default_pool().pk)
    assert state_of(second) == TaskState.RUNNING


@pytest.mark.parametrize(
    ("condition", "state", "starts"),
    [
        ("success", ExperimentState.ERROR, False),
        ("success", ExperimentState.CANCELED, False),
        ("end", ExperimentState.ERROR, True),
        ("end", ExperimentState.COMPLETED, True),
        ("failure", ExperimentState.ERROR, True),
        ("failure", ExperimentState.CANCELED, True),
        ("failure", ExperimentState.COMPLETED, False),
    ],
)
def test_each_end_meets_the_conditions_that_it_should(
    condition: str, state: ExperimentState, starts: bool
) -> None:
    make_host("gpu1", 4)
    first = submit_experiment()
    second = waiting_for(f"{first.pk}:{condition}")
    ended(first, state)
    pool_pass.run(default_pool().pk)
    assert (state_of(second) == TaskState.RUNNING) is starts
    if not starts:
        code, sentence = why(second)
        assert code == "never_met"
        did = "did not succeed" if condition == "success" else "did not fail"
        assert sentence == f"depends on the {condition} of exp {first.pk}, which {did}"


def test_a_job_that_is_continued_and_succeeds_lets_those_start_that_waited_in_vain() -> None:
    make_host("gpu1", 4)
    first = submit_experiment()
    second = waiting_for(f"{first.pk}")
    ended(first, ExperimentState.ERROR)
    pool_pass.run(default_pool().pk)
    assert why(second)[0] == "never_met"
    Job.objects.filter(pk=first.job_id).update(state=JobState.ACTIVE, succeeded=None)
    Experiment.objects.filter(pk=first.pk).update(state=ExperimentState.ACTIVE)
    PoolChange.objects.create(pool=default_pool())
    pool_pass.run(default_pool().pk)
    assert why(second)[0] == "depends"
    ended(first, ExperimentState.COMPLETED)
    pool_pass.run(default_pool().pk)
    assert state_of(second) == TaskState.RUNNING


def test_what_was_met_stays_met_when_the_other_job_is_continued() -> None:
    first = submit_experiment()
    second = waiting_for(f"{first.pk}:end")
    ended(first, ExperimentState.ERROR)
    Job.objects.filter(pk=first.job_id).update(state=JobState.ACTIVE, succeeded=None)
    make_host("gpu1", 1)
    pool_pass.run(default_pool().pk)
    assert state_of(second) == TaskState.RUNNING


def test_a_job_waits_for_several_and_for_commands_by_id() -> None:
    first, other = submit_experiment(), submit_experiment()
    second = submit_experiment(depends_on=[str(first.pk), f"{other.job_id}:end"])
    rows = Dependency.objects.filter(job_id=second.job_id).order_by("pk")
    assert [(row.label, row.condition, row.met_at) for row in rows] == [
        (f"exp {first.pk}", "success", None),
        (f"exp {other.pk}", "end", None),
    ]
    pool_pass.run(default_pool().pk)
    assert why(second)[1] == f"waits for exp {first.pk} to succeed and exp {other.pk} to end"


def test_the_one_that_was_waited_for_is_deleted() -> None:
    first = submit_experiment()
    second = waiting_for(f"{first.pk}:end")
    Dependency.objects.filter(job_id=second.job_id).update(on=None)
    pool_pass.run(default_pool().pk)
    assert why(second) == ("never_met", f"depends on the end of exp {first.pk}, which was deleted")


def test_what_does_not_exist_or_can_never_be_met_is_refused() -> None:
    with pytest.raises(Refusal, match="There is no experiment 4711 to wait for") as caught:
        waiting_for("4711")
    assert caught.value.field == "depends_on"
    with pytest.raises(Refusal, match="There is no job or command"):
        waiting_for(str(uuid.uuid4()))
    first = submit_experiment()
    ended(first, ExperimentState.ERROR)
    with pytest.raises(
        Refusal, match=f"exp {first.pk} did not succeed, so a job that waits for its success would"
    ):
        waiting_for(str(first.pk))
    assert dependencies.found([f"{first.pk}:failure"])[0].label == f"exp {first.pk}"
    make_host("gpu1", 1)
    late = waiting_for(f"{first.pk}:end")
    pool_pass.run(default_pool().pk)
    assert state_of(late) == TaskState.RUNNING, "what has ended already is not waited for"
    assert Experiment.objects.count() == 2


def test_a_continued_job_may_wait_for_others_but_not_in_a_circle() -> None:
    first = submit_experiment()
    second = waiting_for(f"{first.pk}:end")
    ended(first, ExperimentState.ERROR)
    third = waiting_for(str(second.pk))
    ended(second, ExperimentState.ERROR)
    with pytest.raises(Refusal, match=f"exp {first.pk} did not succeed"):
        continuing.go_on(second.pk, {"depends_on": [first.pk]}, role="editor", actor="user:ada")
    with pytest.raises(Refusal, match=f"exp {third.pk} already waits for this job, so neither would start"):
        continuing.go_on(second.pk, {"depends_on": [third.pk]}, role="editor", actor="user:ada")
    fourth = submit_experiment()
    continuing.go_on(second.pk, {"depends_on": [fourth.pk]}, role="editor", actor="user:ada")
    assert Dependency.objects.get(job_id=second.job_id).label == f"exp {fourth.pk}"


@pytest.mark.parametrize(
    "wrong",
    [
        "depends_on: 12",
        "depends_on: [0x]",
        "depends_on: ['12:done']",
        "depends_on: [true]",
        "depends_on: [aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa]",
    ],
)
def test_a_wrong_list_is_a_sentence(wrong: str) -> None:
    text = CONFIG.format(name="x", slots=1, max_restarts=0, priority="", max_time="", hosts="")
    with pytest.raises(ConfigError, match="depends_on"):
        parse(f"{text}\n{wrong}\n")


def test_entries_are_stored_with_their_condition_and_once() -> None:
    config: CommandConfig = check({"entrypoint": "true", "depends_on": [12, "12:success", "13:end"]})
    assert config.effective()["depends_on"] == ["12:success", "13:end"]
