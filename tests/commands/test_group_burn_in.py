"""A burn-in of hosts together is a gang that yields; the host that is slow with all others is named, by the rules."""

from __future__ import annotations

from contextlib import suppress
from itertools import combinations
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts.refusals import Refusal
from commands import burn_in, burn_ins_due, group_burn_in
from commands.models import Command, GroupBurnIn
from commands.states import CommandState
from commands.transitions import kill
from dispatch.passes import pool_pass
from dispatch.runs import effects, settle
from events.models import Event
from hosts import pair_checks, pool_edits, registry
from hosts.models import Host, ResourcePool, Slot
from hosts.pair_checks import PairFound
from hosts.pools import default_pool
from jobs import transitions
from jobs.models import Allocation, Member, Task
from jobs.states import Reason, StopKind, TaskState
from shown.hosts import group_burn_in as shown
from tests.rig.world import make_host, make_user, submit_experiment
from trainmaster.burn_in.bad_part import search

pytestmark = pytest.mark.django_db


def hosts_of(count: int, slots: int = 2) -> list[Host]:
    return [make_host(f"gpu{number}", slots) for number in range(1, count + 1)]


def asked(hosts: list[Host]) -> Command:
    return group_burn_in.ask([host.pk for host in hosts], owner=make_user(), actor="user:ada")


def started(command: Command) -> list[Member]:
    """The members of the gang, in the order of its hosts' names."""
    pool_pass.run(default_pool().pk)
    rows = Member.objects.select_related("host", "allocation__task__job", "allocation__pool")
    members = list(rows.filter(allocation__task=command.task).exclude(state="ENDED").order_by("host__name"))
    for member in members:
        transitions.member_launched(member.pk, boot_id="b")
        transitions.member_running(member.pk)
    return members


def tells(member: Member, *records: dict[str, Any]) -> None:
    effects.apply(member, [{"k": "core", "d": record} for record in records], None)


def rate(value: float, *members: Member) -> dict[str, Any]:
    found = {"measure": "all_reduce", "parts": sorted(member.index for member in members), "value": value}
    return {"type": "burn_in_rates", "how": "gloo", "rates": [found]}


def measure(members: list[Member], bad: str = "", value: float = 1.1) -> None:
    """Every host tells the rates of its pairs, and the first that all is done."""
    for one, other in combinations(members, 2):
        is_slow = bad in (one.host.name, other.host.name)
        for member in (one, other):
            tells(member, rate(value if is_slow else 9.8, one, other))
    tells(next(member for member in members if member.index == 0), {"type": "burn_in_done"})


def end(members: list[Member], code: int = 0) -> Command:
    for member in members:
        settle.member_exited(member.pk, code=code, signal=None, ended_at=1.0, first_failure=None, boot_id="b")
    return Command.objects.get(task=members[0].allocation.task)


def test_it_is_a_gang_of_the_lowest_priority_on_just_these_hosts() -> None:
    *hosts, _ = hosts_of(4)
    command = asked(hosts)
    assert (command.job.priority, command.job.preemptible, command.task.slots) == (99, True, 6)
    assert [member.host for member in started(command)] == hosts
    assert asked(list(reversed(hosts))) == command, "one at a time"
    assert asked(hosts[:2]) != command


def test_the_slow_host_is_told_with_its_evidence_and_stays_in_use() -> None:
    hosts = hosts_of(4)
    members = started(command := asked(hosts))
    measure(members, "gpu4")
    assert end(members).state == CommandState.COMPLETED
    group_burn_in.judge_due()
    [event] = Event.objects.filter(reason=burn_in.FOUND)
    assert event.subject == str(hosts[3].pk)
    assert event.detail["sentence"] == (
        "Burn-in: gpu4: all-reduce with each of 3 others 1.1 GB/s, the others among themselves 9.8 GB/s."
    )
    assert not Host.objects.filter(draining=True).exists()
    rows = shown.newest_of(hosts[0])
    assert rows is not None and [each.host for each in rows.findings] == ["gpu4"]
    assert [each.hosts for each in rows.rates] == [["gpu1", "gpu2"], ["gpu1", "gpu3"], ["gpu1", "gpu4"]]
    assert len(shown.find(command.pk).rates) == 6
    later = asked(hosts)
    kill(later.pk, actor="user:ada")
    assert shown.newest_of(hosts[0]) == rows, "one that was killed replaces no result"


def test_a_pool_may_have_it_taken_out_of_use_unless_something_else_ran_there() -> None:
    pool_edits.edit(default_pool().name, {"burn_in_do": "quarantine"}, actor="user:ada")
    hosts = hosts_of(4)
    members = started(asked(hosts))
    submit_experiment(slots=0)
    pool_pass.run(default_pool().pk)
    beside = Member.objects.filter(host__in=hosts).exclude(pk__in=[member.pk for member in members])
    assert beside.update(host=hosts[3], ended_at=timezone.now()) == 1, "over before anybody reports"
    for member in members:
        member.refresh_from_db(fields=["started_at"])
    measure(members, "gpu4")
    end(members)
    group_burn_in.judge_due()
    assert not Host.objects.exclude(quarantine={}).exists()
    assert Event.objects.filter(reason=burn_in.FOUND, subject=str(hosts[3].pk)).exists()


