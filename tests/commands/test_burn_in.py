"""A burn-in waits for the whole host, gives way, starts again, and what it finds is told, or taken out of use."""

from __future__ import annotations

from datetime import timedelta
from itertools import combinations
from typing import Any

import pytest
from django.utils import timezone

from accounts.models import Group, User
from accounts.refusals import Refusal
from commands import burn_in, burn_ins_due
from commands import transitions as commands
from commands.models import BurnIn, Command
from commands.states import CommandState
from dispatch.passes import pool_pass
from dispatch.runs import effects, settle
from events.models import Event
from hosts import pool_edits, registry, server_drains
from hosts.models import Host, ResourcePool, Slot
from hosts.pools import default_pool
from hosts.registry import NewHost
from jobs import quarantine, transitions
from jobs.models import Allocation, Member, Task
from jobs.states import Reason, StopKind, TaskState
from tests.rig.world import make_host, make_user, members_of, submit_experiment

pytestmark = pytest.mark.django_db


def admin() -> User:
    user = make_user()
    User.objects.filter(pk=user.pk).update(role=User.Role.ADMIN)
    user.refresh_from_db()
    return user


def asked(host: Host) -> Command:
    return burn_in.ask(host.pk, owner=admin(), actor="user:ada")


def started(command: Command) -> Member:
    pool_pass.run(default_pool().pk)
    members = Member.objects.select_related("host", "allocation__task__job", "allocation__pool")
    member = members.exclude(state="ENDED").get(allocation__task=command.task)
    transitions.member_launched(member.pk, boot_id="b")
    transitions.member_running(member.pk)
    return member


def tells(member: Member, *records: dict[str, Any]) -> None:
    effects.apply(member, [{"k": "core", "d": record} for record in records], None)


def figure(measure: str, value: float, slot: int | None = 0) -> dict[str, Any]:
    return {"type": "burn_in", "measure": measure, "value": value, "how": "", "slot": slot}


def test_in_a_fair_share_pool_nothing_is_stopped_for_it() -> None:
    pool_edits.edit(default_pool().name, {"scheduler": "fair_share"}, actor="user:ada")
    host = make_host("gpu1", 2)
    for _ in range(2):
        submit_experiment(slots=1)
    pool_pass.run(default_pool().pk)
    assert Allocation.objects.count() == 2
    asked(host)
    pool_pass.run(default_pool().pk)
    assert not Allocation.objects.exclude(stop_kind="").exists()


def ended(member: Member, code: int = 0) -> Command:
    settle.member_exited(member.pk, code=code, signal=None, ended_at=1.0, first_failure=None, boot_id="b")
    return Command.objects.get(task=member.allocation.task)


def measured(host: Host, *values: float) -> Command:
    """A whole burn-in of the host, whose slots have these copy bandwidths."""
    member = started(command := asked(host))
    tells(member, *(figure("copy", value, slot) for slot, value in enumerate(values)))
    tells(member, {"type": "burn_in_done"})
    ended(member)
    burn_in.judge_due()
    command.refresh_from_db()
    return command


def pool_of(count: int, slots: int = 2) -> list[Host]:
    hosts = [make_host(f"gpu{number}", slots) for number in range(1, count + 1)]
    Slot.objects.update(kind=Slot.Kind.CUDA, brand="H100")
    return hosts


def test_it_is_a_job_of_the_lowest_priority_for_all_slots_of_its_host_alone() -> None:
    make_host("gpu1", 2)
    host = make_host("gpu2", 2)
    command = asked(host)
    assert (command.job.priority, command.job.preemptible, command.task.slots) == (99, True, 2)
    assert started(command).host == host
    assert burn_in.ask(host.pk, owner=admin(), actor="user:ada") == command, "one at a time"


def test_it_gives_way_to_other_work_and_starts_again() -> None:
    host = make_host("gpu1", 1)
    member = started(command := asked(host))
    submit_experiment(slots=1)
    pool_pass.run(default_pool().pk)
    allocation = Allocation.objects.get(task=command.task)
    assert allocation.stop_kind == StopKind.PREEMPT
    tells(member, {"type": "burn_in_failed", "slot": 0, "sentence": "out of memory"})
    assert ended(member, code=75).state == CommandState.ACTIVE
    assert BurnIn.objects.get().failures == [], "the next attempt measures everything anew"
    assert Task.objects.get(pk=command.task_id).state == TaskState.WAITING
    assert not Event.objects.filter(reason=burn_in.FOUND).exists()


def test_a_crash_of_its_program_is_its_end_and_is_told() -> None:
    host = make_host("gpu1", 1)
    assert ended(started(asked(host)), code=1).state == CommandState.ERROR
    burn_in.judge_due()
    [event] = Event.objects.filter(reason=burn_in.FOUND)
    assert event.detail["sentence"] == "Burn-in: it did not finish: exit code 1 on gpu1."


