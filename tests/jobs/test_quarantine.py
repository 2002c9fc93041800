"""Hosts and GPUs taken out of use because of what their kernel reports or they measure, and let back."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from accounts.refusals import Refusal
from dispatch.keeping import host_pace
from dispatch.watching import host_signs
from events.models import Event
from hosts import registry
from hosts.health import signs
from hosts.models import Host, HostSign, Slot
from hosts.pools import default_pool
from jobs import quarantine
from jobs.models import Allocation, Job, Member, SlotHold
from jobs.states import MemberState, StopKind
from tests.rig.rows import make_gang

pytestmark = pytest.mark.django_db

LOST = "NVRM: Xid (PCI:0000:01:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
REMAP = "NVRM: Xid (PCI:0000:01:00): 64, Row Remapper Failed"
ECC = "NVRM: Xid (PCI:0000:02:00): 48, An uncorrectable double bit error (DBE) has been detected"
UNCORRECTED = "EDAC MC1: 1 UE memory scrubbing error on CPU_SrcID#1"
OWN_FAULT = "NVRM: Xid (PCI:0000:01:00): 31, pid=4711, name=python, MMU Fault: ENGINE GRAPHICS"


def make_host(name: str, gpus: int = 8) -> Host:
    host = Host.objects.create(
        name=name, pool=default_pool(), admission="ready", contact="reachable", boot_id="b1",
        facts={"gpus": [{"uuid": f"{name}-{each}", "pci": f"0000:{each:02x}:00"} for each in range(gpus)]},
    )  # fmt: skip
    for each in range(gpus):
        Slot.objects.create(host=host, index=each, kind=Slot.Kind.CUDA, uuid=f"{name}-{each}")
    return host


@pytest.fixture
def host() -> Host:
    return make_host("gpu1")


def tell(host: Host, *lines: str, boot: str = "b1", since: int = 1_000) -> None:
    """The host's answer to a look at its kernel's log."""
    told = [[since + number, line] for number, line in enumerate(lines)]
    host_signs.take_in(
        host.pk, {"kernel": {"boot": boot, "source": "kmsg", "until": since + len(lines), "lines": told}}
    )
    host.refresh_from_db()


def out(host: Host) -> list[int]:
    return [slot.index for slot in host.slots.all() if slot.draining and slot.quarantine]


def test_one_bad_gpu_of_eight_leaves_seven_in_use(host: Host) -> None:
    tell(host, LOST, OWN_FAULT)
    assert out(host) == [1] and host.state == "ready"
    [lost] = HostSign.objects.filter(code=79)
    assert (lost.action, lost.slot and lost.slot.index, lost.done) == (
        "reboot", 1, "Slot 1 was taken out of use.",
    )  # fmt: skip
    assert HostSign.objects.get(code=31).done == ""
    event = Event.objects.get(reason=quarantine.REASON)
    assert event.detail["slot"] == 1 and "fallen off the bus" in event.detail["sentence"]


def test_the_same_line_told_twice_is_one_sign(host: Host) -> None:
    tell(host, LOST)
    registry.switch_slot(host.slots.get(index=1).pk, enabled=True, actor="user:ada")
    tell(host, LOST)
    assert HostSign.objects.count() == 1 and out(host) == [], "a person has let it back since"
    assert host_signs.question(host)["kernel"] == {"boot": "b1", "until": 1_001}


def test_what_names_no_gpu_takes_the_host_although_a_slot_is_out(host: Host) -> None:
    tell(host, LOST)
    tell(host, UNCORRECTED, since=5_000)
    assert host.state == "draining" and host.drain_cause == Host.Drain.FAULT
    assert host.why_not_used.startswith("The host's memory has an error")
    quarantine.release(host.pk, None, actor="user:ada")
    host.refresh_from_db()
    assert host.state == "ready" and not host.quarantine


def training_on(host: Host, slot: int) -> Allocation:
    """The running attempt of a trial that holds the slot."""
    [member] = make_gang(1)
    Job.objects.filter(pk=member.allocation.task.job_id).update(kind=Job.Kind.EXPERIMENT)
    SlotHold.objects.create(slot=host.slots.get(index=slot), member=member)
    return member.allocation


@pytest.mark.parametrize(("line", "asked"), [(LOST, StopKind.PREEMPT), (REMAP, StopKind.NONE)])
def test_a_training_is_asked_to_leave_where_it_fails_anyway(host: Host, line: str, asked: StopKind) -> None:
    attempt, other = training_on(host, 1), training_on(host, 2)
    tell(host, line)
    attempt.refresh_from_db()
    other.refresh_from_db()
    assert (attempt.stop_kind, other.stop_kind) == (asked, StopKind.NONE)
    assert ("asked to save" in HostSign.objects.get().done) == bool(asked)


def test_the_server_takes_out_no_more_than_its_share_of_a_pool(host: Host) -> None:
    others = [make_host(f"gpu{number}") for number in range(2, 4)]
    tell(host, UNCORRECTED)
    tell(others[0], LOST)
    assert host.state == "draining" and out(others[0]) == []
    assert HostSign.objects.get(host=others[0]).done.startswith(
        "Nothing was taken out of use: of the pool's slots 8 are out"
    )
    tell(others[0], LOST, since=5_000)
    quarantine.judge_again()
    [event] = Event.objects.filter(reason=quarantine.WITHHELD)
    assert event.subject == str(others[0].pk), "told once, however often it is judged"
    assert "fallen off the bus" in event.detail["sentence"] and "8 are out" in event.detail["sentence"]
    quarantine.by_hand(others[0].pk, 1, "smells burnt", actor="user:ada")
    assert out(others[0]) == [1], "a person may"


def test_what_the_share_did_not_allow_is_done_once_there_is_room(host: Host) -> None:
    other = make_host("gpu2")
    tell(host, UNCORRECTED)
    tell(other, LOST)
    quarantine.judge_again()
    assert out(other) == []
    quarantine.release(host.pk, None, actor="user:ada")
    quarantine.judge_again()
    assert out(other) == [1] and HostSign.objects.get(host=other).settled


def test_what_a_person_wants_in_use_stays_so_for_a_time_and_then_the_verdict_holds_again(host: Host) -> None:
    tell(host, LOST)
    for hours, reason, wrong in ((0, "demo", "hours"), (721, "demo", "hours"), (4, " ", "reason")):
        with pytest.raises(Refusal) as refused:
            quarantine.release(host.pk, 1, actor="user:ada", hours=hours, reason=reason)
        assert refused.value.field == wrong
    quarantine.release(host.pk, 1, actor="user:ada", hours=4, reason="the demo needs it")
    attempt = training_on(host, 1)
    tell(host, LOST, since=9_000)
    quarantine.judge_again()
    attempt.refresh_from_db()
    assert out(host) == [] and attempt.stop_kind == StopKind.NONE
    said = set(HostSign.objects.values_list("done", flat=True))
    assert len(said) == 1 and said.pop().endswith("as ada has decided: the demo needs it")
    over = (timezone.now() - timedelta(seconds=1)).isoformat()
    Slot.objects.filter(index=1).update(overruled={"until": over, "reason": "the demo needs it", "by": "ada"})
    quarantine.judge_again()
    assert out(host) == [1]


def test_a_whole_host_stays_in_use_for_a_time_but_a_person_takes_it_out(host: Host) -> None:
    tell(host, UNCORRECTED)
    quarantine.release(host.pk, None, actor="user:ada", hours=4, reason="the demo needs it")
    tell(host, UNCORRECTED, since=9_000)
    assert host.state == "ready"
    tell(host, LOST, since=10_000)
    assert out(host) == [], "nor is a part of it taken out"
    with pytest.raises(Refusal):
        quarantine.release(host.pk, None, actor="user:ada", reason="without hours")
    quarantine.by_hand(host.pk, None, "the demo is over", actor="user:bob")
    host.refresh_from_db()
    assert host.state == "draining" and host.overruled == {}


def test_a_gpu_that_is_no_slot_takes_nothing_out(host: Host) -> None:
    tell(host, LOST.replace("0000:01", "0000:77"))
    assert out(host) == [] and host.state == "ready"
    assert HostSign.objects.get().done == "No slot of the host uses it."


def test_a_worse_fault_of_a_slot_that_is_out_asks_its_training_to_leave(host: Host) -> None:
    attempt = training_on(host, 1)
    tell(host, REMAP)
    tell(host, LOST, since=9_000)
    attempt.refresh_from_db()
    assert out(host) == [1] and attempt.stop_kind == StopKind.PREEMPT


def test_whoever_enables_it_ends_the_quarantine_and_its_return_counts(host: Host) -> None:
    tell(host, LOST)
    registry.switch_slot(host.slots.get(index=1).pk, enabled=True, actor="user:ada")
    assert Event.objects.get(reason=registry.QUARANTINE_OVER).detail == {
        "name": "gpu1",
        "slot": 1,
        "by_sign": True,
    }
    tell(host, LOST, since=9_000)
    assert host.slots.get(index=1).quarantine["released"] == 1


def test_probation_ends_a_day_after_a_reboot_without_another_fault(host: Host) -> None:
    tell(host, LOST)
    later = timezone.now() - timedelta(days=2)
    HostSign.objects.update(at=later)
    assert quarantine.end_probation() == 0, "it was not rebooted"
    Host.objects.update(boot_id="b2")
    tell(host, ECC, boot="b2")
    assert out(host) == [1, 2]
    assert quarantine.end_probation() == 1, "the other GPU has a fault of its own since"
    assert out(host) == [2]
    tell(host, LOST, boot="b2", since=9_000)
    HostSign.objects.update(at=later)
    Host.objects.update(boot_id="b3")
    assert quarantine.end_probation() == 1 and out(host) == [1], (
        "it failed again within a week: a person has to look"
    )


@pytest.mark.parametrize(
    "answer",
    [
        {}, {"kernel": {"boot": "\x00", "source": "\ud800", "until": 1, "lines": []}},
        {"kernel": None}, {"kernel": []}, {"kernel": {}}, {"kernel": {"lines": "NVRM: Xid"}},
        {"kernel": {"boot": "x" * 999, "until": -1, "lines": [["1", LOST], [True, LOST], [2**70, LOST], [1], None]}},
        {"kernel": {"boot": 7, "until": "9", "lines": [[5, "\x00" + "A" * 10_000]], "denied": "d" * 9_999}},
    ],
)  # fmt: skip
def test_a_host_that_answers_garbage_harms_nothing(host: Host, answer: dict[str, Any]) -> None:
    host_signs.take_in(host.pk, answer)
    host.refresh_from_db()
    assert not HostSign.objects.exists() and out(host) == [] and host.state == "ready"


def test_a_flood_of_lines_is_bounded(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hosts.health.signs.MOST_SIGNS", 150)
    for round in range(3):
        tell(host, *(f"{OWN_FAULT} {number}" for number in range(200)), since=10_000 * (round + 1))
    assert HostSign.objects.count() == 150
    assert HostSign.objects.first().kernel_us == 30_199  # type: ignore[union-attr]


def refused(act: Callable[[], object]) -> str:
    with pytest.raises(Refusal) as refusal:
        act()
    return str(refusal.value)


def test_what_a_person_may_not_do_is_said(host: Host) -> None:
    by = "user:ada"
    assert "has no slot 9; it has 0, 1, 2" in refused(lambda: quarantine.by_hand(host.pk, 9, "why", actor=by))
    assert refused(lambda: quarantine.by_hand(host.pk, None, " ", actor=by)).startswith("Say why")
    registry.drain(host.pk, actor=by)
    assert "is not in quarantine" in refused(lambda: quarantine.release(host.pk, None, actor=by))


def measure(host: Host, times: int = 1, *, boot: str = "b1", **told: Any) -> None:
    """So many looks of the host at itself; `told` is what it answers beside a healthy host."""
    request = host_signs.question(host)
    for _ in range(times):
        CLOCK[0] += 1
        condition = {
            "boot": boot,
            "at": CLOCK[0],
            "gpus": {},
            "ports": {},
            "folders": {},
            "now": time.time(),
            **told,
        }
        host_signs.take_in(host.pk, {"condition": condition}, request)
    host.refresh_from_db()


#: the host's clock, for all hosts
CLOCK = [0]
UP, DOWN = ({"mlx5_0/1": {"state": state, "layer": "InfiniBand"}} for state in ("ACTIVE", "DOWN"))


def test_a_gpu_that_nvml_has_lost_is_out_with_its_evidence_and_its_training_leaves(host: Host) -> None:
    assert host_signs.question(host)["condition"]["gpus"]["gpu1-1"] == "0000:01:00"
    attempt = training_on(host, 1)
    measure(host, gpus={"gpu1-1": {"lost": 1}})
    assert out(host) == [], "one look is not enough"
    measure(host, gpus={"gpu1-1": {"lost": 1}})
    attempt.refresh_from_db()
    assert out(host) == [1] and attempt.stop_kind == StopKind.PREEMPT
    [sign] = HostSign.objects.all()
    assert (sign.source, sign.slot and sign.slot.index, sign.action) == ("measured", 1, "reboot")
    assert sign.line == "NVML, GPU 0000:01:00: the GPU is lost (NVML_ERROR_GPU_IS_LOST)"


def test_what_ends_by_itself_comes_back_by_itself_but_not_twice_in_a_week(host: Host) -> None:
    measure(host, ports=UP)
    measure(host, 4, ports=DOWN)
    assert host.state == "draining" and host.why_not_used.startswith("An InfiniBand port is down.")
    assert quarantine.end_probation() == 0
    measure(host, 10, ports=UP)
    assert quarantine.end_probation() == 1
    host.refresh_from_db()
    assert host.state == "ready"
    measure(host, 4, ports=DOWN)
    measure(host, 10, ports=UP)
    assert quarantine.end_probation() == 0, "it flaps: a person has to look"


def test_another_fault_keeps_out_what_has_healed(host: Host) -> None:
    measure(host, ports=UP)
    measure(host, 4, ports=DOWN)
    tell(host, UNCORRECTED)
    measure(host, 10, ports=UP)
    assert quarantine.end_probation() == 0


def test_probation_does_not_end_while_the_fault_is_measured(host: Host) -> None:
    measure(host, 2, gpus={"gpu1-1": {"rows_failed": 1}})
    assert out(host) == [1]
    Host.objects.update(boot_id="b2")
    measure(host, 1, boot="b2", gpus={"gpu1-1": {"rows_failed": 1}})
    HostSign.objects.update(at=timezone.now() - timedelta(days=2))
    assert quarantine.end_probation() == 0
    measure(host, 9, boot="b2", gpus={"gpu1-1": {"rows_failed": 0}})
    assert quarantine.end_probation() == 0
    measure(host, 1, boot="b2", gpus={"gpu1-1": {"rows_failed": 0}})
    assert quarantine.end_probation() == 1


def test_after_a_reboot_the_first_look_lets_nothing_back(host: Host) -> None:
    measure(host, 2, driver_late=75.0)
    assert host.state == "draining"
    Host.objects.update(boot_id="b2")
    for driver_late, times in ((9.0, 1), (None, 20), (0, 9)):
        measure(host, times, boot="b2", driver_late=driver_late)
        assert quarantine.end_probation() == 0
    measure(host, boot="b2", driver_late=0)
    assert quarantine.end_probation() == 1


def test_a_port_that_vanished_after_a_reboot_has_its_probation(host: Host) -> None:
    measure(host, ports=UP)
    measure(host, 4, ports=DOWN)
    Host.objects.update(boot_id="b2")
    measure(host, 20, boot="b2", ports={})
    assert quarantine.end_probation() == 0
    HostSign.objects.update(at=timezone.now() - timedelta(days=2))
    assert quarantine.end_probation() == 1


def test_a_state_of_the_host_keeps_out_no_slot_of_it(host: Host) -> None:
    tell(host, LOST)
    Host.objects.update(boot_id="b2")
    HostSign.objects.update(at=timezone.now() - timedelta(days=2))
    measure(host, boot="b2", ports=UP)
    measure(host, 3, boot="b2", ports=DOWN)
    assert quarantine.end_probation() == 1


def test_what_there_was_no_room_for_is_remembered_after_its_look_and_after_a_reboot(host: Host) -> None:
    memory, port = make_host("gpu2"), make_host("gpu3")
    measure(memory, gpus={"gpu2-1": {"ecc_volatile": 0}})
    measure(port, ports=UP)
    tell(host, UNCORRECTED)
    measure(memory, 5, gpus={"gpu2-1": {"ecc_volatile": 1}})
    measure(port, 4, ports=DOWN)
    Host.objects.filter(pk=port.pk).update(boot_id="b2")
    measure(port, 4, boot="b2", ports=DOWN)
    waiting = HostSign.objects.filter(settled=False).values_list("host__name", "kind", "boot_id")
    assert {*waiting} >= {("gpu2", "ecc_unexplained", "b1"), ("gpu3", "port_down", "b2")}


def test_what_was_over_before_there_was_room_takes_nothing_out(host: Host) -> None:
    other = make_host("gpu2")
    measure(other, ports=UP)
    tell(host, UNCORRECTED)
    measure(other, 4, ports=DOWN)
    assert HostSign.objects.get(host=other).done.startswith("Nothing was taken out of use")
    measure(other, 10, ports=UP)
    quarantine.release(host.pk, None, actor="user:ada")
    quarantine.judge_again()
    other.refresh_from_db()
    assert other.state == "ready" and HostSign.objects.get(host=other).settled


@pytest.mark.parametrize("gpus", [None, 7, ["x"], [{"uuid": [], "pci": {}}], [{"uuid": "GPU-1"}]])
def test_facts_of_any_form_ask_about_no_gpu(host: Host, gpus: object) -> None:
    host.facts = {"gpus": gpus}
    assert host_signs.question(host)["condition"]["gpus"] == {}


def test_a_host_that_is_slower_than_its_peers_is_told_once_and_stays_in_use(host: Host) -> None:
    now = timezone.now()
    for number in range(4):
        own, *others = make_gang(3)
        Member.objects.filter(pk=own.pk).update(host=host)
        Member.objects.filter(allocation=own.allocation).update(ended_at=now - timedelta(hours=1))
        assert HostSign.objects.count() == (number == 3)
        host_pace.note(
            own.allocation_id, {host.name: 1.4, others[0].host.name: 0.7, others[1].host.name: 1.0}, now
        )
    [sign] = HostSign.objects.all()
    assert (sign.kind, sign.host, sign.scope, sign.settled) == ("host_slow", host, "", True)
    assert sign.line.startswith(
        "Steps took 1.40 to 1.40 times as long as on its peers in 3 of 3 runs within 14 days"
    )
    host.refresh_from_db()
    assert host.state == "ready"


def test_processes_of_a_run_that_ended_are_told_and_hold_nothing(host: Host) -> None:
    [member] = make_gang(1)
    key, ended = member.run_key, timezone.now() - timedelta(seconds=90)
    left = {"runs": {key: {"tm": 2, "eve": 7}, "someone.else": {"tm": 1}}, "account": "tm"}
    measure(host, 4, **left)
    assert not HostSign.objects.exists(), "it runs, on another host"
    Member.objects.filter(pk=member.pk).update(host=host, state=MemberState.ENDED, ended_at=ended)
    measure(host, 4, **left)
    [sign] = HostSign.objects.all()
    assert sign.line == f"2 processes of the run {key}, which has ended" and host.state == "ready"
    member.refresh_from_db()
    assert member.cleaning_since is None, "its marker is what a process says"


LINES = [LOST, REMAP, ECC, UNCORRECTED, OWN_FAULT, LOST.replace("0000:01", "0000:77"), "NVRM: Xid", ""]
NUMBERS = [
    "lost",
    "rows_failed",
    "rows_pending",
    "ecc_volatile",
    "throttle",
    "pages",
    "width",
    "width_most",
    "nothing",
]
SIGNS = st.one_of(
    st.tuples(st.just("line"), st.sampled_from(LINES)),
    st.tuples(
        st.just("gpu"),
        st.tuples(
            st.integers(0, 3), st.sampled_from(NUMBERS), st.sampled_from([0, 1, 2, 16, 99, -1, None, "x"])
        ),
    ),
    st.tuples(st.just("port"), st.sampled_from([UP, DOWN, {}, [], {"\x00": {}}])),
    st.tuples(st.just("late"), st.sampled_from([0, 61, "x"])),
    st.tuples(st.just("wait"), st.integers(1, 10)),
)


@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.lists(SIGNS, max_size=12))
def test_no_healthy_run_is_ever_ended(host: Host, told: list[Any]) -> None:
    """Whatever a host reports: nothing ends, and only a training on what has failed is asked to save and leave."""
    Job.objects.all().delete()
    HostSign.objects.all().delete()
    Slot.objects.update(draining=False, quarantine={})
    Host.objects.update(draining=False, drain_cause="", quarantine={}, condition={}, kernel_log={})
    attempts = {slot: training_on(host, slot) for slot in range(4)}
    gpus: dict[str, dict[str, Any]] = {f"gpu1-{slot}": {} for slot in range(4)}
    more: dict[str, Any] = {}
    for number, (kind, value) in enumerate(told):
        if kind == "line":
            tell(host, value, since=1_000 * number)
        elif kind == "gpu":
            gpus[f"gpu1-{value[0]}"][value[1]] = value[2]
        elif kind != "wait":
            more |= {"ports": value} if kind == "port" else {"driver_late": value}
        measure(host, value if kind == "wait" else 1, gpus=gpus, **more)
    quarantine.judge_again()
    failing = [row for row in HostSign.objects.all() if (verdict := signs.verdict_on(row)) and verdict.fails]
    failed = {row.slot.index for row in failing if row.slot}
    for slot, attempt in attempts.items():
        attempt.refresh_from_db()
        member = Member.objects.get(allocation=attempt)
        assert member.state != MemberState.ENDED
        assert attempt.stop_kind == (StopKind.PREEMPT if slot in failed else StopKind.NONE)