def test_within_the_share_it_is_quarantined_until_a_person_releases_it() -> None:
    pool_edits.edit(default_pool().name, {"burn_in_do": "quarantine"}, actor="user:ada")
    hosts = hosts_of(4)
    members = started(asked(hosts))
    measure(members, "gpu4")
    end(members)
    with CaptureQueriesContext(connection) as queries:
        group_burn_in.judge_due()
    assert [host.name for host in Host.objects.exclude(quarantine={})] == ["gpu4"]
    locks = [each["sql"].split(" FROM ")[1] for each in queries if " FOR " in each["sql"]]
    of_hosts = [place for place, lock in enumerate(locks) if lock.startswith('"hosts_host"')]
    of_pools = [place for place, lock in enumerate(locks) if lock.startswith('"hosts_resourcepool"')]
    assert of_hosts[0] < of_pools[0] and " IN (" in locks[of_hosts[0]], (
        "all hosts are locked before their pool"
    )


def test_it_gives_way_to_other_work_and_starts_again() -> None:
    hosts = hosts_of(2)
    members = started(command := asked(hosts))
    tells(members[0], rate(9.8, *members))
    submit_experiment(slots=1)
    pool_pass.run(default_pool().pk)
    attempt = Allocation.objects.get(task=command.task)
    assert (attempt.stop_kind, attempt.stop_save_seconds) == (StopKind.PREEMPT, burn_in.LEAVE_SECONDS)
    assert end(members).state == CommandState.ACTIVE
    assert GroupBurnIn.objects.get().rates == []
    assert Task.objects.get(pk=command.task_id).state == TaskState.WAITING


def test_one_that_does_not_finish_says_so_and_names_no_host() -> None:
    hosts = hosts_of(3)
    members = started(asked(hosts))
    settle.member_exited(members[1].pk, code=70, signal=None, ended_at=1.0, first_failure=None, boot_id="b")
    end([members[0], members[2]], code=143)
    group_burn_in.judge_due()
    [finding] = GroupBurnIn.objects.get().findings
    assert (finding["host"], finding["sentence"]) == (None, "it did not finish: exit code 70 on gpu2")
    assert not Event.objects.filter(reason=burn_in.FOUND).exists()


def test_a_liar_spoils_only_its_own_pairs() -> None:
    hosts = hosts_of(4)
    members = started(asked(hosts))
    measure(members)
    liar, one, other, _ = members
    tells(
        liar,
        rate(0.0, one, other),
        rate(0.1, liar, one),
        {"type": "burn_in_rates", "rates": 7, "how": "gloo"},
    )
    end(members)
    group_burn_in.judge_due()
    found = GroupBurnIn.objects.get().findings
    assert [each["hosts"] for each in found] == [[str(liar.host_id), str(one.host_id)]]


def test_a_batch_is_kept_by_one_write_and_what_is_known_already_by_none() -> None:
    members = started(asked(hosts_of(2)))
    with CaptureQueriesContext(connection) as first:
        tells(members[0], *[rate(9.0 - number / 100, *members) for number in range(100)])
    assert len([each for each in first if "UPDATE" in each["sql"] and "group" in each["sql"]]) == 2, (
        "and a lock"
    )
    assert [each["value"] for each in GroupBurnIn.objects.get().rates] == [8.01]
    with CaptureQueriesContext(connection) as again:
        tells(members[0], *[rate(9.0, *members)] * 2000)
    assert not [each for each in again if each["sql"].startswith("UPDATE")]


def test_a_host_that_has_left_the_pool_meanwhile_is_left_alone() -> None:
    pool_edits.edit(default_pool().name, {"burn_in_do": "quarantine"}, actor="user:ada")
    hosts = hosts_of(4)
    members = started(asked(hosts))
    measure(members, "gpu4")
    end(members)
    registry.change_pool(hosts[3].pk, ResourcePool.objects.create(name="a100"), actor="user:ada")
    group_burn_in.judge_due()
    assert [each["host"] for each in GroupBurnIn.objects.get().findings] == [str(hosts[3].pk)]
    assert not Host.objects.exclude(quarantine={}).exists()
    assert not Event.objects.filter(reason=burn_in.FOUND).exists()


