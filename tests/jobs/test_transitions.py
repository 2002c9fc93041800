"""The writer of states: guarded steps, one hold per slot, stops that only get stronger."""

import pytest

from events.models import Event
from hosts.models import PoolChange, Slot
from jobs import assigning, transitions
from jobs.models import Allocation, FirstStart, Member, PortLease, SlotHold, Task
from jobs.states import AllocationState, MemberState, Reason, StopKind, TaskState
from tests.rig.world import assigned, make_host, submit_experiment, trial_of

pytestmark = pytest.mark.django_db


def assign(task: Task, host_slots: int = 2) -> Allocation:
    host = make_host(f"gpu-{task.pk[:6]}-{Slot.objects.count()}", host_slots)
    slots = list(host.slots.values_list("pk", flat=True))[: task.slots]
    return assigned(
        task_id=task.pk,
        placement=[(host.pk, slots)],
        on_sufferance=False,
        actor="scheduler",
    )


def test_an_assigned_task_holds_its_slots_and_ports_and_leaves_events() -> None:
    task = trial_of(submit_experiment(slots=2)).task
    allocation = assign(task)
    task.refresh_from_db()
    assert task.state == TaskState.RUNNING and task.run_count == 1
    assert SlotHold.objects.filter(released_at=None).count() == 2
    assert set(allocation.ports) == {"c10d", "comm"} and PortLease.objects.count() == 2
    assert Event.objects.filter(kind="allocation", subject=allocation.pk, to_state="ASSIGNED").count() == 1


def test_a_task_is_assigned_once() -> None:
    task = trial_of(submit_experiment()).task
    assign(task)
    with pytest.raises(assigning.Stale):
        assign(task)
    assert Allocation.objects.count() == 1


def test_the_first_start_of_a_job_is_kept_and_stays() -> None:
    task = trial_of(submit_experiment()).task
    first = assign(task)
    [start] = FirstStart.objects.all()
    assert (start.job, start.pool, start.at) == (task.job, first.pool, first.assigned_at)
    assert start.submitted_at == task.job.submitted_at
    transitions.member_ended(first.members.get().pk, code=0, signal=None, reason=Reason.COMPLETED)
    first.refresh_from_db()
    assert transitions.terminate(first, list(first.members.all()), exit_reason=Reason.COMPLETED, exit_code=0)
    transitions.set_task_state(task.pk, TaskState.WAITING, reason=Reason.ACTIVATED_BY_USER, actor="user:ada")
    assert assign(Task.objects.get(pk=task.pk)).number == 2
    assert FirstStart.objects.get().at == first.assigned_at


@pytest.mark.survive(19)
def test_a_slot_is_given_once_and_the_loser_leaves_nothing() -> None:
    first, second = (trial_of(submit_experiment(slots=2)).task for _ in range(2))
    assign(first)
    taken = SlotHold.objects.values_list("slot_id", flat=True)
    host = Slot.objects.get(pk=taken[0]).host
    with pytest.raises(assigning.Stale):
        assigned(
            task_id=second.pk,
            placement=[(host.pk, list(taken))],
            on_sufferance=False,
            actor="scheduler",
        )
    second.refresh_from_db()
    assert second.state == TaskState.WAITING and Allocation.objects.count() == 1


def test_the_run_token_is_stored_only_as_a_hash_and_can_be_derived_again() -> None:
    allocation = assign(trial_of(submit_experiment()).task)
    token = transitions.run_token(allocation)
    again = transitions.run_token(Allocation.objects.get(pk=allocation.pk))
    assert token == again and token not in str(Allocation.objects.values().get())


def test_a_stop_overrides_a_preemption_and_never_the_reverse() -> None:
    allocation = assign(trial_of(submit_experiment()).task)

    def ask(kind: StopKind, reason: Reason) -> bool:
        return transitions.request_stop(allocation.pk, kind, reason=reason, actor="user:ada")

    assert ask(StopKind.PREEMPT, Reason.PAUSED_BY_USER)
    assert not ask(StopKind.PREEMPT, Reason.PREEMPTED)
    assert ask(StopKind.STOP, Reason.KILLED_BY_USER)
    assert not ask(StopKind.PREEMPT, Reason.PAUSED_BY_USER)
    allocation.refresh_from_db()
    assert allocation.stop_kind == StopKind.STOP and allocation.stop_reason == Reason.KILLED_BY_USER


def test_a_second_stop_can_shorten_the_grace_and_never_lengthen_it() -> None:
    allocation = assign(trial_of(submit_experiment()).task)

    def stop(grace_seconds: float, reason: Reason) -> bool:
        return transitions.request_stop(
            allocation.pk, StopKind.STOP, reason=reason, actor="user:ada", grace_seconds=grace_seconds
        )

    assert stop(30.0, Reason.CANCELED_BY_USER)
    assert stop(5.0, Reason.KILLED_BY_USER) and not stop(20.0, Reason.KILLED_BY_USER)
    allocation.refresh_from_db()
    assert allocation.stop_grace_seconds == 5.0 and allocation.stop_reason == Reason.CANCELED_BY_USER


def test_a_late_or_doubled_word_of_a_member_changes_nothing() -> None:
    allocation = assign(trial_of(submit_experiment()).task)
    member = allocation.members.get()
    assert transitions.member_launched(member.pk, boot_id="b")
    assert transitions.member_running(member.pk) and not transitions.member_running(member.pk)
    assert transitions.member_ended(member.pk, code=0, signal=None, reason=Reason.COMPLETED)
    assert not transitions.member_ended(member.pk, code=3, signal=None, reason=Reason.RANK_FAILED)
    assert not transitions.member_launched(member.pk, boot_id="b")
    member.refresh_from_db()
    assert member.state == MemberState.ENDED and member.exit_code == 0


def test_slots_are_free_when_the_member_has_ended_and_ports_when_the_allocation_is_over() -> None:
    allocation = assign(trial_of(submit_experiment(slots=2)).task)
    member = allocation.members.get()
    assert not transitions.terminate(
        allocation, list(allocation.members.all()), exit_reason=Reason.COMPLETED, exit_code=0
    )
    transitions.member_ended(member.pk, code=0, signal=None, reason=Reason.COMPLETED)
    assert not SlotHold.objects.filter(released_at=None).exists()
    allocation.refresh_from_db()
    assert transitions.terminate(
        allocation, list(allocation.members.all()), exit_reason=Reason.COMPLETED, exit_code=0
    )
    allocation.refresh_from_db()
    assert allocation.state == AllocationState.TERMINATED
    assert not PortLease.objects.exists()


@pytest.mark.survive(20)
def test_a_launch_is_claimed_by_one_worker() -> None:
    member = assign(trial_of(submit_experiment()).task).members.get()
    assert transitions.claim_launch(member.pk, 60)
    assert not transitions.claim_launch(member.pk, 60)
    assert Member.objects.get().launch_attempts == 1


def test_every_change_tells_the_scheduler_to_look() -> None:
    PoolChange.objects.all().delete()
    submit_experiment()
    assert PoolChange.objects.exists()
