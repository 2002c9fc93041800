"""A training that fails of a fault of its host or GPU keeps its restarts, whoever hears of the fault first."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dispatch.passes import last_plan, pool_pass
from dispatch.runs import intake, settle
from dispatch.watching import host_signs
from experiments import transitions as experiments
from experiments.models import Experiment
from experiments.states import TrialState
from hosts import pool_edits
from hosts.models import Host, HostSign, ResourcePool, Slot
from jobs import quarantine, queue_edits, transitions
from jobs.models import Allocation, Member, Task
from jobs.states import AllocationState, Reason, StopKind, TaskState
from logs import why_stopped
from shown.hosts import rows, spares
from tests.rig.world import attempt_of, make_host, members_of, submit_experiment, trial_of

pytestmark = pytest.mark.django_db

LOST = "NVRM: Xid (PCI:0000:{:02x}:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
HANGS = "NMI watchdog: Watchdog detected hard LOCKUP on cpu 3"
OWN_FAULT = "NVRM: Xid (PCI:0000:00:00): 31, pid=4711, name=python, MMU Fault: ENGINE GRAPHICS"


def gpu_host(name: str, gpus: int = 1) -> Host:
    host = make_host(name, 0)
    for index in range(gpus):
        Slot.objects.create(host=host, index=index, kind=Slot.Kind.CUDA, uuid=f"{name}-{index}")
    facts = {"gpus": [{"uuid": f"{name}-{index}", "pci": f"0000:{index:02x}:00"} for index in range(8)]}
    Host.objects.filter(pk=host.pk).update(boot_id="b1", facts=facts)
    host.refresh_from_db()
    return host


def running(slots: int = 1, **more: Any) -> Experiment:
    experiment = submit_experiment(slots=slots, **more)
    start(experiment)
    return experiment


def start(experiment: Experiment) -> None:
    pool_pass.run(experiment.job.pool_id)
    for member in members_of(experiment):
        transitions.member_launched(member.pk, boot_id="b1")
        transitions.member_running(member.pk)


def told(host: Host, line: str) -> dict[str, Any]:
    return {"kernel": {"boot": "b1", "source": "kmsg", "until": 9, "lines": [[9, line]]}}


def fails(member: Member, code: int = 1) -> None:
    settle.member_exited(member.pk, code=code, signal=None, ended_at=100.0)


def test_a_failure_after_a_fault_of_its_gpu_counts_no_restart() -> None:
    host = gpu_host("gpu1")
    experiment = running(max_restarts=0)
    host_signs.take_in(host.pk, told(host, LOST.format(0)))
    [member] = members_of(experiment)
    fails(member)
    trial, attempt = trial_of(experiment), Allocation.objects.get()
    assert attempt.exit_reason == Reason.HOST_FAULT
    [why, *_] = why_stopped.of_attempt(attempt).sentences
    assert why.startswith(
        "Stopped because of a fault of its host or GPU: gpu1: The GPU has fallen off the bus"
    )
    assert (trial.restarts, trial.task.state) == (0, TaskState.WAITING)


def test_it_begins_again_on_the_spare_ahead_of_what_waits_and_the_pages_say_which_that_is() -> None:
    hosts = [gpu_host(f"gpu{number}") for number in range(3)]
    pool_edits.edit("default", {"spare_hosts": 1}, actor="user:ada")
    first, second = running(slots=2, max_restarts=0), submit_experiment(slots=1)
    pool_pass.run(first.job.pool_id)
    pool = ResourcePool.objects.get()
    [spare] = spares.of_pool(pool).values()
    assert (spare.host, spare.is_free, spare.free) == ("gpu0", True, 1)
    assert spares.in_words(pool) == "1 of 1 spare host free: gpu0."
    row = next(row for row in rows.of(rows.present()) if row.host.name == "gpu0")
    assert row.why == "Kept as a spare: only work whose host failed, and burn-ins, run here."
    why = last_plan.of(pool).waits[trial_of(second).task_id]["sentence"]
    assert why == "no slot is free; 1 host is kept as a spare (gpu0)"
    [failing, _] = members_of(first)
    host_signs.take_in(failing.host_id, told(failing.host, LOST.format(0)))
    for member in members_of(first):
        fails(member)
    Task.objects.update(not_before=None)
    assert Task.objects.get(recovers=True).pk == trial_of(first).task_id
    start(first)
    assert not Task.objects.filter(recovers=True).exists(), "it runs, so it is work like any other"
    held = {member.host.name for member in members_of(first)}
    assert held == {host.name for host in hosts} - {failing.host.name}
    pool_pass.run(pool.pk)
    pool.refresh_from_db()
    label = f"exp {first.pk}"
    assert spares.in_words(pool).startswith("0 of 1 spare host free. gpu")
    assert spares.in_words(pool).endswith(f" becomes a spare once {label} has ended.")
    [attempt] = Allocation.objects.exclude(state=AllocationState.TERMINATED)
    transitions.request_stop(attempt.pk, StopKind.PREEMPT, reason=Reason.PREEMPTED, actor="user:ada")
    for member in members_of(first):
        fails(member, 0)
    assert not Task.objects.filter(recovers=True).exists(), "it has run since"


def test_a_gpu_that_nvml_has_lost_costs_no_restart_either() -> None:
    host = gpu_host("gpu1")
    experiment = running(max_restarts=0)
    request = host_signs.question(host, members_of(experiment))
    lost = {"boot": "b1", "at": 9, "gpus": {"gpu1-0": {"lost": 1}}}
    for _ in range(2):
        host_signs.take_in(host.pk, {"condition": lost}, request)
    fails(members_of(experiment)[0])
    assert Allocation.objects.get().exit_reason == Reason.HOST_FAULT


def test_hosts_are_asked_about_the_folders_in_which_their_runs_store() -> None:
    host = gpu_host("gpu1")
    experiment = running()
    config = {**experiment.config, "checkpoint_storage": {"type": "shared_fs", "host_path": "/mnt/shared"}}
    Experiment.objects.filter(pk=experiment.pk).update(config=config)
    assert host_signs.question(host, members_of(experiment))["condition"]["folders"] == ["/mnt/shared"]
    assert host_signs.question(host)["condition"]["folders"] == []


@pytest.mark.parametrize("line", [OWN_FAULT, LOST.format(1), ""])
def test_without_a_fault_of_what_it_held_it_is_the_programs_own(line: str) -> None:
    host = gpu_host("gpu1")
    experiment = running()
    host_signs.take_in(host.pk, told(host, line))
    fails(members_of(experiment)[0])
    assert Allocation.objects.get().exit_reason == Reason.RANK_FAILED
    assert trial_of(experiment).restarts == 1


def test_a_fault_explains_the_ranks_elsewhere_that_failed_before_it_was_known() -> None:
    first, second = gpu_host("gpu1"), gpu_host("gpu2")
    experiment = running(slots=2)
    of_first, of_second = sorted(members_of(experiment), key=lambda member: member.host.name)
    fails(of_second)
    host_signs.take_in(first.pk, told(first, LOST.format(0)))
    fails(of_first, 143)
    attempt = Allocation.objects.get()
    assert attempt.exit_reason == Reason.HOST_FAULT and attempt.exit_detail["sentence"].startswith("gpu1: ")
    assert trial_of(experiment).restarts == 0
    assert [slot.draining for slot in Slot.objects.order_by("host__name")] == [True, False]
    assert second.name == "gpu2"


def test_faults_that_go_on_cost_restarts_in_the_end() -> None:
    """The pool has no other host, and a person has let it back each time."""
    host = gpu_host("gpu1")
    experiment = submit_experiment(max_restarts=0)
    for number in range(6):
        start(experiment)
        answer = {"boot": "b1", "source": "kmsg", "until": number, "lines": [[number, LOST.format(0)]]}
        host_signs.take_in(host.pk, {"kernel": answer})
        [member] = members_of(experiment)
        fails(member)
        Slot.objects.update(draining=False, quarantine={})
        experiment.job.tasks.update(not_before=None)
    assert trial_of(experiment).state == TrialState.ERROR and Allocation.objects.count() == 6
    [why, *_, follows] = why_stopped.of_attempt(Allocation.objects.get(number=6)).sentences
    assert "fallen off the bus" in why and follows == "Not retried (max_restarts: 0)."


def test_a_slot_that_a_person_keeps_in_use_excuses_no_bug_of_later_runs() -> None:
    host = gpu_host("gpu1")
    host_signs.take_in(host.pk, told(host, LOST.format(0)))
    quarantine.release(host.pk, 0, actor="user:ada", hours=4, reason="the demo needs it")
    experiment = running()
    [member] = members_of(experiment)
    intake.store(member.pk, 0, exit_record(member, [9, LOST.format(0)]))
    assert Allocation.objects.get().exit_reason == Reason.RANK_FAILED


def exit_record(member: Member, *lines: object, **fields: Any) -> bytes:
    """As a runner writes it: `lines` are those of the kernel."""
    record = {"k": "exit", "t": 2.0, "code": 1, "signal": None, "stopped": False, "kernel": list(lines)}
    return json.dumps({**record, **fields}).encode() + b"\n"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (LOST.format(0), Reason.HOST_FAULT),
        (HANGS, Reason.HOST_FAULT),
        (OWN_FAULT, Reason.RANK_FAILED),
        (LOST.format(1), Reason.RANK_FAILED),
        ("x\x00", Reason.RANK_FAILED),
    ],
)
def test_what_the_runner_has_read_decides_on_the_restart_and_on_nothing_else(
    line: str, reason: Reason
) -> None:
    host = gpu_host("gpu1")
    experiment = running()
    [member] = members_of(experiment)
    failure = {"rank": 3, "code": 1, "signal": None, "t": 1.0}
    intake.store(member.pk, 0, exit_record(member, [9, line], [], "nonsense", first_failure=failure))
    attempt = Allocation.objects.get()
    assert attempt.exit_reason == reason
    assert attempt.exit_detail["rank"] == (None if reason == Reason.HOST_FAULT else 3)
    assert trial_of(experiment).restarts == int(reason == Reason.RANK_FAILED)
    assert not HostSign.objects.exists() and not Slot.objects.filter(draining=True).exists(), "a job may lie"
    assert not trial_of(experiment).task.recovers, "so its word opens no spare"
    host_signs.take_in(host.pk, told(host, line))
    assert trial_of(experiment).task.recovers == (reason == Reason.HOST_FAULT), "but that of the host does"


def test_a_restart_that_the_run_alone_tells_opens_no_spare() -> None:
    for known, recovers in (("b1", False), ("b2", True)):
        gpu_host(f"gpu-{known}")
        experiment = running()
        [member] = members_of(experiment)
        Host.objects.filter(pk=member.host_id).update(boot_id=known)
        settle.member_exited(member.pk, code=None, signal=None, ended_at=None, boot_id="b2")
        assert attempt_of(experiment).exit_reason == Reason.HOST_RESTARTED
        assert trial_of(experiment).task.recovers is recovers
        Task.objects.update(state=TaskState.PAUSED)


def test_the_spares_of_another_pool_are_not_for_what_failed_before() -> None:
    host = gpu_host("gpu1")
    experiment = running()
    host_signs.take_in(host.pk, told(host, LOST.format(0)))
    fails(members_of(experiment)[0])
    assert trial_of(experiment).task.recovers
    pool_edits.create("other", {}, actor="user:ada")
    update = queue_edits.Update(str(experiment.job.pk), pool="other")
    queue_edits.apply([update], actor="user:ada", role="admin")
    assert not trial_of(experiment).task.recovers


def test_a_peer_that_was_stopped_brings_the_fault_of_its_host() -> None:
    gpu_host("gpu1")
    gpu_host("gpu2")
    experiment = running(slots=2)
    of_first, of_second = sorted(members_of(experiment), key=lambda member: member.host.name)
    fails(of_second)
    record = exit_record(of_first, [9, LOST.format(0)], code=143, stopped=True)
    intake.store(of_first.pk, 0, record)
    attempt = Allocation.objects.get()
    assert attempt.exit_reason == Reason.HOST_FAULT
    assert attempt.exit_detail["host"] == "gpu1" and trial_of(experiment).restarts == 0


def test_a_training_that_was_asked_to_leave_keeps_its_restarts_though_the_gpu_is_gone_from_the_probe() -> (
    None
):
    host = gpu_host("gpu1")
    experiment = running(max_restarts=0)
    host_signs.take_in(host.pk, told(host, LOST.format(0)))
    Slot.objects.update(missing=True)
    Host.objects.update(facts={"gpus": []})
    fails(members_of(experiment)[0])
    assert trial_of(experiment).task.state == TaskState.WAITING


def test_what_saved_each_time_may_leave_as_often_as_it_must() -> None:
    host = gpu_host("gpu1")
    experiment = submit_experiment(max_restarts=0)
    for number in range(8):
        start(experiment)
        answer = {"boot": "b1", "source": "kmsg", "until": number, "lines": [[number, LOST.format(0)]]}
        host_signs.take_in(host.pk, {"kernel": answer})
        transitions.preempt_acknowledged(attempt_of(experiment).pk)
        fails(members_of(experiment)[0], 0)
        Slot.objects.update(draining=False, quarantine={})
        experiment.job.tasks.update(not_before=None)
    assert trial_of(experiment).task.state == TaskState.WAITING


def test_what_was_killed_ended_because_of_that() -> None:
    gpu_host("gpu1")
    experiment = running()
    [member] = members_of(experiment)
    experiments.kill(experiment.pk, actor="user:ada")
    intake.store(member.pk, 0, exit_record(member, [9, LOST.format(0)], code=143, stopped=True))
    assert Allocation.objects.get().exit_reason == Reason.KILLED_BY_USER