def test_the_search_is_followed_in_the_order_of_the_ranks() -> None:
    hosts = hosts_of(5)
    members = started(asked(hosts))
    for member in members:  # against the order of the names
        Member.objects.filter(pk=member.pk).update(index=10 + len(members) - member.index)
    for place, member in enumerate(reversed(members)):
        Member.objects.filter(pk=member.pk).update(index=place)
        member.index = place
    measure(members)
    bad, going = members[1], search(range(5))
    tells(bad, rate(0.0, *members))
    subsets = next(going)
    with suppress(StopIteration):
        while True:
            answers = [bad.index not in subset for subset in subsets]
            for subset, is_well in zip(subsets, answers, strict=True):
                measured = [member for member in members if member.index in subset]
                tells(measured[0], rate(9.0 if is_well else 0.0, *measured))
            subsets = going.send(answers)
    end(members)
    group_burn_in.judge_due()
    assert [each["host"] for each in GroupBurnIn.objects.get().findings] == [str(bad.host_id)]


@pytest.mark.parametrize(
    ("count", "sentence"), [(1, "Found 1 host, allowed: 2 to 32"), (33, "Found 33 hosts, allowed: 2 to 32")]
)
def test_it_takes_two_to_thirty_two_hosts(count: int, sentence: str) -> None:
    hosts = [make_host(f"gpu{number}", 1) for number in range(count)]
    with pytest.raises(Refusal, match=sentence):
        asked(hosts)


def test_what_cannot_be_one_gang_is_refused() -> None:
    one, other, third = make_host("gpu1", 2), make_host("gpu2", 2), make_host("gpu3", 1)
    with pytest.raises(Refusal, match="Slots in use: gpu1 2, gpu3 1; a gang needs as many on each host"):
        asked([one, third])
    pair_checks.note(one, other, PairFound(False, "gpu1 cannot reach gpu2 at 10.0.0.2: timed out."))
    with pytest.raises(Refusal, match=r"gpu1 and gpu2 cannot be in one gang: gpu1 cannot reach gpu2"):
        asked([one, other])
    Slot.objects.filter(host=other).update(kind=Slot.Kind.CUDA)
    with pytest.raises(Refusal, match="Some of these hosts have GPUs and some have none"):
        asked([one, other])
    other.slots.filter(index=0).update(uuid="MIG-1f")
    with pytest.raises(Refusal, match=r"gpu2 has parts of divided GPUs \(MIG\)"):
        asked([one, other])
    registry.change_pool(other.pk, ResourcePool.objects.create(name="a100"), actor="user:ada")
    with pytest.raises(Refusal, match="gpu1 is in pool default, and gpu2 not"):
        asked([one, other])
    Host.objects.filter(pk=one.pk).update(draining=True, drain_cause=Host.Drain.BURN_IN)
    with pytest.raises(Refusal, match="gpu1 gets no work before its own burn-in has passed"):
        asked([one, make_host("gpu4", 2)])


def test_while_it_waits_it_follows_its_hosts() -> None:
    hosts = hosts_of(3)
    command = asked(hosts)
    for host in hosts:
        registry.switch_slot(host.slots.order_by("index")[0].pk, enabled=False, actor="user:ada")
    burn_ins_due.ask_due(timezone.now())
    assert Task.objects.get(pk=command.task_id).slots == 3
    registry.remove(hosts[0].pk, actor="user:ada")
    burn_ins_due.ask_due(timezone.now())
    command.refresh_from_db()
    assert command.state == CommandState.CANCELED
    group_burn_in.judge_due()
    assert not Event.objects.filter(reason=burn_in.FOUND).exists()
    assert Allocation.objects.filter(stop_reason=Reason.POOL_CHANGED).count() == 0


@pytest.mark.parametrize("left", [0, 1])
def test_it_is_withdrawn_when_its_hosts_can_be_no_gang_any_more(left: int) -> None:
    hosts = hosts_of(3)
    command = asked(hosts)
    for slot in hosts[1].slots.order_by("index")[left:]:
        registry.switch_slot(slot.pk, enabled=False, actor="user:ada")
    burn_ins_due.ask_due(timezone.now())
    command.refresh_from_db()
    assert command.state == CommandState.CANCELED
    assert command.ending == (f"its hosts can be no gang any more: slots in use: gpu1 2, gpu2 {left}, gpu3 2")


def test_a_slow_pair_is_told_beside_the_other_pairs_of_the_pool() -> None:
    hosts = hosts_of(5)
    members = started(asked(hosts[:3]))
    measure(members)
    end(members)
    members = started(asked(hosts[3:]))
    measure(members, "gpu4", value=2.0)
    end(members)
    group_burn_in.judge_due()
    told = Event.objects.filter(reason=burn_in.FOUND)
    assert sorted(event.subject for event in told) == sorted(str(host.pk) for host in hosts[3:])
    assert (
        "gpu4 and gpu5: all-reduce 2 GB/s, the median of 3 other pairs of the pool is 9.8 GB/s"
        in (told[0].detail["sentence"])
    )
