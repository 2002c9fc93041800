"""The time that a task may run: warned, asked to save, stopped; and what is said about it afterwards."""

from datetime import timedelta

import pytest
from django.conf import LazySettings
from django.utils import timezone

from accounts.refusals import Refusal
from dispatch.passes import pool_pass
from dispatch.runs import intake, settle, stop
from events.models import Event
from experiments import failures
from experiments import transitions as experiments
from experiments.models import Experiment
from experiments.states import ExperimentState, TrialState
from hosts.models import ResourcePool
from hosts.pools import default_pool
from jobs import leaving, transitions
from jobs.models import Allocation, Member
from jobs.states import AllocationState, Reason, StopKind, TaskState
from logs.sentences import sentence
from tests.rig.world import attempt_of, make_host, members_of, submit_experiment, trial_of

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)


def running(max_time: str | int | None = "4h") -> Experiment:
    """An experiment whose attempt has just started."""
    if not ResourcePool.objects.filter(hosts__isnull=False).exists():
        make_host("gpu1", 1)
    experiment = submit_experiment(max_time=max_time)
    start(experiment)
    return experiment


def start(experiment: Experiment) -> None:
    pool_pass.run(default_pool().pk)
    for member in members_of(experiment):
        transitions.member_launched(member.pk, boot_id="b")
        transitions.member_running(member.pk)


def ran(experiment: Experiment, hours: float) -> None:
    """Its attempt has run so long already."""
    Allocation.objects.filter(pk=attempt_of(experiment).pk).update(started_at=timezone.now() - hours * HOUR)


def told(experiment: Experiment) -> None:
    """Its hosts have confirmed that it is to leave, so its time to save counts."""
    leaving.preempt_told(member.pk for member in members_of(experiment))
    stop.escalate()


def end(experiment: Experiment, code: int = 0) -> None:
    for member in Member.objects.filter(allocation=attempt_of(experiment)):
        settle.member_exited(
            member.pk, code=code, signal=None, ended_at=timezone.now().timestamp(), first_failure=None
        )


def test_it_is_warned_once_ahead_of_its_limit(settings: LazySettings) -> None:
    settings.TIME_WARNING_SECONDS = 600
    experiment = running()
    ran(experiment, 3.5)
    stop.watch_limits(timezone.now())
    assert attempt_of(experiment).time_warned_at is None
    ran(experiment, 3.9)
    stop.watch_limits(timezone.now())
    stop.watch_limits(timezone.now())
    warned = Event.objects.filter(reason=Reason.TIME_NEARLY_UP)
    assert [said.text for event in warned if (said := sentence(event))] == [
        "Run 1 has 6 min left of its time limit of 4 h; it will then be stopped."
    ]
    assert attempt_of(experiment).time_warned_at is not None and not attempt_of(experiment).stop_kind


def test_at_its_limit_it_may_save_and_is_then_over_without_a_restart(settings: LazySettings) -> None:
    experiment = running()
    ran(experiment, 4)
    stop.watch_limits(timezone.now())
    attempt = attempt_of(experiment)
    assert attempt.stop_kind == StopKind.PREEMPT and attempt.stop_reason == Reason.TIME_LIMIT
    assert attempt.stop_save_seconds == settings.TIME_LIMIT_SAVE_SECONDS
    transitions.preempt_acknowledged(attempt.pk)
    end(experiment)
    trial = trial_of(experiment)
    experiment.refresh_from_db()
    assert trial.state == TrialState.ERROR and trial.restarts == 0 and trial.task.state == TaskState.ENDED
    assert experiment.state == ExperimentState.ERROR
    assert failures.sentences([trial]) == {
        trial.pk: "Attempt 1: its time limit was reached; its checkpoints are kept."
    }


