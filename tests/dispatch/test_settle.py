"""What follows from an end: done, once more from the checkpoint, or over with the first cause."""

import json
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.conf import LazySettings
from django.utils import timezone

from dispatch.passes import pool_pass
from dispatch.runs import intake, reconcile, settle
from events import presence
from events.models import Event
from experiments import transitions as experiments
from experiments.models import Experiment
from experiments.states import ExperimentState, TrialState
from hosts import registry
from hosts.models import Host
from hosts.pools import default_pool
from jobs import queue_edits, time_limits, transitions
from jobs.models import Allocation, Member, SlotHold, Task, UsageRecord
from jobs.states import AllocationState, MemberState, Reason, StopKind, TaskState
from logs import read, sentences, why_stopped
from logs import store as log_store
from shown import verdicts
from tests.rig.world import attempt_of, make_host, members_of, plan_of, submit_experiment, trial_of

Stop = Callable[..., Experiment]
pytestmark = pytest.mark.django_db


def running(slots: int = 2, hosts: int = 1, **more: int) -> Experiment:
    """An experiment whose trial runs on `hosts` hosts."""
    for index in range(hosts):
        make_host(f"gpu{index}", slots // hosts)
    experiment = submit_experiment(slots=slots, **more)
    pool_pass.run(experiment.job.pool_id)
    for member in members_of(experiment):
        transitions.member_launched(member.pk, boot_id="boot")
        transitions.member_running(member.pk)
    return experiment


def end(member: Member, exit_code: int | None, **failure: Any) -> None:
    """`t`: when the rank failed, in microseconds after the attempt's begin."""
    if failure:
        failure["t"] = member.allocation.assigned_at.timestamp() + failure["t"] / 1e6
    settle.member_exited(
        member.pk,
        code=exit_code,
        signal=None,
        ended_at=100.0,
        first_failure=dict(failure) if failure else None,
    )


def test_exit_0_completes_trial_and_experiment_and_frees_the_slots() -> None:
    experiment = running()
    end(members_of(experiment)[0], 0)
    experiment.refresh_from_db()
    assert experiment.state == ExperimentState.COMPLETED
    assert trial_of(experiment).state == TrialState.COMPLETED
    assert not SlotHold.objects.filter(released_at=None).exists()


def test_the_log_has_the_servers_last_lines_when_the_end_is_shown() -> None:
    experiment = running()
    task_id = trial_of(experiment).task_id
    end(members_of(experiment)[0], 0)
    assert log_store.unmerged([task_id]) == []
    last = read.tail(task_id, read.Filters(), 1)
    assert [line.text for line in last] == ["The task has ended."]


@pytest.mark.survive(43)
def test_a_line_that_cannot_be_written_keeps_no_run_from_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = running()
    task_id = trial_of(experiment).task_id
    with monkeypatch.context() as broken:
        broken.setattr(log_store, "sentence", lambda event, task: 1 / 0)
        end(members_of(experiment)[0], 0)
    assert trial_of(experiment).state == TrialState.COMPLETED and log_store.unmerged([task_id]) == [task_id]
    reconcile.merge_event_lines()
    assert log_store.unmerged([task_id]) == []


@pytest.mark.survive(11)
def test_a_failing_rank_stops_its_gang_and_is_the_one_that_is_named() -> None:
    experiment = running(slots=4, hosts=2, max_restarts=0)
    first, second = members_of(experiment)
    end(second, 3, rank=2, code=3, signal=None, t=50.0)
    attempt = attempt_of(experiment)
    assert attempt.stop_kind == StopKind.STOP and attempt.stop_reason == Reason.PEER_ENDED
    end(first, 143, rank=0, code=143, signal=15, t=51.0)
    attempt.refresh_from_db()
    assert attempt.exit_reason == Reason.RANK_FAILED
    assert (
        attempt.exit_detail["rank"] == 2 and attempt.exit_detail["host"] == "gpu1" and attempt.exit_code == 3
    )
    experiment.refresh_from_db()
    assert experiment.state == ExperimentState.ERROR


@pytest.mark.survive(11)
def test_the_earliest_failure_is_named_even_if_a_peer_reports_first() -> None:
    experiment = running(slots=4, hosts=2, max_restarts=0)
    first, second = members_of(experiment)
    end(first, 1, rank=0, code=1, signal=None, t=60.0)
    end(second, 3, rank=3, code=3, signal=None, t=59.5)
    assert attempt_of(experiment).exit_detail["rank"] == 3
    assert attempt_of(experiment).exit_code == 3


def test_a_failure_is_tried_again_until_max_restarts() -> None:
    experiment = running(max_restarts=1)
    end(members_of(experiment)[0], 1)
    trial = trial_of(experiment)
    assert trial.restarts == 1 and trial.task.state == TaskState.WAITING
    pool_pass.run(experiment.job.pool_id)
    assert attempt_of(experiment).number == 2
    end(members_of(experiment)[0], 1)
    trial.refresh_from_db()
    assert trial.state == TrialState.ERROR and trial.restarts == 1


def fails_with(experiment: Experiment, host: str, cause: str, steps: int) -> None:
    """Start the next attempt on this host and let its rank die of an exception."""
    Host.objects.update(draining=True)
    Host.objects.filter(name=host).update(draining=False)
    pool_pass.run(experiment.job.pool_id)
    [member] = members_of(experiment)
    trial_of(experiment).__class__.objects.update(steps_completed=steps)
    lines = [
        "Traceback (most recent call last):",
        '  File "train.py", line 3, in <module>',
        "    main()",
        cause,
    ]
    records: list[dict[str, Any]] = [
        {"k": "state", "t": 1.0, "state": "running"},
        {"k": "lines", "f": "rank0.stderr", "e": 1, "t": 1.0, "r": 0, "s": "stderr", "m": "\n".join(lines)},
        {"k": "exit", "t": 2.0, "code": 1, "signal": None, "stopped": False,
         "first_failure": {"rank": 0, "code": 1, "signal": None, "t": 2.0}},
    ]  # fmt: skip
    intake.store(member.pk, 0, b"".join(json.dumps(record).encode() + b"\n" for record in records))


def on_two_hosts(failures: list[tuple[str, str, int]]) -> Experiment:
    for name in ("gpu1", "gpu2"):
        make_host(name, 1)
    experiment = submit_experiment(max_restarts=5)
    for host, cause, steps in failures:
        fails_with(experiment, host, cause, steps)
    return experiment


def test_the_third_failure_of_one_kind_on_different_hosts_is_the_last() -> None:
    at = "KeyError: 'loss' of 0x{:x}"
    failures = [("gpu1", at.format(1), 7), ("gpu1", at.format(22), 7), ("gpu2", at.format(333), 7)]
    experiment = on_two_hosts(failures)
    trial = trial_of(experiment)
    assert (trial.state, trial.restarts) == (TrialState.ERROR, 2)
    assert why_stopped.of_attempt(Allocation.objects.get(number=3)).sentences[-1] == (
        "Not retried: the last 3 attempts failed of the same exception at step 7, on gpu1 and gpu2. "
        "Fix its code or data, then continue it."
    )


@pytest.mark.parametrize(
    "third",
    [
        ("gpu1", "KeyError: 'loss'", 7),  # never elsewhere: it may be the host
        ("gpu2", "KeyError: 'loss'", 8),
        ("gpu2", "ValueError: 'loss'", 7),
        ("gpu2", "ValueError: \x00 \udcff", 7),
        ("gpu2", "RuntimeError: Connection closed by peer [10.0.0.1]:4711", 7),
    ],
)
def test_failures_that_differ_are_tried_again(third: tuple[str, str, int]) -> None:
    experiment = on_two_hosts([("gpu1", "KeyError: 'loss'", 7)] * 2 + [third])
    assert trial_of(experiment).task.state == TaskState.WAITING and trial_of(experiment).restarts == 3


def test_what_fails_before_its_first_step_is_tried_again() -> None:
    """A download may fail for a while, wherever it is tried."""
    experiment = on_two_hosts([(host, "OSError: timed out", 0) for host in ("gpu1", "gpu2", "gpu1")])
    assert trial_of(experiment).restarts == 3


def test_failures_of_one_kind_may_be_tried_as_often_as_max_restarts_says(settings: LazySettings) -> None:
    settings.SAME_FAILURES = 0
    experiment = on_two_hosts([(host, "KeyError: 'loss'", 7) for host in ("gpu1", "gpu2", "gpu1", "gpu2")])
    assert trial_of(experiment).restarts == 4


def test_a_pause_that_was_acknowledged_rests_and_activate_queues_again() -> None:
    experiment = running()
    experiments.pause(experiment.pk, actor="user:ada")
    attempt = attempt_of(experiment)
    assert attempt.stop_kind == StopKind.PREEMPT
    transitions.preempt_acknowledged(attempt.pk)
    end(members_of(experiment)[0], 0)
    trial = trial_of(experiment)
    assert trial.state == TrialState.PAUSED and trial.task.state == TaskState.PAUSED and trial.restarts == 0
    experiments.activate(experiment.pk, actor="user:ada")
    pool_pass.run(experiment.job.pool_id)
    assert attempt_of(experiment).number == 2


def test_exit_0_without_acknowledging_the_pause_is_the_end() -> None:
    experiment = running()
    experiments.pause(experiment.pk, actor="user:ada")
    end(members_of(experiment)[0], 0)
    assert trial_of(experiment).state == TrialState.COMPLETED


def test_activate_while_stopping_queues_again_when_the_attempt_has_ended() -> None:
    experiment = running()
    experiments.pause(experiment.pk, actor="user:ada")
    experiments.activate(experiment.pk, actor="user:ada")
    transitions.preempt_acknowledged(attempt_of(experiment).pk)
    end(members_of(experiment)[0], 0)
    assert trial_of(experiment).task.state == TaskState.WAITING


@pytest.mark.parametrize(("stop", "code"), [(experiments.cancel, 0), (experiments.kill, 137)])
def test_cancel_and_kill_end_as_canceled_whatever_the_exit_code(stop: Stop, code: int) -> None:
    experiment = running()
    stop(experiment.pk, actor="user:ada")
    end(members_of(experiment)[0], code)
    experiment.refresh_from_db()
    assert experiment.state == ExperimentState.CANCELED


def test_cancel_of_a_waiting_experiment_ends_it_at_once() -> None:
    experiment = submit_experiment()
    experiments.cancel(experiment.pk, actor="user:ada")
    experiment.refresh_from_db()
    assert experiment.state == ExperimentState.CANCELED
    assert trial_of(experiment).task.state == TaskState.ENDED


def test_a_lost_host_is_no_restart() -> None:
    experiment = running(slots=4, hosts=2)
    first, second = members_of(experiment)
    settle.member_over(second.pk, reason=Reason.HOST_LOST)
    end(first, 143)
    trial = trial_of(experiment)
    assert trial.restarts == 0 and trial.task.state == TaskState.WAITING
    assert attempt_of(experiment).exit_reason == Reason.HOST_LOST


@pytest.mark.survive(6, 20)
def test_a_run_whose_record_came_before_the_answer_of_its_launch_can_be_found_gone() -> None:
    make_host("gpu0", 1)
    experiment = submit_experiment(slots=1)
    pool_pass.run(experiment.job.pool_id)
    transitions.member_running(members_of(experiment)[0].pk)
    [member] = members_of(experiment)
    reconcile._settle(member, {"state": "absent"}, "boot", presence.database_now())
    assert attempt_of(experiment).exit_reason == Reason.RUN_VANISHED
    assert not SlotHold.objects.filter(released_at=None).exists()


@pytest.mark.survive(38)
def test_a_gang_of_three_that_loses_a_host_ends_by_that_loss_and_starts_again_elsewhere() -> None:
    experiment = running(slots=6, hosts=3, max_restarts=0)
    first, second, third = members_of(experiment)
    end(second, 1, rank=2, code=1, signal=None, t=50.0)
    end(first, 143, rank=0, code=143, signal=15, t=51.0)
    held = SlotHold.objects.filter(released_at=None)
    assert set(held.values_list("member", flat=True)) == {third.pk}, "the others' slots are free at once"
    smaller = submit_experiment(slots=2)
    pool_pass.run(experiment.job.pool_id)
    assert attempt_of(smaller).members.get().host_id != third.host_id
    attempt = attempt_of(experiment)
    assert attempt.number == 1 and attempt.state == AllocationState.TERMINATING, "silence ends nothing"

    registry.declare_lost(third.host_id, actor="user:admin")
    reconcile.host_lost(third.host_id)
    attempt.refresh_from_db()
    trial = trial_of(experiment)
    assert (attempt.exit_reason, trial.restarts, trial.task.state) == (Reason.HOST_LOST, 0, TaskState.WAITING)
    assert why_stopped.of_attempt(attempt).sentences[0] == "gpu2 was declared lost by admin."
    for name in ("gpu3", "gpu4"):
        make_host(name, 2)
    Task.objects.update(not_before=None)
    pool_pass.run(experiment.job.pool_id)
    hosts = {member.host.name for member in members_of(experiment)}
    assert attempt_of(experiment).number == 2 and len(hosts) == 3 and "gpu2" not in hosts


@pytest.mark.survive(8)
def test_an_end_without_a_code_after_the_hosts_restart_is_no_restart_of_the_trial() -> None:
    experiment = running(slots=4, hosts=2, max_restarts=0)
    first, second = members_of(experiment)
    end(first, 1, rank=0, code=1, signal=None, t=50.0)  # it lost its peer
    settle.member_exited(
        second.pk, code=None, signal=None, ended_at=None, first_failure=None, boot_id="after the restart"
    )
    attempt = attempt_of(experiment)
    assert attempt.exit_reason == Reason.HOST_RESTARTED
    trial = trial_of(experiment)
    assert (trial.restarts, trial.task.state) == (0, TaskState.WAITING)


@pytest.mark.survive(16)
def test_a_port_in_use_gets_other_ports_and_no_restart_until_attempts_run_out(settings: Any) -> None:
    experiment = running(slots=4, hosts=2, max_restarts=0)
    leased = []
    for attempt in range(1, settings.LAUNCH_ATTEMPTS + 1):
        ports = attempt_of(experiment).ports
        leased.append(ports["c10d"])
        first, second = members_of(experiment)
        port = ports["c10d"]
        settle.member_exited(
            first.pk, code=None, signal=None, ended_at=100.0, first_failure=None, port_in_use=port
        )
        end(second, 143)
        found = attempt_of(experiment)
        assert (found.number, found.exit_reason) == (attempt, Reason.PORT_IN_USE)
        assert f"Port {port} of gpu0" in found.exit_detail["sentence"]
        assert trial_of(experiment).restarts == 0
        pool_pass.run(experiment.job.pool_id)
    assert len(set(leased)) == len(leased)
    assert (attempt_of(experiment).number, trial_of(experiment).state) == (len(leased), TrialState.ERROR)


@pytest.mark.parametrize(
    ("kept_by", "reason", "code"),
    [("storage_fault", Reason.STORAGE_FAILED, None), ("image_fault", Reason.LAUNCH_FAILED, 125)],
)
def test_a_storage_or_an_image_that_cannot_be_used_counts_no_restart_and_is_the_reason(
    settings: Any, kept_by: str, reason: Reason, code: int | None
) -> None:
    experiment = running(max_restarts=0)
    fault: Any = (
        "checkpoint storage /mnt/x on host gpu0 is read-only (…): mount it, or change checkpoint_storage"
    )
    for attempt in range(1, settings.LAUNCH_ATTEMPTS + 1):
        [member] = members_of(experiment)
        settle.member_exited(
            member.pk, code=code, signal=None, ended_at=100.0, first_failure=None, **{kept_by: fault}
        )
        found = attempt_of(experiment)
        assert (found.number, found.exit_reason) == (attempt, reason)
        assert found.exit_detail["sentence"] == f"{fault}."
        assert trial_of(experiment).restarts == 0
        Task.objects.update(not_before=None)
        pool_pass.run(experiment.job.pool_id)
    story = why_stopped.of_attempt(attempt_of(experiment))
    assert story.sentences[-1].startswith(f"Not retried: {settings.LAUNCH_ATTEMPTS} attempts in a row")
    assert trial_of(experiment).state == TrialState.ERROR


def test_an_end_without_a_code_on_the_same_boot_counts() -> None:
    experiment = running(max_restarts=0)
    member = members_of(experiment)[0]
    settle.member_exited(member.pk, code=None, signal=None, ended_at=None, first_failure=None, boot_id="boot")
    assert attempt_of(experiment).exit_reason == Reason.RUN_VANISHED
    assert trial_of(experiment).state == TrialState.ERROR


@pytest.mark.survive(1)
def test_a_silent_host_keeps_its_gang_open_but_not_its_gangs_slots() -> None:
    experiment = running(slots=4, hosts=2)
    first, second = members_of(experiment)
    end(first, 0)
    assert SlotHold.objects.filter(released_at=None, member=first).count() == 0
    assert SlotHold.objects.filter(released_at=None, member=second).count() == 2
    second.refresh_from_db()
    assert second.state == MemberState.RUNNING and trial_of(experiment).task.state == TaskState.RUNNING


def test_what_runs_on_a_disabled_host_is_stopped_and_waits_again_without_a_restart() -> None:
    experiment = running()
    registry.disable(members_of(experiment)[0].host_id, actor="user:admin")
    reconcile.leave_disabled_hosts()
    attempt = attempt_of(experiment)
    assert attempt.stop_kind == StopKind.STOP and attempt.stop_reason == Reason.HOST_DISABLED
    end(members_of(experiment)[0], 143)
    trial = trial_of(experiment)
    assert trial.task.state == TaskState.WAITING and trial.restarts == 0


def test_a_lowered_limit_of_slots_makes_what_runs_above_it_save_and_wait_again() -> None:
    experiment = running()
    limit = queue_edits.Update(str(experiment.job_id), max_slots=1)
    [told] = queue_edits.apply([limit], actor="user:ada", role="admin")
    assert str(told).endswith(
        ": it may hold 1 slot; it holds 2, and 1 run (2 slots) is asked to save and give back its slots."
    )
    pool_pass.run(experiment.job.pool_id)
    attempt = attempt_of(experiment)
    assert (attempt.stop_kind, attempt.stop_reason) == (StopKind.PREEMPT, Reason.MAX_SLOTS_SET)
    assert attempt.stop_for_task == ""
    transitions.preempt_acknowledged(attempt.pk)
    end(members_of(experiment)[0], 0)
    trial = trial_of(experiment)
    assert trial.task.state == TaskState.WAITING and trial.restarts == 0
    pool_pass.run(experiment.job.pool_id)
    assert plan_of(default_pool())["waits"][trial.task_id]["code"] == "over_max_slots"


@pytest.mark.survive(6)
def test_a_run_that_ended_while_the_server_was_away_has_time_to_bring_the_rest(settings: Any) -> None:
    settings.DRAIN_SECONDS = 0.3
    [member] = members_of(running())
    long_ago = timezone.now() - timedelta(minutes=10)
    Member.objects.filter(pk=member.pk).update(heartbeat_at=long_ago)
    exit_file = {"code": 0, "ended_at": long_ago.timestamp()}
    ended = {"state": "ended", "exit": exit_file, "unshipped_bytes": 1400, "outbox_bytes": 1400}

    def sweep() -> MemberState:
        member.refresh_from_db()
        reconcile._settle(member, ended, "boot", None)
        member.refresh_from_db()
        return MemberState(member.state)

    assert sweep() == MemberState.RUNNING, "the runner has not tried again yet"
    time.sleep(0.35)
    assert sweep() == MemberState.ENDED, "nobody brings it any more"
    assert verdicts.missing_bytes(member.allocation.task_id) == 1400


def ended_while_away(experiment: Experiment) -> tuple[datetime, datetime]:
    """The trial ran from three to one hours ago, which the server learns now; the two times, in its own clock.

    The host's clock is 90 s ahead.
    """
    began, ended = (timezone.now() - timedelta(hours=hours) for hours in (3, 1))
    [member] = members_of(experiment)
    Host.objects.update(clock_skew_seconds=90.0)
    Allocation.objects.update(assigned_at=began - timedelta(minutes=1), started_at=began)
    Member.objects.update(launched_at=began, started_at=began, heartbeat_at=began)
    exit_file = {"code": 0, "ended_at": ended.timestamp() + 90.0}
    member.refresh_from_db()
    run = {"state": "ended", "exit": exit_file, "unshipped_bytes": 0, "finished": True}
    reconcile._settle(member, run, "boot", None)
    return began, ended


@pytest.mark.survive(6)
def test_what_ended_while_the_server_was_away_gets_the_time_at_which_it_ended() -> None:
    experiment = running()
    learned = timezone.now()
    began, ended = ended_while_away(experiment)
    experiment.refresh_from_db()
    trial, attempt, [member] = trial_of(experiment), attempt_of(experiment), members_of(experiment)
    record = UsageRecord.objects.get(run_key=member.run_key)
    experiment.job.refresh_from_db()
    assert experiment.state == ExperimentState.COMPLETED
    for row in (member, attempt, trial, trial.task, experiment, experiment.job, record):
        assert row.ended_at is not None and abs(row.ended_at - ended) < timedelta(seconds=1), row
    assert attempt.settled_at and attempt.settled_at >= learned
    assert abs(time_limits.time_used([trial.task_id])[trial.task_id] - (ended - began).total_seconds()) < 1
    for hold in SlotHold.objects.all():
        assert hold.released_at and hold.released_at >= learned, "nobody else had the slots before"
    said = Event.objects.get(kind=Event.Kind.ALLOCATION, to_state="TERMINATED")
    sentence = sentences.sentence(said)
    assert sentence and sentence.text.endswith(" — Run 1 ended with exit code 0; it had ended 1 h earlier.")


@pytest.mark.survive(6)
def test_a_kill_that_came_after_the_end_is_when_the_experiment_ended() -> None:
    experiment = running()
    experiments.kill(experiment.pk, actor="user:ada")
    killed = Event.objects.get(kind=Event.Kind.EXPERIMENT, to_state="STOPPING_KILLED").at
    _, ended = ended_while_away(experiment)
    experiment.refresh_from_db()
    assert experiment.state == ExperimentState.CANCELED and experiment.ended_at == killed
    trial = trial_of(experiment)
    assert trial.ended_at and abs(trial.ended_at - ended) < timedelta(seconds=1)


@pytest.mark.survive(6)
@pytest.mark.parametrize("stamp", [100.0, 4e9, float("nan")])
def test_the_end_by_a_clock_that_was_set_is_when_the_server_learned_of_it(stamp: float) -> None:
    experiment = running()
    before = timezone.now()
    settle.member_exited(
        members_of(experiment)[0].pk, code=0, signal=None, ended_at=stamp, first_failure=None
    )
    ended = trial_of(experiment).ended_at
    assert ended and before <= ended <= timezone.now()
