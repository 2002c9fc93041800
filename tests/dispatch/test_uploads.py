"""A trial waits for the upload of its checkpoint as long as somebody can bring it, and not longer."""

import uuid
from typing import Any

import pytest
from django.conf import settings
from django.utils import timezone

from dispatch import tasks
from dispatch.passes import pool_pass
from dispatch.runs import intake, open_work, reconcile, uploads
from dispatch.ssh import remote
from events import presence
from events.presence import Part
from experiments import checkpoints
from experiments import transitions as experiments
from experiments.models import Checkpoint, Experiment
from experiments.states import CheckpointState
from hosts import registry
from hosts.models import Host
from jobs.models import Allocation, Member, SlotHold
from jobs.states import MemberState, Reason, TaskState
from shown.experiments import why_completing
from shown.queue import lines
from tests.dispatch.test_intake import batch, core
from tests.rig.world import make_host, members_of, submit_experiment, trial_of

pytestmark = pytest.mark.django_db

EXIT: dict[str, Any] = {
    "k": "exit",
    "t": 2.0,
    "code": 0,
    "signal": None,
    "stopped": False,
    "first_failure": None,
}


def saved(member: Member, steps: int, offset: int, **files: int) -> tuple[uuid.UUID, int]:
    """A checkpoint that the member has reported and not uploaded; its id and the stream's new offset."""
    checkpoint = uuid.uuid4()
    record = core(
        "checkpoint", uuid=str(checkpoint), steps_completed=steps, resources=files, storage="server"
    )
    return checkpoint, intake.store(member.pk, offset, batch(record)).offset


def paused_with_checkpoints(count: int, hosts: int = 1) -> tuple[Experiment, list[uuid.UUID]]:
    """An experiment that saved `count` times, was paused and activated again before anything was uploaded."""
    for index in range(hosts):
        make_host(f"gpu{index}", 1)
    experiment = submit_experiment(slots=hosts)
    pool_pass.run(experiment.job.pool_id)
    first, *others = members_of(experiment)
    made, offset = [], 0
    for number in range(count):
        checkpoint, offset = saved(first, number + 1, offset, weights=3)
        made.append(checkpoint)
    experiments.pause(experiment.pk, actor="user:ada")
    intake.store(first.pk, offset, batch(core("preempt_ack"), EXIT))
    for other in others:
        intake.store(other.pk, 0, batch(EXIT))
    experiments.activate(experiment.pk, actor="user:ada")
    assert trial_of(experiment).task.blocked_by == Reason.WAITS_FOR_UPLOAD
    return experiment, made


def upload(checkpoint: uuid.UUID) -> None:
    folder = settings.DATA_DIR / "checkpoints" / str(checkpoint)
    folder.mkdir(parents=True)
    (folder / "weights").write_bytes(b"123")
    checkpoints.completed(checkpoint, {"weights": 3}, {"weights": 3})


def test_the_last_file_of_its_checkpoint_lets_a_trial_go_on() -> None:
    experiment, (checkpoint,) = paused_with_checkpoints(1)
    upload(checkpoint)
    assert not trial_of(experiment).task.blocked_by
    pool_pass.run(experiment.job.pool_id)
    assert trial_of(experiment).task.state == TaskState.RUNNING


def test_an_upload_that_the_runner_gave_up_frees_the_trial_for_an_older_checkpoint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    experiment, (older, _) = paused_with_checkpoints(2)
    upload(older)
    trial = trial_of(experiment)
    assert trial.task.blocked_by == Reason.WAITS_FOR_UPLOAD, "the newest one is still being uploaded"
    (member,) = uploads.awaited()
    assert reconcile.hosts_to_ask() == [member.host_id]
    uploads.settle(member, {"state": "ended", "finished": False})
    monkeypatch.setattr(remote, "verb", lambda *_, **__: {"runs": {member.run_key: {"state": []}}})
    reconcile._ask_runs(
        member.host, [], [member]
    )  # its account answers so, and others are settled all the same
    assert trial_of(experiment).task.blocked_by
    uploads.settle(member, {"state": "ended", "finished": True})
    trial = trial_of(experiment)
    assert trial.latest_checkpoint_id == older and not trial.task.blocked_by
    assert not uploads.awaited().exists() and reconcile.hosts_to_ask() == []
    pool_pass.run(experiment.job.pool_id)
    assert trial_of(experiment).task.state == TaskState.RUNNING and trial_of(experiment).steps_completed == 1


def test_a_run_folder_that_vanished_leaves_nothing_to_wait_for() -> None:
    experiment, _ = paused_with_checkpoints(1)
    (member,) = uploads.awaited()
    uploads.settle(member, {"state": "absent"})
    trial = trial_of(experiment)
    assert trial.latest_checkpoint is None and not trial.task.blocked_by