def test_the_slow_slot_is_told_with_its_evidence_and_stays_in_use() -> None:
    *others, bad = pool_of(4)
    for host in others:
        measured(host, 24.0, 25.0)
    measured(bad, 11.0, 25.0)
    [event] = Event.objects.filter(reason=burn_in.FOUND)
    assert event.subject == str(bad.pk)
    assert event.detail["sentence"] == (
        "Burn-in: slot 0: copy bandwidth 11 GB/s, the median of 3 other hosts is 24.5 GB/s."
    )
    assert not Slot.objects.filter(draining=True).exists()
    assert Event.objects.filter(reason=burn_in.PASSED).count() == 3
    assert burn_in.with_findings() == {default_pool().name: 1}


def test_a_pool_may_have_the_slow_slot_taken_out_of_use_until_a_person_releases_it() -> None:
    pool_edits.edit(default_pool().name, {"burn_in_do": "quarantine"}, actor="user:ada")
    *others, bad = pool_of(4)
    for host in others:
        measured(host, 24.0, 25.0)
    measured(bad, 11.0, 16.0)
    assert list(Slot.objects.filter(draining=True).values_list("host__name", "index")) == [("gpu4", 0)]
    quarantine.release(bad.pk, 0, actor="user:ada")
    assert not Slot.objects.filter(draining=True).exists()


def test_the_server_takes_out_no_more_than_its_share() -> None:
    pool_edits.edit(default_pool().name, {"burn_in_do": "quarantine"}, actor="user:ada")
    for host in pool_of(3, slots=1):
        member = started(asked(host))
        tells(member, figure("wrong_results", 3.0), {"type": "burn_in_done"})
        ended(member)
        burn_in.judge_due()
    assert Slot.objects.filter(draining=True).count() == 1, "one host at least, and a tenth of the pool"
    assert Event.objects.filter(reason=quarantine.WITHHELD).count() == 2


def test_the_gpu_whose_links_are_slow_is_named_and_compared_with_other_hosts() -> None:
    pool_edits.edit(default_pool().name, {"burn_in_do": "quarantine"}, actor="user:ada")
    [host] = pool_of(1, slots=4)
    member = started(asked(host))
    for pair in combinations(range(4), 2):
        rates = [{"measure": "all_reduce", "parts": list(pair), "value": 11.0 if 3 in pair else 240.0}]
        tells(member, {"type": "burn_in_rates", "how": "NCCL", "rates": rates})
    tells(member, {"type": "burn_in_done"})
    ended(member)
    burn_in.judge_due()
    [event] = Event.objects.filter(reason=burn_in.FOUND)
    assert event.detail["sentence"] == (
        "Burn-in: slot 3: all-reduce with each of 3 others 11 GB/s, the others among themselves 240 GB/s."
    )
    assert list(Slot.objects.filter(draining=True).values_list("index", flat=True)) == [3]
    figures = {each.slot: each for each in burn_in.figures_of(BurnIn.objects.get())}
    assert (figures[0].measure, figures[0].value, figures[3].value) == ("pair_all_reduce", 240.0, 11.0)
    assert figures[3].device == "H100"


def test_what_another_command_or_a_liar_says_changes_nothing() -> None:
    host = make_host("gpu1", 1)
    member = started(asked(host))
    tells(
        member,
        figure("copy", 1.0, slot=9),
        figure("copy", float("nan")),
        {"type": "burn_in_failed", "slot": {}, "sentence": "x"},
        {"type": "burn_in_failed", "slot": 0, "sentence": "out of\x00 memory " + "x" * 9999},
        *([figure("copy", 24.0)] * 50),
    )
    row = BurnIn.objects.get()
    assert [each["measure"] for each in row.figures] == ["copy"]
    assert [len(each["sentence"]) for each in row.failures] == [300]
    experiment = submit_experiment(slots=0)
    pool_pass.run(default_pool().pk)
    tells(members_of(experiment)[0], figure("memory", 1.0), {"type": "burn_in_done"})
    row.refresh_from_db()
    assert (len(row.figures), row.is_done) == (1, False)


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"draining": True}, "gpu1 is draining, and a burn-in is a job"),
        ({"transport": Host.Transport.SLURM}, "belongs to a Slurm cluster"),
    ],
)
def test_where_nothing_can_start_it_is_refused(changed: dict[str, Any], sentence: str) -> None:
    host = make_host("gpu1", 1)
    Host.objects.filter(pk=host.pk).update(**changed)
    with pytest.raises(Refusal, match=sentence):
        asked(host)
    Host.objects.filter(pk=host.pk).update(draining=False, transport=Host.Transport.SSH)
    Slot.objects.update(enabled=False)
    with pytest.raises(Refusal, match="has no slot in use"):
        asked(host)


