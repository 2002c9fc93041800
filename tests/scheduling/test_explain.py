"""Every blocker of one request."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduling.explain import MOST_HOSTS, explain
from scheduling.plan import decide
from scheduling.reasons import NEVER, WaitCode
from scheduling.world import HostView
from tests.rig.pool_worlds import UPLOADED, World, host


def sentences(world: World, label: str) -> list[str]:
    return [reason.sentence for reason in explain(world.snapshot, label)]


def test_every_blocker_is_named_not_the_first_alone() -> None:
    world = World(
        [host(1, 4), host(2, 4, outside={0: "root", 1: "root"}), host(3, 4, silent=True)], preemption=False
    )
    world.submit("exp 1", 3, priority=10)
    world.submit("cmd 2", 2, preemptible=False)
    world.settle()
    world.submit("exp 3", 4, max_slots=6)
    world.settle()
    assert sentences(world, "exp 3") == [
        "needs 4 slots on one host: gpu-1 is reserved for it (1 of 4 free); waiting for exp 1 to end",
        "not available to it: gpu-2 (2 slots in use from outside the queue by root) and gpu-3 (silent)",
        "gpu-1: 1 free, 4 needed; held by exp 1 (3, runs until it ends)",
        "2 jobs ahead",
        "preemption is off in pool default, so no work is stopped for it",
    ]


def test_a_trial_is_not_told_that_its_own_search_is_in_its_way_as_if_it_were_anothers() -> None:
    world = World([host(1, 2)])
    for number in (1, 2, 3):
        world.submit(f"trial {number}", 1, job="search")
    world.submit("exp 4", 1)
    world.settle()
    assert sentences(world, "trial 3") == [
        "no slot is free; other trials of its search hold 2 slots",
        "gpu-1: 0 free, 1 needed; held by another trial of its search (1, same priority) and "
        "another trial of its search (1, same priority)",
        "no jobs ahead",
    ]
    assert "its search" not in str(sentences(world, "exp 4"))


def test_what_runs_or_starts_has_no_blockers_and_never_has_one() -> None:
    world = World([host(1, 8)])
    world.submit("exp 1", 8)
    assert sentences(world, "exp 1") == []
    world.settle()
    assert sentences(world, "exp 1") == []
    world.submit("exp 2", 12)
    assert sentences(world, "exp 2") == [
        "needs 12 slots; hosts here have 8: ask for 8 or fewer, or a multiple of 8"
    ]
    with pytest.raises(KeyError, match="neither waits nor runs"):
        explain(world.snapshot, "exp 9")


def test_a_holder_that_may_not_be_stopped_is_said_to_be_so() -> None:
    world = World([host(1, 2)])
    world.submit("cmd 1", 1, preemptible=False, priority=90)
    world.submit("exp 2", 1, priority=90)
    world.settle()
    world.submit("exp 3", 2, priority=1)
    world.settle()
    held = next(sentence for sentence in sentences(world, "exp 3") if sentence.startswith("gpu-1: "))
    assert "cmd 1 (1, not preemptible)" in held
    assert "exp 2 (1, preemptible, but stopping it is not enough here)" in held


def test_a_share_is_named() -> None:
    world = World([host(1, 4)], scheduler="fair_share")
    for job in ("a", "b"):
        for number in range(4):
            world.submit(f"{job}{number}", 1, job=job)
    world.settle()
    assert "a3 holds 2; its fair share is now 2 slots" in sentences(world, "a3")


def codes(world: World, label: str) -> set[WaitCode]:
    return {reason.code for reason in explain(world.snapshot, label)}


def test_a_gang_is_told_how_many_whole_hosts_are_free_and_which_may_not_meet() -> None:
    world = World([host(n, 8) for n in (1, 2, 3)], bad_pairs=frozenset({frozenset({"h2", "h3"})}))
    world.submit("exp 1", 1, priority=1)
    world.settle()
    world.submit("exp 2", 16)
    world.settle()
    found = sentences(world, "exp 2")
    assert (
        "needs 16 slots, more than one host has, so it takes whole hosts: 2 of 8 slots (2 of 3 entirely free)"
        in found
    )
    assert "no gang can span hosts that cannot reach each other: gpu-2 and gpu-3" in found
    assert "gpu-1: 7 free, 8 needed; held by exp 1 (1, priority 1, ahead of it)" in found


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        ({"enabled": False}, "disabled; enable with `trainmaster host enable gpu-1`"),
        ({"draining": True}, "draining"),
        ({"silent": True}, "silent"),
    ],
)
def test_hosts_that_are_off_are_named_with_the_reason(kind: dict[str, bool], word: str) -> None:
    world = World([host(1, 8, **kind), host(2, 4)])
    world.submit("exp 1", 8)
    world.settle()
    assert f"needs 8 slots on hosts that are unavailable: gpu-1 is {word}" in sentences(world, "exp 1")


def test_single_slots_that_are_off_are_counted() -> None:
    slots = [replace(slot, enabled=slot.index != 0, draining=slot.index == 1) for slot in host(1, 4).slots]
    world = World([replace(host(1, 4), slots=tuple(slots))])
    world.submit("exp 1", 2, priority=1)
    world.settle()
    world.submit("exp 2", 2)
    world.settle()
    assert "not available to it: gpu-1 (1 slot disabled; 1 slot draining)" in sentences(world, "exp 2")


def test_hosts_that_it_avoids_are_named() -> None:
    world = World([host(1, 4), host(2, 4)])
    world.submit("exp 1", 4, avoid_hosts=frozenset({"gpu-2"}), priority=1)
    world.settle()
    world.submit("exp 2", 4, avoid_hosts=frozenset({"gpu-2"}))
    world.settle()
    assert "not available to it: gpu-2 (it avoids this host)" in sentences(world, "exp 2")


def test_the_limit_of_its_job_and_that_of_unpreemptible_work_are_both_named() -> None:
    world = World([host(1, 8)], unpreemptible_slots=4)
    world.submit("cmd 1", 3, job="job", preemptible=False, max_slots=4)
    world.settle()
    world.submit("cmd 2", 2, job="job", preemptible=False, max_slots=4)
    world.settle()
    assert {
        "its job holds 3 of at most 4 slots (max_slots); this needs 2 more",
        "work that is not preemptible holds 3 of at most 4 slots here; this needs 2 more and is not preemptible either",
    } <= set(sentences(world, "cmd 2"))


def test_all_that_no_waiting_cures_is_named_and_nothing_else() -> None:
    world = World([host(1, 8), host(2, 8)], longest_max_time=3600.0)
    world.submit("exp 1", 12, max_time=7200.0, max_slots=8)
    assert set(sentences(world, "exp 1")) == {
        "needs 12 slots; hosts here have 8: ask for 8 or fewer, or a multiple of 8",
        "asks to run for 2 h; work in pool default may run for at most 1 h",
        "needs 12 slots; max_slots of its job is 8",
    }
    assert codes(world, "exp 1") <= NEVER


@pytest.mark.parametrize(
    ("hosts", "says"),
    [
        (
            [host(1, 4), host(2, 4, silent=True)],
            "needs 12 slots; the 2 hosts here (1 silent) have 8 slots in total",
        ),
        ([host(1, 4), host(2, 4)], "needs 12 slots; the 2 hosts here have 8 slots in total"),
        ([host(1, 4, silent=True)], "needs 12 slots; the only host here (1 silent) has 4 slots"),
    ],
)
def test_hosts_that_are_off_are_counted_as_such_where_all_together_are_too_few(
    hosts: list[HostView], says: str
) -> None:
    world = World(hosts)
    world.submit("exp 1", 12)
    assert sentences(world, "exp 1") == [says]


def test_what_blocks_it_of_its_own_stands_beside_what_blocks_it_here() -> None:
    world = World([host(1, 2)])
    world.submit("exp 1", 2, priority=1)
    world.settle()
    world.submit("exp 2", 2, blocked=UPLOADED)
    world.settle()
    assert sentences(world, "exp 2") == [
        "its newest checkpoint is still being uploaded",
        "gpu-1: 0 free, 2 needed; held by exp 1 (2, priority 1, ahead of it)",
        "1 job ahead",
    ]


def test_equals_and_runs_that_are_stopping_are_told_apart() -> None:
    world = World([host(1, 2), host(2, 2)])
    world.submit("exp 1", 2)
    world.submit("exp 2", 2, priority=90)
    world.settle()
    world.submit("exp 3", 2)
    world.tick()
    world.submit("exp 4", 2)
    world.tick()
    found = sentences(world, "exp 4")
    assert "gpu-1: 0 free, 2 needed; held by exp 1 (2, same priority)" in found
    assert "gpu-2: 0 free, 2 needed; held by exp 2 (2, already stopping)" in found


def test_in_a_large_pool_the_hosts_that_lack_least_come_first_and_the_rest_are_counted() -> None:
    world = World([host(n, 2) for n in range(1, MOST_HOSTS + 6)], preemption=False)
    for number in range(2 * (MOST_HOSTS + 5) - 1):
        world.submit(f"exp {number}", 1)
    world.settle()
    world.submit("exp 99", 2)
    world.settle()
    held = [sentence for sentence in sentences(world, "exp 99") if sentence.startswith("gpu-")]
    assert len(held) == MOST_HOSTS and held[0].split(": ")[1].startswith("1 free, 2 needed")
    assert "5 more hosts also have too few free slots" in sentences(world, "exp 99")


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_whatever_the_pool_every_wait_is_explained_beginning_with_the_plan(seed: int) -> None:
    random = Random(seed)
    world = World(
        [
            host(n, random.choice([1, 2, 4]), silent=random.random() < 0.2)
            for n in range(1, random.randint(2, 6))
        ],
        scheduler=random.choice(["priority", "fair_share"]),
        preemption=random.random() < 0.5,
        unpreemptible_slots=random.choice([None, 2]),
    )
    for number in range(random.randint(1, 20)):
        world.submit(
            f"t{number}",
            random.choice([0, 1, 2, 4, 8]),
            priority=random.choice([1, 42]),
            preemptible=random.random() < 0.7,
            max_slots=random.choice([None, 3]),
        )
        world.tick()
    plan = decide(world.snapshot)
    for task, first in plan.waits.items():
        found = explain(world.snapshot, task, plan)
        assert found[0] == first
        assert len({reason.sentence for reason in found}) == len(found)
        assert (first.code in NEVER) == all(reason.code in NEVER for reason in found)


def test_a_reservation_is_named_with_its_job_where_it_keeps_a_host_from_the_one_that_asks() -> None:
    world = World([host(1, 1), host(2, 1)])
    world.submit("exp 1", 1, priority=60)
    world.submit("exp 2", 1, priority=30, preemptible=False)
    world.tick()
    world.submit("exp 3", 2, priority=40)
    world.submit("exp 4", 1, priority=50, preemptible=False)
    world.tick()
    assert world.why("exp 4").code == WaitCode.KEPT_FOR
    assert world.why("exp 4").data["for"] == ["exp 3"]
    assert sentences(world, "exp 4") == [
        "gpu-1 is reserved for exp 3, ahead of it; exp 2 runs there until then",
        "gpu-1: 0 free, 1 needed; reserved for exp 3 (priority 40); held by exp 2 (1, not preemptible)",
        "gpu-2: 0 free, 1 needed; reserved for exp 3 (priority 40); "
        "held by exp 1 (1, preemptible, but the host is reserved)",
        "2 jobs ahead",
    ]
    assert not any("reserved for exp 3" in sentence for sentence in sentences(world, "exp 3"))


def test_the_run_that_should_end_first_is_one_whose_slots_it_may_have() -> None:
    world = World([host(1, 1), host(2, 1), host(3, 1)])
    for number, end in ((1, 100.0), (2, 200.0), (3, 300.0)):
        world.submit(f"exp {number}", 1, priority=30)
        world.place(f"exp {number}", {f"h{number}": (number * 100,)}, world.now, ends=(90.0, end))
    world.submit("exp 4", 2, priority=40, avoid_hosts=frozenset({"gpu-3"}))
    world.submit("exp 5", 1, priority=50)
    world.submit("exp 6", 1, priority=50, avoid_hosts=frozenset({"gpu-3"}))
    world.tick()
    assert world.why("exp 5").sentence == "no slot is free; exp 3 should finish first"
    assert world.why("exp 6").sentence == (
        "gpu-1 is reserved for exp 4, ahead of it; exp 1 runs there until then"
    )


def test_a_run_that_starts_in_the_same_pass_may_be_the_one_to_end_first() -> None:
    world = World([host(1, 1), host(2, 1)])
    world.submit("exp 1", 1)
    world.place("exp 1", {"h1": (100,)}, world.now, ends=(900.0, 1000.0))
    world.submit("exp 2", 1, lasts=(10.0, 20.0))
    world.submit("exp 3", 1)
    world.tick()
    assert world.why("exp 3").sentence == "no slot is free; exp 2 should finish first"
