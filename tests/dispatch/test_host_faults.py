"""A training that fails of its host's fault: the host is asked first, and the end counts no restart."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.utils import timezone

from dispatch.passes import pool_pass
from dispatch.runs import intake, reconcile, settle
from dispatch.ssh import remote
from dispatch.watching import kernel_signs
from experiments import transitions as experiments
from experiments.models import Experiment
from experiments.states import TrialState
from hosts.models import Host, Slot
from jobs import transitions
from jobs.models import Allocation, Member
from jobs.states import AllocationState, MemberState, Reason, TaskState
from logs import why_stopped
from tests.rig.world import attempt_of, make_host, members_of, submit_experiment, trial_of

pytestmark = pytest.mark.django_db

LOST = "NVRM: Xid (PCI:0000:{:02x}:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
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
    kernel_signs.take_in(host.pk, told(host, LOST.format(0)))
    [member] = members_of(experiment)
    fails(member)
    trial, attempt = trial_of(experiment), Allocation.objects.get()
    assert attempt.exit_reason == Reason.HOST_FAULT
    [why, *_] = why_stopped.of_attempt(attempt).sentences
    assert why.startswith(
        "Stopped because of a fault of its host or GPU: gpu1: The GPU has fallen off the bus"
    )
    assert (trial.restarts, trial.task.state) == (0, TaskState.WAITING)


@pytest.mark.parametrize("line", [OWN_FAULT, LOST.format(1), ""])
def test_without_a_fault_of_what_it_held_it_is_the_programs_own(line: str) -> None:
    host = gpu_host("gpu1")
    experiment = running()
    kernel_signs.take_in(host.pk, told(host, line))
    fails(members_of(experiment)[0])
    assert Allocation.objects.get().exit_reason == Reason.RANK_FAILED
    assert trial_of(experiment).restarts == 1


def test_a_fault_explains_the_ranks_elsewhere_that_failed_before_it_was_known() -> None:
    first, second = gpu_host("gpu1"), gpu_host("gpu2")
    experiment = running(slots=2)
    of_first, of_second = sorted(members_of(experiment), key=lambda member: member.host.name)
    fails(of_second)
    kernel_signs.take_in(first.pk, told(first, LOST.format(0)))
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
        kernel_signs.take_in(host.pk, {"kernel": answer})
        [member] = members_of(experiment)
        fails(member)
        Slot.objects.update(draining=False, quarantine={})
        experiment.job.tasks.update(not_before=None)
    assert trial_of(experiment).state == TrialState.ERROR and Allocation.objects.count() == 6


def exit_record(member: Member, **fields: Any) -> bytes:
    record = {"k": "exit", "t": 2.0, "code": 1, "signal": None, "stopped": False, "kernel_faults": True}
    return json.dumps({**record, **fields}).encode() + b"\n"


class Answers:
    """What the host answers; `asked` are the requests."""

    def __init__(self, member: Member, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.key, self.line = member.run_key, line
        self.asked: list[dict[str, Any]] = []
        self.is_silent = False
        monkeypatch.setattr(remote, "verb", self)

    def __call__(self, host: Host, verb: str, request: dict[str, Any], **_: Any) -> dict[str, Any]:
        self.asked.append(request)
        if "kernel" in request and self.is_silent:
            raise remote.Unreachable("no answer")
        exit_file = {"code": 1, "signal": None, "ended_at": 2.0, "stopped": False, "kernel_faults": True}
        runs = {self.key: {"state": "ended", "exit": exit_file, "unshipped_bytes": 0, "finished": True}}
        found = {"boot_id": "b1", "runs": runs if request["runs"] else {}}
        return found | (told(host, self.line) if "kernel" in request else {})


@pytest.mark.parametrize(
    ("line", "reason"), [(LOST.format(0), Reason.HOST_FAULT), (OWN_FAULT, Reason.RANK_FAILED)]
)
def test_the_host_is_asked_before_an_end_that_may_be_its_fault_is_concluded(
    line: str, reason: Reason, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = gpu_host("gpu1")
    Host.objects.update(sampled_at=timezone.now())  # so that the look at its runs asks for no kernel lines
    experiment = running()
    [member] = members_of(experiment)
    answers = Answers(member, line, monkeypatch)
    intake.store(member.pk, 0, exit_record(member))
    member.refresh_from_db()
    assert member.state == MemberState.RUNNING, "the job's word alone concludes nothing"
    answers.is_silent = True
    reconcile.host(host.pk)
    assert attempt_of(experiment).state == AllocationState.RUNNING
    answers.is_silent = False
    reconcile.host(host.pk)
    assert Allocation.objects.get().exit_reason == reason
    assert ["kernel" in request for request in answers.asked] == [False, True, False, True]


def test_what_was_told_to_stop_ends_at_once() -> None:
    gpu_host("gpu1")
    experiment = running()
    [member] = members_of(experiment)
    experiments.kill(experiment.pk, actor="user:ada")
    intake.store(member.pk, 0, exit_record(member, code=143, stopped=True))
    assert Allocation.objects.get().exit_reason == Reason.KILLED_BY_USER