def test_once_a_week_if_the_pool_says_so() -> None:
    host, now = make_host("gpu1", 1), timezone.now()
    owner = admin()
    burn_ins_due.ask_due(now)
    assert not Command.objects.exists(), "nobody has asked for it"
    pool_edits.edit(default_pool().name, {"burn_in": "weekly"}, actor="user:ada")
    burn_ins_due.ask_due(now)
    burn_ins_due.ask_due(now)
    [command] = Command.objects.all()
    assert command.owner == owner
    ended(started(command))
    burn_in.judge_due()
    burn_ins_due.ask_due(now + timedelta(days=6))
    assert Command.objects.count() == 1
    burn_ins_due.ask_due(now + timedelta(days=8))
    assert BurnIn.objects.filter(host=host).count() == 2


def joining(name: str = "gpu9") -> Host:
    """A host that was added to a pool that wants a burn-in first, found in order by the doctor."""
    pool_edits.edit(default_pool().name, {"burn_in": "before_joining"}, actor="user:ada")
    host = registry.add(NewHost(name, address="10.0.0.9"), default_pool(), actor="user:ada")
    states = {"admission": Host.Admission.READY, "contact": Host.Contact.REACHABLE}
    Host.objects.filter(pk=host.pk).update(**states)
    Slot.objects.create(host=host, index=0, kind=Slot.Kind.CUDA, brand="H100")
    return host


def measures_itself(host: Host, *records: dict[str, Any]) -> None:
    """The burn-in that the server asks for, which no pass starts."""
    burn_ins_due.ask_due(timezone.now())
    members = Member.objects.select_related("host", "allocation__task__job", "allocation__pool")
    member = members.exclude(state="ENDED").get(host=host)
    transitions.member_launched(member.pk, boot_id="b")
    transitions.member_running(member.pk)
    tells(member, *records, {"type": "burn_in_done"})
    ended(member)
    burn_in.judge_due()


def test_a_host_gets_no_work_before_its_burn_in_has_passed() -> None:
    admin()
    host = joining()
    experiment = submit_experiment(slots=1)
    pool_pass.run(default_pool().pk)
    assert not Allocation.objects.exists()
    measures_itself(host, figure("copy", 24.0))
    host.refresh_from_db()
    assert (host.draining, host.drain_cause) == (False, "")
    pool_pass.run(default_pool().pk)
    assert len(members_of(experiment)) == 1


def test_one_that_has_not_passed_waits_for_another_burn_in_or_for_an_admin() -> None:
    owner, host = admin(), joining()
    measures_itself(host, figure("wrong_results", 3.0))
    host.refresh_from_db()
    assert host.drain_cause == Host.Drain.BURN_IN_FOUND
    assert host.drain_reason == "Burn-in: slot 0: wrong results of matrix products 3."
    burn_ins_due.ask_due(timezone.now())
    assert BurnIn.objects.count() == 1, "it is not asked for again and again"
    burn_in.ask(host.pk, owner=owner, actor="user:ada")
    measures_itself(host, figure("wrong_results", 0.0))
    host.refresh_from_db()
    assert not host.draining


def test_a_fault_that_its_kernel_reports_meanwhile_keeps_it_out() -> None:
    admin()
    host = joining()
    quarantine.by_burn_in(host.pk, None, "It burns.")
    measured_before = Host.objects.get(pk=host.pk)
    assert measured_before.drain_cause == Host.Drain.FAULT
    server_drains.burn_in_over(host.pk, "")
    assert Host.objects.get(pk=host.pk).draining


def test_a_killed_burn_in_lets_nothing_in_and_an_admin_may() -> None:
    admin()
    host = joining()
    burn_ins_due.ask_due(timezone.now())
    command = Command.objects.get()
    commands.kill(command.pk, actor="user:ada")
    ended(Member.objects.select_related("host", "allocation__task__job", "allocation__pool").get(), code=143)
    burn_in.judge_due()
    host.refresh_from_db()
    assert host.drain_reason.startswith("Its burn-in was killed by ada")
    registry.enable(host.pk, actor="user:ada")
    assert not Host.objects.get(pk=host.pk).draining


def test_without_a_record_of_its_end_it_has_not_passed() -> None:
    admin()
    host = joining()
    burn_ins_due.ask_due(timezone.now())
    member = Member.objects.select_related("host", "allocation__task__job", "allocation__pool").get()
    transitions.member_launched(member.pk, boot_id="b")
    transitions.member_running(member.pk)
    ended(member, code=0)
    burn_in.judge_due()
    host.refresh_from_db()
    assert (host.draining, host.drain_cause) == (True, Host.Drain.BURN_IN_FOUND)
    assert "did not finish: exit code 0" in host.drain_reason


