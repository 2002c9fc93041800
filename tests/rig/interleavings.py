"""Any order of what workers, web processes, people and hosts do, on real rows, with workers killed in the middle.

Every step is a function of the product against PostgreSQL. A worker's step may die at any statement (its transaction
is rolled back, nothing after it happens), and between two of its transactions, or while a host answers it, anything
else may happen. Only the hosts are values (`pretend_hosts`): they know what really lives, and each belief of the
server is held against that. What is drawn is plain numbers, whatever is there.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from typing import Any
from unittest import mock

from django.core.management import call_command
from django.db import connection
from django.db.models import DateTimeField, F, Model
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from accounts.refusals import Refusal
from dispatch import tasks
from dispatch.passes import pool_pass
from dispatch.runs import intake, launch, reconcile, stop
from dispatch.runs.stop import RESEND_SECONDS
from dispatch.ssh import remote, threads
from dispatch.watching import probing
from events import announce, presence
from events.models import Lease, Presence
from experiments import transitions as experiments
from experiments.models import Experiment
from experiments.states import EXPERIMENT_END_STATES
from hosts.models import Host, ResourcePool, Slot
from hosts.pools import default_pool
from jobs.models import Allocation, Job, Member, PortLease, SlotHold, Task
from jobs.states import AllocationState, JobState, MemberState
from tests.rig.held_against_hosts import LOST_AFTER_SECONDS, HeldAgainstHosts
from tests.rig.mortal import Killed, Process
from tests.rig.pretend_hosts import Payload, Pretended, Run
from tests.rig.world import be_whole, make_user, submit_experiment, survey_that_keeps

HOSTS, SLOTS = 3, 2
#: rows whose times go back when time passes
TIMED: list[type[Model]] = [Host, Presence, Member, Allocation, Task, Lease, ResourcePool]
NUMBERS = st.integers(0, 59)
#: statement at which a worker dies; most do not
DEATHS = st.integers(-25, 25)
#: (at which chance, what, choice) of what happens in the middle of a worker's step
MEANWHILE = st.lists(st.tuples(st.integers(0, 11), NUMBERS, NUMBERS), max_size=3)
FATES = st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9))


Fates = tuple[int, ...]
Act = Callable[["Interleavings", int], None]


class InTurn:
    """A pool of threads that has only the caller's."""

    def __init__(self, _: int) -> None:
        pass

    def __enter__(self) -> InTurn:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def map(self, function: Callable[[Any], Any], values: Sequence[Any]) -> list[Any]:
        return [function(value) for value in values]


