"""One rule for where an active trial stands, whoever asks."""

from __future__ import annotations

import pytest

from experiments import phases
from experiments.models import Experiment, Trial
from jobs import transitions
from jobs.models import Allocation
from jobs.states import Reason, StopKind
from tests.rig.world import assigned, make_host, submit_experiment, trial_of

pytestmark = pytest.mark.django_db


def seen(experiment: Experiment) -> set[str]:
    """The phase of the experiment and of its trial, as pages, records and filters have it."""
    trial = trial_of(experiment)
    words = {phases.of_trials([trial])[trial.pk], phases.of_experiments([experiment])[experiment.pk]}
    for rows in (Trial.objects.filter(pk=trial.pk), Experiment.objects.filter(pk=experiment.pk)):
        named = [
            word
            for word in (phases.QUEUED, phases.STARTING, phases.RUNNING)
            if phases.annotated(rows).filter(phases.where(word)).exists()
        ]
        assert len(named) == 1
        words.update(named)
    return words


@pytest.fixture
def attempt() -> tuple[Experiment, Allocation]:
    host, experiment = make_host("gpu1", 1), submit_experiment()
    assert seen(experiment) == {"QUEUED"}
    slots = [slot.pk for slot in host.slots.all()]
    allocation = assigned(
        task_id=trial_of(experiment).task_id,
        placement=[(host.pk, slots)],
        on_sufferance=False,
        actor="scheduler",
    )
    assert seen(experiment) == {"STARTING"}
    return experiment, allocation


def test_what_has_started_runs_until_its_attempt_is_over(attempt: tuple[Experiment, Allocation]) -> None:
    experiment, allocation = attempt
    member = allocation.members.get()
    transitions.member_launched(member.pk, boot_id="b")
    transitions.member_running(member.pk)
    assert seen(experiment) == {"RUNNING"}
    transitions.member_ended(member.pk, code=0, signal=None, reason=Reason.COMPLETED)
    allocation.refresh_from_db()
    assert allocation.state == "TERMINATING"
    assert seen(experiment) == {"RUNNING"}
    transitions.terminate(
        allocation, list(allocation.members.all()), exit_reason=Reason.COMPLETED, exit_code=0
    )
    assert seen(experiment) == {"QUEUED"}


def test_what_is_stopped_before_it_started_is_not_starting(attempt: tuple[Experiment, Allocation]) -> None:
    experiment, allocation = attempt
    transitions.request_stop(allocation.pk, StopKind.PREEMPT, reason=Reason.PREEMPTED, actor="scheduler")
    assert seen(experiment) == {"QUEUED"}