def test_of_a_gang_every_member_may_bring_a_part() -> None:
    experiment, _ = paused_with_checkpoints(1, hosts=2)
    first, second = uploads.awaited().order_by("index")
    uploads.settle(first, {"state": "ended", "finished": True})
    assert trial_of(experiment).task.blocked_by
    uploads.settle(second, {"state": "ended", "finished": True})
    assert not trial_of(experiment).task.blocked_by


def test_a_removed_host_brings_nothing() -> None:
    experiment, _ = paused_with_checkpoints(1)
    host = Host.objects.get()
    registry.remove(host.pk, actor="user:admin")
    reconcile.finish_lost_hosts()
    assert Checkpoint.objects.get().state == CheckpointState.ERROR
    assert not trial_of(experiment).task.blocked_by


@pytest.mark.survive(6)
def test_a_sweep_gives_up_what_a_killed_worker_had_found_hopeless_although_nothing_else_is_open() -> None:
    experiment, _ = paused_with_checkpoints(1)
    uploads.awaited().update(finished_at=timezone.now())  # and there its worker was killed
    Allocation.objects.update(settled_at=timezone.now() - 2 * open_work.JUST_ENDED)
    tasks.sweep()
    assert Checkpoint.objects.get().state == CheckpointState.ERROR
    assert not trial_of(experiment).task.blocked_by
    assert not open_work.exists()


def test_what_is_left_on_a_removed_host_is_no_work_for_ever() -> None:
    make_host("gpu0", 1)
    experiment = submit_experiment(max_restarts=0)
    pool_pass.run(experiment.job.pool_id)
    (member,) = members_of(experiment)
    registry.declare_lost(member.host_id, actor="user:admin")
    reconcile.host_lost(member.host_id)
    experiments.kill(experiment.pk, actor="user:ada")
    Allocation.objects.update(settled_at=timezone.now() - 2 * open_work.JUST_ENDED)
    assert Member.objects.filter(cleaning_since__isnull=False).exists()
    presence.stamp(Part.WORKERS)
    assert not open_work.exists()


def test_a_declaration_of_loss_whose_message_was_lost_is_carried_out_by_the_sweep() -> None:
    make_host("gpu0", 1)
    experiment = submit_experiment()
    pool_pass.run(experiment.job.pool_id)
    (member,) = members_of(experiment)
    registry.declare_lost(member.host_id, actor="user:admin")
    reconcile.finish_lost_hosts()
    member.refresh_from_db()
    assert member.state == MemberState.ENDED and trial_of(experiment).task.state == TaskState.WAITING


def state_of(experiment: Experiment) -> str:
    return Experiment.objects.get(pk=experiment.pk).state


def ended_with_an_upload() -> tuple[Experiment, uuid.UUID]:
    """An experiment whose run has ended well, before its only checkpoint was uploaded."""
    make_host("gpu0", 1)
    experiment = submit_experiment(slots=1)
    pool_pass.run(experiment.job.pool_id)
    (member,) = members_of(experiment)
    checkpoint, offset = saved(member, 1, 0, weights=3)
    intake.store(member.pk, offset, batch(EXIT))
    return experiment, checkpoint


def test_an_experiment_is_completed_when_its_checkpoints_can_be_fetched() -> None:
    experiment, checkpoint = ended_with_an_upload()
    assert trial_of(experiment).state == "COMPLETED" and state_of(experiment) == "STOPPING_COMPLETED"
    assert not SlotHold.objects.filter(released_at=None).exists(), "nothing computes any more"
    assert [line.job.pk for line in lines.page(experiment.job.pool)[0]] == []
    row = Experiment.objects.get(pk=experiment.pk)
    assert why_completing([row]) == {row.pk: "1 checkpoint is still being uploaded."}
    upload(checkpoint)
    assert Checkpoint.objects.get(pk=checkpoint).state == CheckpointState.COMPLETED
    assert state_of(experiment) == "COMPLETED"
    row = Experiment.objects.get(pk=experiment.pk)
    assert row.ended_at == trial_of(experiment).ended_at, "it ended with its run"


def test_an_upload_that_never_comes_lets_its_experiment_end() -> None:
    experiment, checkpoint = ended_with_an_upload()
    (member,) = uploads.awaited()
    uploads.settle(member, {"state": "ended", "finished": True})
    assert Checkpoint.objects.get(pk=checkpoint).state == CheckpointState.ERROR
    assert state_of(experiment) == "COMPLETED"


def test_a_person_ends_the_wait_for_an_upload() -> None:
    experiment, checkpoint = ended_with_an_upload()
    experiments.kill(experiment.pk, actor="user:ada")
    assert state_of(experiment) == "CANCELED"
    upload(checkpoint)
    assert state_of(experiment) == "CANCELED"
    assert Checkpoint.objects.get(pk=checkpoint).state == CheckpointState.COMPLETED
