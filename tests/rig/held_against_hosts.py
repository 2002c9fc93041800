"""What must hold of the rows whatever happened: the half of `tests.rig.interleavings` that only looks."""

from __future__ import annotations

import uuid

from hypothesis.stateful import RuleBasedStateMachine, invariant

from experiments.models import Experiment, Trial
from experiments.states import EXPERIMENT_END_STATES, TRIAL_END_STATES
from hosts.models import Host
from jobs.models import Allocation, Member, SlotHold, Task
from jobs.states import AllocationState, MemberState, Reason, TaskState
from logs import read
from logs.models import Stream
from tests.rig.pretend_hosts import Pretended, Run

LOST_AFTER_SECONDS = 60
ALLOCATION_ORDER = list(AllocationState)
MEMBER_ORDER = list(MemberState)


class HeldAgainstHosts(RuleBasedStateMachine):
    """After every step the rows agree with what really lives on the hosts."""

    def __init__(self) -> None:
        super().__init__()
        self.hosts: dict[uuid.UUID, Pretended] = {}
        self.lost: set[uuid.UUID] = set()
        #: what rows were, so that none goes back: key -> (place in the order of states, fields that are final)
        self.were: dict[object, tuple[int, object]] = {}

    @invariant()
    def what_lives_holds_its_slots_alone(self) -> None:
        """A slot is free only when nothing of a run is left on it, and one run at most lives on it."""
        held = list(
            SlotHold.objects.filter(released_at=None).values_list(
                "slot__host_id", "slot__index", "member__allocation_id", "member__index", "member__state",
                "member__cleaning_since",
            )
        )  # fmt: skip
        holders = {(host, slot): f"{allocation}.{index}" for host, slot, allocation, index, _, _ in held}
        assert len(holders) == len(held)
        for *_, state, cleaning_since in held:
            assert state != MemberState.ENDED or cleaning_since, "an ended member holds a slot in vain"
        for pk, machine in self.hosts.items():
            if pk in self.lost:
                continue
            for run in machine.living():
                for slot in run.slots:
                    assert holders.get((pk, slot)) == run.key, (
                        f"{run} lives on a slot of {holders.get((pk, slot))}"
                    )

    @invariant()
    def nothing_that_ended_is_revived(self) -> None:
        rows = Allocation.objects.values_list("pk", "state", "exit_reason", "exit_code", "settled_at")
        for pk, state, *end, settled_at in rows:
            place = ALLOCATION_ORDER.index(AllocationState(state))
            is_over = state == AllocationState.TERMINATED
            self.only_forward(pk, place, (*end, settled_at is None) if is_over else None)
        rows = Member.objects.values_list("pk", "state", "exit_reason", "exit_code", "exit_signal", "exited")
        for pk, state, *end in rows:
            place = MEMBER_ORDER.index(MemberState(state))
            self.only_forward(pk, place, tuple(end) if state == MemberState.ENDED else None)
        for pk, state in Trial.objects.filter(state__in=TRIAL_END_STATES).values_list("pk", "state"):
            self.only_forward(("trial", pk), 0, state)
        for pk, state in Experiment.objects.filter(state__in=EXPERIMENT_END_STATES).values_list(
            "pk", "state"
        ):
            self.only_forward(("experiment", pk), 0, state)

    def only_forward(self, key: object, place: int, end: object) -> None:
        before, former_end = self.were.get(key, (place, None))
        assert place >= before, f"{key} went back"
        assert former_end in (None, end), f"the end of {key} was {former_end} and is {end}"
        self.were[key] = (place, end)

    @invariant()
    def nothing_acknowledged_is_lost(self) -> None:
        """No runner was told that more is stored than is."""
        stored = {
            f"{allocation}.{index}": offset
            for allocation, index, offset in Stream.objects.values_list(
                "member__allocation_id", "member__index", "offset"
            )
        }
        for machine in self.hosts.values():
            for run in machine.runs.values():
                assert run.acknowledged <= stored.get(run.key, 0) <= run.size

    @invariant()
    def loss_has_evidence(self) -> None:
        """Enough contacts have failed, over the limit's time, since the server last heard of it and was last whole."""
        for pk, admission, failed_contacts in Host.objects.values_list("pk", "admission", "failed_contacts"):
            machine = self.hosts[pk]
            if admission == Host.Admission.LOST and pk not in self.lost:
                assert machine.failed_contacts >= 3 and machine.failing_seconds >= LOST_AFTER_SECONDS - 1, pk
                self.lost.add(pk)
            elif not failed_contacts:
                machine.was_heard()
        blamed = Member.objects.filter(exit_reason=Reason.HOST_LOST).values_list("host_id", flat=True)
        assert set(blamed) <= self.lost

    @invariant()
    def tasks_agree_with_their_attempts(self) -> None:
        living = set(
            Allocation.objects.exclude(state=AllocationState.TERMINATED).values_list("task_id", flat=True)
        )
        assert living == set(Task.objects.filter(state=TaskState.RUNNING).values_list("pk", flat=True))

    def lines_are_once_and_in_order(self, run: Run, is_lost: bool) -> None:
        """Of what is stored no line is missing or twice, and of a run that could bring everything all is stored."""
        allocation_id, _, index = run.key.rpartition(".")
        member = Member.objects.get(allocation_id=allocation_id, index=index)
        stored = [
            line.text for line in read.forward(member.allocation.task_id).lines if line.member == member.pk
        ]
        assert stored == run.lines[: len(stored)]
        offset = Stream.objects.filter(member=member).values_list("offset", flat=True).first() or 0
        records, at = 0, 0
        for record in run.outbox:
            at += len(record)
            records += at <= offset and b'"k": "lines"' in record
        assert len(stored) == records
        if not run.refused and not is_lost:
            assert stored == run.lines
