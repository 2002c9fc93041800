"""People, hosts and the scheduler in any order, on real rows, against a model of a few lines.

No host is contacted: what its runners would report is told to `dispatch.runs.settle` and `jobs.transitions`, as
`dispatch.runs.intake` does it. Each attempt's members are launched, run and end, in whatever order the steps are drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.conf import LazySettings
from django.db import connection, transaction
from django.utils import timezone
from hypothesis import HealthCheck
from hypothesis import settings as effort
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from accounts.refusals import Refusal
from dispatch.passes import pool_pass
from dispatch.runs import reconcile, settle
from experiments import transitions as experiments
from experiments.models import Experiment, Trial
from experiments.states import EXPERIMENT_END_STATES, TRIAL_END_STATES
from hosts import registry
from hosts.models import Host
from hosts.pools import default_pool
from jobs import cleaning, queue_edits, transitions
from jobs.models import Allocation, Job, Member, PortLease, SlotHold, Task
from jobs.states import AllocationState, JobState, MemberState, StopKind, TaskState
from tests.rig.world import make_host, make_user, submit_experiment

HOSTS, SLOTS = 3, 2
CHOICES = st.integers(0, 59)
Wish = Callable[..., Experiment]


class Queue(RuleBasedStateMachine):
    """The model: what people want of each experiment. The rows must agree with it whenever all is quiet."""

    submitted = Bundle("submitted")

    def __init__(self) -> None:
        super().__init__()
        self._transaction = transaction.atomic()
        self._transaction.__enter__()
        self.ada = make_user("ada")
        for number in range(HOSTS):
            make_host(f"gpu{number}", SLOTS)
        #: experiment -> "active", "paused", or "ended" (asked to: canceled or killed)
        self.wanted: dict[int, str] = {}

    def teardown(self) -> None:
        """In the end everything is canceled, every host answers, those that were lost too, and nothing may be left."""
        try:
            for pk, wanted in self.wanted.items():
                if wanted != "ended":
                    experiments.cancel(pk, actor="user:ada")
            self.drain()
            for member in cleaning.under_way():
                cleaning.done(member.pk)
            self.nothing_is_given_twice_or_held_in_vain()
            assert not SlotHold.objects.filter(released_at=None).exists()
            assert not PortLease.objects.exists()
            assert not Job.objects.exclude(state=JobState.ENDED).exists()
        finally:
            transaction.set_rollback(True)
            self._transaction.__exit__(None, None, None)

    def drain(self) -> None:
        """Every order is carried out."""
        for _ in range(50):
            stopping = Member.objects.exclude(state=MemberState.ENDED).exclude(allocation__stop_kind="")
            if not stopping.exists():
                return
            for member in stopping:
                self._ends(member, 0, acknowledge=True)
            self.tick()
        raise AssertionError("stopped attempts never end")

    # --- what people do

    @rule(
        target=submitted,
        slots=st.sampled_from([0, 1, 1, 2, 4, 3]),
        priority=st.sampled_from([10, 42, 42]),
        restarts=st.integers(0, 1),
        active=st.booleans(),
    )
    def submit(self, slots: int, priority: int, restarts: int, active: bool) -> int:
        made = submit_experiment(
            slots=slots, priority=priority, max_restarts=restarts, owner=self.ada, activate=active
        )
        self.wanted[made.pk] = "active" if active else "paused"
        return made.pk

    def _wish(self, wish: Wish, pk: int, to: str) -> None:
        over = Experiment.objects.filter(pk=pk, state__in=EXPERIMENT_END_STATES).exists()
        try:
            wish(pk, actor="user:ada")
        except Refusal:
            assert over or self.wanted[pk] == "ended"
            return
        if self.wanted[pk] != "ended":
            self.wanted[pk] = to

    @rule(pk=submitted)
    def pause(self, pk: int) -> None:
        self._wish(experiments.pause, pk, "paused")

    @rule(pk=submitted)
    def activate(self, pk: int) -> None:
        self._wish(experiments.activate, pk, "active")

    @rule(pk=submitted, wish=st.sampled_from([experiments.cancel, experiments.kill]))
    def stop(self, pk: int, wish: Wish) -> None:
        self._wish(wish, pk, "ended")

    @rule(pk=submitted, other=submitted, priority=st.sampled_from([None, 1, 50]), ahead=st.booleans())
    def edit(self, pk: int, other: int, priority: int | None, ahead: bool) -> None:
        ids = {e.pk: str(e.job_id) for e in Experiment.objects.filter(pk__in=[pk, other])}
        if ahead and other != pk:
            place: dict[str, Any] = {"ahead_of": ids[other]}
        else:
            place = {"to_top": ahead or priority is None}
        update = queue_edits.Update(ids[pk], priority=priority if not ahead else None, **place)
        try:
            queue_edits.apply([update], actor="user:ada", role="editor")
        except Refusal:
            assert Job.objects.filter(pk__in=ids.values(), state=JobState.ENDED).exists()

    # --- what the scheduler and the hosts do

    @rule()
    def tick(self) -> None:
        pool_pass.run(default_pool().pk)

    # What is drawn may not depend on what is there: on a busy machine a pass may stop early, and then a replayed
    # example would draw something else.

    @rule(choice=CHOICES, code=st.sampled_from([0, 0, 1]), acknowledge=st.booleans())
    def a_member_goes_on(self, choice: int, code: int, acknowledge: bool) -> None:
        members = list(Member.objects.exclude(state=MemberState.ENDED).order_by("pk"))
        if not members:
            return
        member = members[choice % len(members)]
        if member.state == MemberState.ASSIGNED:
            transitions.member_launched(member.pk, boot_id="boot")
        elif member.state == MemberState.LAUNCHED:
            transitions.member_running(member.pk)
        else:
            self._ends(member, code, acknowledge)

    @rule(choice=CHOICES)
    def a_word_comes_twice(self, choice: int) -> None:
        """A record that was shipped again after its answer was lost."""
        members = list(Member.objects.order_by("pk"))
        if members:
            member = members[choice % len(members)]
            before = Member.objects.values().get(pk=member.pk)
            if member.state == MemberState.ENDED:
                self._ends(member, 1, acknowledge=False)
            if member.state in {MemberState.RUNNING, MemberState.ENDED}:
                transitions.member_launched(member.pk, boot_id="other")
                assert Member.objects.values().get(pk=member.pk) == before

    def _ends(self, member: Member, code: int, acknowledge: bool) -> None:
        if acknowledge:
            transitions.preempt_acknowledged(member.allocation_id)
        settle.member_exited(
            member.pk, code=code, signal=None, ended_at=timezone.now().timestamp(), first_failure=None
        )

    @rule(number=st.integers(0, HOSTS - 1))
    def a_host_is_lost_and_another_takes_its_place(self, number: int) -> None:
        host = Host.objects.filter(admission=Host.Admission.READY).order_by("name")[number]
        registry.declare_lost(host.pk, actor="user:ada")
        reconcile.host_lost(host.pk)
        assert not Member.objects.filter(host=host).exclude(state=MemberState.ENDED).exists()
        make_host(f"gpu{Host.objects.count()}", SLOTS)

    @rule()
    def time_passes(self) -> None:
        """Pauses between attempts are over."""
        Task.objects.exclude(not_before=None).update(not_before=timezone.now())

    # --- what always holds

    @invariant()
    def nothing_is_given_twice_or_held_in_vain(self) -> None:
        holds = SlotHold.objects.filter(released_at=None)
        held = list(holds.values_list("slot_id", flat=True))
        assert len(set(held)) == len(held)
        ended = holds.filter(member__state=MemberState.ENDED)
        assert not ended.filter(member__cleaning_since=None).exists()
        assert not ended.exclude(slot__host__admission=Host.Admission.LOST).exists()
        living = Allocation.objects.exclude(state=AllocationState.TERMINATED).select_related("task__job")
        tasks = {allocation.task_id for allocation in living}
        assert len(tasks) == len(living)
        assert tasks == set(Task.objects.filter(state=TaskState.RUNNING).values_list("pk", flat=True))
        for allocation in living:
            at_work = allocation.members.exclude(state=MemberState.ENDED)
            slots = holds.filter(member__in=at_work).count()
            assert slots == sum(member.slots for member in at_work) <= allocation.slots
            assert allocation.members.exclude(state=MemberState.ENDED).exists()
            if allocation.state != AllocationState.TERMINATING:
                assert slots == allocation.slots, "a gang is whole until it is being stopped"

    @invariant()
    def the_rows_are_what_people_want(self) -> None:
        for pk, wanted in self.wanted.items():
            experiment = Experiment.objects.select_related("job").get(pk=pk)
            trial = Trial.objects.select_related("task").get(experiment=experiment)
            over = experiment.state in EXPERIMENT_END_STATES
            assert over == (trial.state in TRIAL_END_STATES) == (trial.task.state == TaskState.ENDED)
            assert over == (experiment.job.state == JobState.ENDED)
            assert trial.restarts <= experiment.config["max_restarts"]
            attempt = trial.task.allocations.exclude(state=AllocationState.TERMINATED).first()
            if wanted == "ended" and not over:
                assert attempt is not None and attempt.stop_kind, "it waits for nothing but its attempt"
            if wanted == "paused" and not over:
                assert (
                    attempt.stop_kind == StopKind.PREEMPT if attempt else trial.task.state == TaskState.PAUSED
                )
            if wanted == "active" and not over:
                assert experiment.job.state == JobState.ACTIVE
                assert trial.task.state in {TaskState.WAITING, TaskState.RUNNING}


@pytest.mark.survive(26)
@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("redis_server")
def test_any_order_of_wishes_ends_ticks_and_losses_keeps_what_must_hold(settings: LazySettings) -> None:
    settings.TICK_SECONDS = 1.0
    pool_pass.IDLE_PASS_SECONDS, former = 0.0, pool_pass.IDLE_PASS_SECONDS
    try:
        run_state_machine_as_test(
            Queue,
            settings=effort(
                max_examples=10,
                stateful_step_count=30,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
    finally:
        pool_pass.IDLE_PASS_SECONDS = former
        connection.close()