def test_one_whose_host_has_left_the_pool_or_was_taken_out_is_ended() -> None:
    host, other = make_host("gpu1", 1), make_host("gpu2", 1)
    moved, removed = asked(host), asked(other)
    registry.change_pool(host.pk, ResourcePool.objects.create(name="a100"), actor="user:ada")
    registry.remove(other.pk, actor="user:ada")
    burn_ins_due.ask_due(timezone.now())
    for command in (moved, removed):
        command.refresh_from_db()
        assert command.state == CommandState.CANCELED
    assert asked(host) != moved
    burn_in.judge_due()
    assert not Event.objects.filter(reason__in=[burn_in.FOUND, burn_in.PASSED]).exists()


def test_while_it_waits_it_asks_for_the_slots_that_are_in_use() -> None:
    host = make_host("gpu1", 3)
    command = asked(host)
    registry.switch_slot(host.slots.order_by("index")[0].pk, enabled=False, actor="user:ada")
    burn_ins_due.ask_due(timezone.now())
    assert Task.objects.get(pk=command.task_id).slots == 2
    assert started(command).slots == 2


def test_a_disabled_host_is_no_finding() -> None:
    host = make_host("gpu1", 1)
    member = started(asked(host))
    registry.disable(host.pk, actor="user:ada")
    transitions.request_stop(member.allocation_id, StopKind.STOP, reason=Reason.HOST_DISABLED, actor="server")
    assert ended(member, code=143).state == CommandState.ACTIVE


def test_why_none_can_be_asked_for_is_said_on_the_host_that_waits() -> None:
    host = joining()
    burn_ins_due.ask_due(timezone.now())
    host.refresh_from_db()
    assert host.drain_reason.endswith("it is a job of an admin, and no admin is active.")
    admin()
    pool_edits.edit(
        default_pool().name,
        {"open_to": {"groups": [Group.objects.create(name="vision").name]}},
        actor="user:ada",
    )
    burn_ins_due.ask_due(timezone.now())
    host.refresh_from_db()
    assert host.drain_reason.endswith("or if it is enabled.")
    assert BurnIn.objects.filter(host=host).exists(), "whom the pool is for does not count"


def test_a_host_without_slots_is_let_in() -> None:
    admin()
    host = joining()
    host.slots.all().delete()
    burn_ins_due.ask_due(timezone.now())
    assert not Host.objects.get(pk=host.pk).draining


def test_no_other_drain_lets_it_in_before_it_has_passed() -> None:
    admin()
    host = joining()
    quarantine.by_burn_in(host.pk, None, "It burns.")
    registry.enable(host.pk, actor="server")
    host.refresh_from_db()
    assert host.drain_cause == Host.Drain.BURN_IN
    other = make_host("gpu2", 1)
    server_drains.drain_for_cleanup(other.pk, "Processes are left.")
    wanting = ResourcePool.objects.create(name="a100")
    pool_edits.edit("a100", {"burn_in": "before_joining"}, actor="user:ada")
    wanting.refresh_from_db()
    registry.change_pool(other.pk, wanting, actor="user:ada")
    server_drains.lift_drain(other.pk)
    other.refresh_from_db()
    assert other.drain_cause == Host.Drain.BURN_IN
    registry.enable(other.pk, actor="user:ada")
    other.refresh_from_db()
    assert (other.draining, other.awaits_burn_in) == (False, False)


def test_few_are_open_at_a_time_and_the_oldest_come_first() -> None:
    admin()
    pool_edits.edit(default_pool().name, {"burn_in": "weekly"}, actor="user:ada")
    for number in range(1, 4):
        make_host(f"gpu{number}", 1)
    first = asked(Host.objects.get(name="gpu1"))
    ended(started(first))
    burn_in.judge_due()
    for _ in range(2):
        burn_ins_due.ask_due(timezone.now() + timedelta(hours=1))
    opened = BurnIn.objects.exclude(command=first)
    assert opened.count() == 1 and opened.get().host.name != "gpu1"


def test_rates_of_the_host_are_told_and_hold_nothing_back() -> None:
    pool_edits.edit(default_pool().name, {"burn_in_do": "quarantine"}, actor="user:ada")
    *others, slow = pool_of(4, slots=1)
    for each, rate in [*((host, 900.0) for host in others), (slow, 90.0)]:
        member = started(asked(each))
        tells(member, figure("disk_write", rate, None), {"type": "burn_in_done"})
        ended(member)
        burn_in.judge_due()
    [event] = Event.objects.filter(reason=burn_in.FOUND)
    assert event.subject == str(slow.pk)
    assert not Host.objects.filter(draining=True).exists()