class Interleavings(HeldAgainstHosts):
    """The rows must agree with the hosts' truth after every step, and in the end nothing may be left."""

    def __init__(self) -> None:
        super().__init__()
        self.process: Process | None = None
        self.messages: list[tuple[str, tuple[Any, ...]]] = []
        self._patches = ExitStack()

    @initialize(choices=st.lists(NUMBERS, min_size=2, max_size=4))
    def begin(self, choices: list[int]) -> None:
        default_pool()
        ResourcePool.objects.update(host_lost_after_seconds=LOST_AFTER_SECONDS)
        self.ada = make_user("ada")
        for _ in range(HOSTS):
            self.add_host()
        be_whole()
        for target, name, value in (
            (announce, "_publish", self._publish),
            (remote, "_verb", self._verb),
            (threads, "ThreadPoolExecutor", InTurn),
            (threads, "connection", mock.Mock()),  # which threads close
        ):
            self._patches.enter_context(mock.patch.object(target, name, value))
        self._patches.enter_context(connection.execute_wrapper(self._execute))
        for choice in choices:
            self.submit(choice)
        self.all_goes_well(choices)

    def add_host(self) -> None:
        """Another machine; its id is a number, so that the same examples make the same plans."""
        number = len(self.hosts)
        host = Host.objects.create(
            id=uuid.UUID(int=number + 1), name=f"gpu{number}", pool=default_pool(), transport=Host.Transport.SSH,
            admission=Host.Admission.READY, contact=Host.Contact.REACHABLE, address=f"10.0.0.{number + 1}",
            last_seen_at=presence.database_now(), host_key="ssh-ed25519 AAAA",
        )  # fmt: skip
        Slot.objects.bulk_create(Slot(host=host, index=index, kind=Slot.Kind.CPU) for index in range(SLOTS))
        self.hosts[host.pk] = Pretended(host.name)

    def teardown(self) -> None:
        try:
            if self.hosts:
                self.in_the_end_nothing_is_left()
        finally:
            self._patches.close()
            call_command("flush", verbosity=0, interactive=False)

    # --- how steps are made

    def _execute(self, execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: Any) -> Any:
        process = self.process
        if process is None or str(sql).startswith(("SAVEPOINT", "ROLLBACK", "RELEASE")):
            return execute(sql, params, many, context)
        if not connection.in_atomic_block:
            self._others(process)
        process.statement()
        return execute(sql, params, many, context)

    def _publish(self, topics: list[str], calls: dict[str, dict[tuple[Any, ...], None]]) -> None:
        """After the commit, and before what follows it: a worker may die here too, and its messages are lost."""
        if self.process is not None:
            self.process.statement()
        self.messages += [(name, args) for name, arguments in calls.items() for args in arguments]
        del self.messages[:-40]

    def _verb(self, host: Host, name: str, payload: Payload, body: bytes | None, _: float) -> dict[str, Any]:
        remote._refuse_in_transaction()
        machine, process = self.hosts[host.pk], self.process
        fate = process.fate() if process else 0
        self._others(process)
        try:
            return machine.verb(name, payload, fate)
        finally:
            self._others(process)

    def _others(self, process: Process | None) -> None:
        """Other processes, people and hosts do something while this one waits."""
        if process is None:
            return
        for what, choice in process.others():
            self.process = None
            with self._another_worker():
                self.act(what, choice)
            self.process = process

    @contextmanager
    def _another_worker(self) -> Iterator[None]:
        with mock.patch.object(reconcile, "_asking", set()):
            yield

    def made_by(self, process: Process, act: Act, choice: int) -> None:
        self.process = process
        try:
            with suppress(Killed):
                act(self, choice)
        finally:
            self.process = None
        assert not connection.in_atomic_block

    def act(self, what: int, choice: int) -> None:
        acts = [*self.of_workers, *self.of_requests, *self.of_hosts]
        acts[what % len(acts)](self, choice)

    # --- what workers do

    def tick(self, choice: int) -> None:
        pool_pass.run(default_pool().pk)

    def launch(self, choice: int) -> None:
        if member := chosen(Member.objects.all(), choice):
            launch.launch(member.pk)

    def stop(self, choice: int) -> None:
        if allocation := chosen(Allocation.objects.all(), choice):
            stop.stop(allocation.pk)

    def sweep(self, choice: int) -> None:
        tasks.sweep()

    def sweep_host(self, choice: int) -> None:
        reconcile.host(list(self.hosts)[choice % len(self.hosts)])

    def probe(self, choice: int) -> None:
        probing.probe_due()
        reconcile.declare_lost_hosts()

    def message(self, choice: int) -> None:
        """One of the messages under way arrives; it may come again, or never."""
        if self.messages:
            name, args = self.messages[choice % len(self.messages)]
            deliver(name, args)

    # --- what people do

    def submit(self, choice: int) -> None:
        slots, restarts, priority = [0, 1, 1, 2, 4][choice % 5], choice % 3, [10, 42][choice % 2]
        submit_experiment(slots=slots, max_restarts=restarts, priority=priority, owner=self.ada)

    def wish(self, choice: int) -> None:
        wishes = [experiments.pause, experiments.activate, experiments.cancel, experiments.kill]
        if experiment := chosen(Experiment.objects.all(), choice // 4):
            with suppress(Refusal):
                wishes[choice % 4](experiment.pk, actor="user:ada")

    # --- what hosts do

    def machine(self, choice: int) -> Pretended:
        return list(self.hosts.values())[choice % len(self.hosts)]

    def runs(self, choice: int) -> tuple[Pretended, Run] | None:
        """A run of which there is still something to say, and its host."""
        found = [
            (machine, run)
            for machine in self.hosts.values()
            for run in machine.runs.values()
            if run.starting or run.processes or not run.finished
        ]
        return found[choice % len(found)] if found else None

    def run_goes_on(self, choice: int) -> None:
        if found := self.runs(choice // 13):
            found[0].run_goes_on(found[1], choice % 13)

    def run_prints(self, choice: int) -> None:
        if found := self.runs(choice):
            for _ in range(choice % 3 + 1):
                found[1].print_line()

    def run_ships(self, choice: int) -> None:
        if found := self.runs(choice // 6):
            found[0].ship(found[1], self.store, count=choice % 6 + 1, fate=choice % 6)

    def late(self, choice: int) -> None:
        self.machine(choice).late_launch()
        self.machine(choice).late_batch(self.store)

    def link(self, choice: int) -> None:
        self.machine(choice).reachable = choice % 4 != 0

    def reboot(self, choice: int) -> None:
        if choice % 4 == 0:
            self.machine(choice // 4).reboot()

    def store(self, run_key: str, offset: int, body: bytes) -> intake.Intake:
        allocation_id, _, index = run_key.rpartition(".")
        return intake.store(Member.objects.get(allocation_id=allocation_id, index=index).pk, offset, body)

    of_workers = (tick, launch, stop, sweep, sweep_host, sweep_host, probe, message, message)
    of_requests = (submit, wish, run_ships, run_ships, run_ships, late)
    of_hosts = (run_goes_on, run_goes_on, run_goes_on, run_prints, link, reboot)

    # --- the steps

    @rule(what=NUMBERS, choice=NUMBERS, dies_at=DEATHS, fates=FATES, meanwhile=MEANWHILE)
    def a_worker_works(
        self, what: int, choice: int, dies_at: int, fates: Fates, meanwhile: list[tuple[int, int, int]]
    ) -> None:
        act = self.of_workers[what % len(self.of_workers)]
        self.made_by(Process(dies_at, fates, meanwhile), act, choice)
        survey_that_keeps(default_pool())

    @rule(what=NUMBERS, choice=NUMBERS, dies_at=DEATHS, meanwhile=MEANWHILE)
    def a_request_comes(
        self, what: int, choice: int, dies_at: int, meanwhile: list[tuple[int, int, int]]
    ) -> None:
        act = self.of_requests[what % len(self.of_requests)]
        self.made_by(Process(dies_at, (), meanwhile), act, choice)

    @rule(what=NUMBERS, choice=NUMBERS)
    def something_happens_on_a_host(self, what: int, choice: int) -> None:
        self.of_hosts[what % len(self.of_hosts)](self, choice)

    @rule(choices=st.lists(NUMBERS, min_size=2, max_size=4))
    def all_goes_well(self, choices: list[int]) -> None:
        """So that more is reached than first attempts to start."""
        self.tick(0)
        for _ in range(6):
            if self.messages:
                deliver(*self.messages.pop(0))
        for choice in choices:
            self.run_goes_on(choice)
            self.run_prints(choice)
            self.run_ships(choice)

    @rule(seconds=st.sampled_from([2, RESEND_SECONDS + 1, 25, 65, 130]), is_there=st.integers(0, 3))
    def time_passes(self, seconds: float, is_there: int) -> None:
        """By the clock of everybody; the control plane may be away meanwhile, and then it was not whole."""
        shift(seconds)
        for machine in self.hosts.values():
            machine.time_passes(seconds)
        if is_there:
            Presence.objects.update(stamped_at=presence.database_now())
        elif seconds > LOST_AFTER_SECONDS:
            for machine in self.hosts.values():
                machine.was_heard()

    # --- the end

    def in_the_end_nothing_is_left(self) -> None:
        """Everybody's work is canceled, the hosts are there again and do as they are told."""
        self.process = None
        for machine in self.hosts.values():
            machine.reachable = True
        for experiment in Experiment.objects.exclude(state__in=EXPERIMENT_END_STATES):
            with suppress(Refusal):  # it is being killed
                experiments.cancel(experiment.pk, actor="user:ada")
        for _ in range(40):
            if self.is_quiet():
                break
            self.round()
        self.nothing_that_ended_is_revived()
        assert not SlotHold.objects.filter(released_at=None).exists()
        unended = Member.objects.exclude(state=MemberState.ENDED)
        assert not unended.exists(), list(unended.values())
        assert not Allocation.objects.exclude(state=AllocationState.TERMINATED).exists()
        assert not PortLease.objects.exists()
        assert not Job.objects.exclude(state=JobState.ENDED).exists()
        for pk, machine in self.hosts.items():
            assert pk in self.lost or not machine.living()
            for run in machine.runs.values():
                self.lines_are_once_and_in_order(run, pk in self.lost)

    def is_quiet(self) -> bool:
        open_jobs = Job.objects.exclude(state=JobState.ENDED).exists()
        return not open_jobs and not SlotHold.objects.filter(released_at=None).exists() and not self.runs(0)

    def round(self) -> None:
        """All that has to happen does, as in a few seconds of an ordinary day."""
        self.time_passes(RESEND_SECONDS + 1, 1)
        self.tick(0)
        self.sweep(0)
        while self.messages:
            deliver(*self.messages.pop(0))
        self.probe(0)
        for machine in self.hosts.values():
            while machine.late:
                machine.late_launch()
            for run in list(machine.runs.values()):
                machine.run_goes_on(run, 11 if run.unkillable else 1)
                machine.ship(run, self.store, count=100, fate=0)
        for invariant_of in (self.what_lives_holds_its_slots_alone, self.loss_has_evidence):
            invariant_of()


def chosen(rows: Any, choice: int) -> Any:
    """One of the rows, the newest first."""
    found = list(rows.order_by("-pk"))
    return found[choice % len(found)] if found else None


def deliver(name: str, args: tuple[Any, ...]) -> None:
    """A worker makes what the message asks for; what these tests leave out is left out."""
    room, _, function = name.rpartition(".")
    if room == "dispatch.tasks":
        getattr(tasks, function)(*args)


def shift(seconds: float) -> None:
    """The database's clock now says so much more than when the rows were written."""
    delta = timedelta(seconds=seconds)
    for model in TIMED:
        times = [field.name for field in model._meta.get_fields() if isinstance(field, DateTimeField)]
        model._default_manager.update(**{name: F(name) - delta for name in times})
    for member, at in reconcile._seen_ended.items():
        reconcile._seen_ended[member] = at - seconds