def test_what_is_being_preempted_has_at_its_limit_no_longer_to_save_than_others(
    settings: LazySettings,
) -> None:
    experiment = running()
    key = attempt_of(experiment).pk
    transitions.request_stop(key, StopKind.PREEMPT, reason=Reason.PREEMPTED, actor="server")
    told(experiment)
    patient = attempt_of(experiment).stop_deadline_at
    stop.watch_limits(timezone.now())
    assert patient and attempt_of(experiment).stop_deadline_at == patient, "its time is not up"
    ran(experiment, 4)
    stop.watch_limits(timezone.now())
    shortened = attempt_of(experiment)
    assert shortened.stop_deadline_at is not None and shortened.stop_reason == Reason.PREEMPTED
    left = shortened.stop_deadline_at - timezone.now()
    assert left <= timedelta(seconds=settings.TIME_LIMIT_SAVE_SECONDS)
    stop.watch_limits(timezone.now())
    assert attempt_of(experiment).stop_deadline_at == shortened.stop_deadline_at, "nor is it ever put off"
    assert Event.objects.filter(subject=key, reason=Reason.TIME_LIMIT).count() == 1
    transitions.preempt_acknowledged(key)
    end(experiment)
    assert trial_of(experiment).state == TrialState.ERROR, "there is no time left for another attempt"


def test_what_does_not_save_in_time_is_stopped() -> None:
    experiment = running()
    ran(experiment, 4)
    stop.watch_limits(timezone.now())
    Allocation.objects.update(stop_deadline_at=timezone.now() - timedelta(seconds=1))
    assert stop.escalate() == 1
    assert attempt_of(experiment).stop_kind == StopKind.STOP
    end(experiment, 143)
    assert trial_of(experiment).state == TrialState.ERROR
    assert attempt_of(experiment).exit_reason == Reason.TIME_LIMIT


def test_what_ends_by_itself_at_the_last_moment_is_completed() -> None:
    experiment = running()
    ran(experiment, 4)
    stop.watch_limits(timezone.now())
    end(experiment)
    assert trial_of(experiment).state == TrialState.COMPLETED


def test_the_limit_is_of_all_attempts_together() -> None:
    experiment = running()
    ran(experiment, 3)
    experiments.pause(experiment.pk, actor="user:ada")
    transitions.preempt_acknowledged(attempt_of(experiment).pk)
    end(experiment)
    experiments.activate(experiment.pk, actor="user:ada")
    start(experiment)
    assert attempt_of(experiment).number == 2
    ran(experiment, 0.5)
    stop.watch_limits(timezone.now())
    assert not attempt_of(experiment).stop_kind
    ran(experiment, 1.01)
    stop.watch_limits(timezone.now())
    assert attempt_of(experiment).stop_reason == Reason.TIME_LIMIT


def test_a_failure_at_its_limit_is_not_tried_again() -> None:
    experiment = running()
    ran(experiment, 4)
    end(experiment, 1)
    trial = trial_of(experiment)
    assert trial.state == TrialState.ERROR and trial.restarts == 0
    assert attempt_of(experiment).state == AllocationState.TERMINATED


def test_nothing_is_watched_without_a_limit_and_a_pool_may_give_one() -> None:
    free = running(max_time=None)
    ran(free, 10_000)
    stop.watch_limits(timezone.now())
    assert not attempt_of(free).stop_kind
    ResourcePool.objects.update(default_max_time_seconds=60, longest_max_time_seconds=3600)
    assert trial_of(submit_experiment()).task.max_time_seconds == 60
    assert trial_of(submit_experiment(max_time="1h")).task.max_time_seconds == 3600


def test_more_than_the_pool_allows_is_refused_with_a_sentence() -> None:
    default_pool()
    ResourcePool.objects.update(longest_max_time_seconds=3600)
    with pytest.raises(Refusal, match=r"resources\.max_time: found 7200 s, allowed: at most 3600 s"):
        submit_experiment(max_time="2h")
    assert not Experiment.objects.exists()


def test_who_asks_should_preempt_is_remembered_once() -> None:
    experiment = running()
    member = members_of(experiment)[0]
    asked = b'{"k": "core", "f": "core.rank0.jsonl", "e": 1, "d": {"type": "preempt_asked"}}\n'
    intake.store(member.pk, 0, asked)
    first = attempt_of(experiment).asked_preempt_at
    assert first is not None
    intake.store(member.pk, len(asked), asked)
    assert attempt_of(experiment).asked_preempt_at == first
