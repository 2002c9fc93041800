"""The priority scheduler in the situations that its documents describe."""

from dataclasses import replace
from typing import Any

import pytest

from scheduling.reasons import WaitCode
from tests.rig.pool_worlds import UPLOADED, World, host


def test_the_documented_scenario_of_eight_gpus() -> None:
    world = World([host(1, 8)])
    for number in range(20):
        world.submit(f"search.{number}", 1, job="search", priority=2)
    world.settle()
    assert world.running == {f"search.{number}" for number in range(8)}
    world.submit("urgent", 4, priority=1)
    world.settle()
    assert world.running == {"urgent", *(f"search.{number}" for number in range(4))}
    world.submit("notebook", 1, priority=3, preemptible=False)
    world.settle()
    assert "notebook" not in world.running
    while any(request.job_id == "search" for request in world.snapshot.requests):
        world.finish(*sorted(task for task in world.running if task.startswith("search")))
        world.settle()
    world.finish("urgent")
    world.settle()
    assert world.running == {"notebook"}
    world.submit("whole", 8, priority=1)
    world.settle()
    assert world.running == {"notebook"}
    assert "whole" in world.plan.reservations
    world.submit("filler", 4, priority=2)
    world.settle()
    assert world.running == {"notebook", "filler"}
    assert world.backfilled == {"filler"}
    world.finish("notebook")
    world.settle()
    assert world.running == {"whole"}
    assert world.released[-1] == "filler"
    world.finish("whole")
    world.settle()
    assert world.running == {"filler"}
    assert world.backfilled == set()


def test_without_preemption_the_urgent_job_waits_until_the_search_needs_less() -> None:
    world = World([host(1, 8)], preemption=False)
    for number in range(20):
        world.submit(f"search.{number}", 1, job="search", priority=2)
    world.settle()
    world.submit("urgent", 4, priority=1)
    world.settle()
    for number in range(4):
        assert "urgent" not in world.running
        world.finish(f"search.{number}")
        world.settle()
    assert "urgent" in world.running
    assert world.released == []


def test_moving_a_job_ahead_of_an_equal_that_runs_stops_it() -> None:
    world = World([host(1, 1)])
    world.submit("job1", 1)
    world.submit("job2", 1)
    world.settle()
    assert world.running == {"job1"}
    world.move_ahead("job2", of="job1")
    plan = world.tick()
    assert [(r.task_id, r.for_task_id) for r in plan.releases] == [("job1", "job2")]
    assert plan.order == ("job2", "job1")
    world.settle()
    assert world.running == {"job2"}
    world.edit("job1", priority=1)
    world.edit("job2", priority=1)
    world.settle()
    assert (world.running, world.plan.order) == ({"job2"}, ("job2", "job1"))
    world.move_ahead("job1", of="job2")
    world.settle()
    assert world.running == {"job1"}


def test_moving_a_job_ahead_stops_nothing_without_preemption() -> None:
    world = World([host(1, 1)], preemption=False)
    world.submit("job1", 1)
    world.submit("job2", 1)
    world.settle()
    world.move_ahead("job2", of="job1")
    world.settle()
    assert (world.running, world.plan.order, world.released) == ({"job1"}, ("job2", "job1"), [])


def test_an_equal_is_never_stopped_for_age_alone() -> None:
    world = World([host(1, 1)])
    world.submit("older", 1, blocked=UPLOADED)
    world.submit("younger", 1)
    world.settle()
    assert world.running == {"younger"}
    assert world.why("older").sentence == "its newest checkpoint is still being uploaded"
    world.edit("older", blocked=None)
    world.settle()
    assert (world.running, world.released) == ({"younger"}, [])


def test_the_lowest_priority_then_the_newest_is_stopped_and_no_more_than_needed() -> None:
    world = World([host(1, 4)])
    world.submit("low", 1, priority=60)
    world.submit("old", 1, priority=50)
    world.tick()
    world.submit("new", 1, priority=50)
    world.submit("kept", 1, priority=10)
    world.settle()
    world.submit("first", 1, priority=5)
    world.submit("second", 1, priority=5)
    world.settle()
    assert world.released == ["low", "new"]


def test_a_larger_victim_alone_spares_the_smaller_one() -> None:
    world = World([host(1, 8)])
    world.submit("small", 1, priority=60)
    world.submit("large", 7, priority=50)
    world.settle()
    world.submit("urgent", 7, priority=1)
    world.settle()
    assert world.released == ["large"]


def test_what_has_never_saved_is_stopped_last_among_equals() -> None:
    world = World([host(1, 2)])
    world.submit("saves", 1)
    world.tick()
    world.submit("never", 1)
    world.settle()
    running = world["saves"].running
    assert running is not None
    world.edit("saves", running=replace(running, last_saved_at=1.0))
    world.submit("urgent", 1, priority=1)
    world.settle()
    assert world.released == ["saves"]


def test_nothing_is_stopped_if_that_would_not_be_enough() -> None:
    world = World([host(1, 8)])
    world.submit("command", 1, preemptible=False, priority=90)
    world.submit("trial", 4, priority=90)
    world.settle()
    world.submit("whole", 8, priority=1)
    world.settle()
    assert world.released == []
    assert world.why("whole").sentence == (
        "needs 8 slots on one host: gpu-1 is reserved for it (3 of 8 free); waiting for trial and command to end"
    )


def test_what_is_being_freed_is_said_with_the_host_and_by_whom() -> None:
    world = World([host(5, 8)])
    world.submit("exp 138", 6, priority=42)
    world.settle()
    world.submit("exp 152", 8, priority=20)
    world.submit("exp 147", 1, priority=50)
    world.tick()
    assert (
        world.why("exp 152").sentence
        == "needs 8 slots on one host: gpu-5 has 2 free, 6 being freed by exp 138"
    )
    assert world.why("exp 147").sentence == "the 2 free slots on gpu-5 are reserved for exp 152"
    assert world.why("exp 147").code == WaitCode.KEPT_FOR
    assert world.tick().releases == ()


def test_twelve_on_hosts_of_eight_never_start_and_stand_in_nobodys_way() -> None:
    world = World([host(1, 8), host(2, 8)])
    world.submit("twelve", 12, priority=1)
    world.submit("eight", 8)
    world.submit("sixteen", 16)
    world.settle()
    assert world.running == {"eight"}
    assert (
        world.why("twelve").sentence
        == "needs 12 slots; hosts here have 8: ask for 8 or fewer, or a multiple of 8"
    )
    assert world.why("twelve").code == WaitCode.NEVER_FITS
    world.finish("eight")
    world.settle()
    assert world.running == {"sixteen"}


def test_never_is_said_for_each_cause() -> None:
    world = World([host(1, 8), host(2, 8)])
    world.submit("far", 64)
    world.submit("one-host", 16, single_host=True)
    world.submit("avoids", 8, avoid_hosts=frozenset({"gpu-1", "gpu-2"}))
    world.submit("limited", 4, max_slots=2)
    world.settle()
    assert world.running == set()
    assert world.why("far").sentence == "needs 64 slots; the 2 hosts here have 16 slots in total"
    assert (
        world.why("one-host").sentence
        == "needs 16 slots on one host; the largest host here has 8: ask for 8 or fewer"
    )
    assert "gpu-1 and gpu-2" in world.why("avoids").sentence
    assert world.why("limited").sentence == "needs 4 slots; max_slots of its job is 2"


def test_nothing_is_placed_where_people_or_outsiders_said_no() -> None:
    off = [{"enabled": False}, {"draining": True}, {"silent": True}, {"suspended": True}]
    world = World([host(n, 2, **why) for n, why in enumerate(off, 1)] + [host(9, 2, outside={0: "root"})])
    world.submit("one", 1)
    world.submit("two", 2)
    world.submit("zero", 0)
    world.settle()
    assert world.running == {"one", "zero"}
    assert world.why("two").code == WaitCode.HOSTS_OFF
    assert "gpu-1 is disabled" in world.why("two").sentence


def test_a_stream_of_small_jobs_does_not_starve_a_gang() -> None:
    world = World([host(1, 4), host(2, 4)])
    for number in range(8):
        world.submit(f"small.{number}", 1)
    world.settle()
    world.submit("gang", 8)
    for number in range(8, 40):
        world.submit(f"small.{number}", 1)
        world.settle()
        if "gang" in world.running:
            break
        world.finish(min(world.running - world.backfilled))
    assert "gang" in world.running


def test_max_slots_holds_in_a_priority_pool() -> None:
    world = World([host(1, 8)])
    for number in range(4):
        world.submit(f"t{number}", 2, job="capped", max_slots=4)
    world.submit("other", 4)
    world.settle()
    assert world.running == {"t0", "t1", "other"}
    assert world.why("t2").sentence == "its job holds 4 of at most 4 slots (max_slots); this needs 2 more"


def test_best_fit_takes_the_fullest_host_and_worst_fit_the_emptiest() -> None:
    for policy, expected in (("best", "h2"), ("worst", "h3")):
        world = World([host(1, 8), host(2, 8), host(3, 8)], fitting=policy)
        for number, size in ((1, 2), (2, 4)):
            world.submit(
                f"fill{number}", size, single_host=True, avoid_hosts=frozenset({"h3", f"h{3 - number}"})
            )
        world.tick()
        world.submit("job", 2)
        start = next(start for start in world.tick().starts if start.task_id == "job")
        assert [part[0] for part in start.hosts] == [expected]


def test_a_gang_takes_whole_equal_hosts_and_mixed_ones_only_where_allowed() -> None:
    hosts = [host(1, 8), host(2, 4), host(3, 4)]
    for mixed, running in ((False, set[str]()), (True, {"sixteen"})):
        world = World(hosts, allow_heterogeneous_fits=mixed)
        world.submit("sixteen", 16)
        world.settle()
        assert world.running == running
    world = World([host(2, 4), host(3, 4)])
    world.submit("eight", 8)
    world.settle()
    assert world.running == {"eight"}


def test_a_host_with_work_on_a_slot_that_drains_is_not_a_whole_host() -> None:
    world = World([host(1, 4), host(2, 4)])
    world.submit("left", 1, avoid_hosts=frozenset({"gpu-2"}))
    world.settle()
    world.edit_host("h1", slots=(0, 1), draining=True)
    world.edit_host("h2", slots=(0, 1), enabled=False)
    world.submit("gang", 4)
    world.settle()
    assert world.running == {"left"}
    world.finish("left")
    world.settle()
    assert world.running == {"gang"}


def test_zero_slot_work_has_its_own_places() -> None:
    world = World([host(1, 1, aux_capacity=2)])
    world.submit("training", 1)
    for number in range(3):
        world.submit(f"aux{number}", 0, preemptible=False)
    world.settle()
    assert world.running == {"training", "aux0", "aux1"}
    assert world.why("aux2").sentence == "every host is at its limit of zero-slot tasks"
    world.finish("aux0")
    world.settle()
    assert "aux2" in world.running


def test_an_empty_pool_says_so() -> None:
    world = World([], name="a100")
    world.submit("job", 1)
    world.settle()
    assert "pool a100 has no hosts yet" in world.why("job").sentence


def test_a_gang_stops_whole_hosts_and_starts_when_they_are_free() -> None:
    world = World([host(1, 2), host(2, 2), host(3, 2)])
    for number in range(6):
        world.submit(f"t{number}", 1, priority=50 + number)
    world.settle()
    world.submit("gang", 4, priority=1)
    world.settle()
    assert "gang" in world.running
    assert len(world.released) == 4
    assert world.running == {"gang", "t0", "t1"}


def test_a_newcomer_takes_no_free_slot_that_a_gang_counts_on_while_others_are_stopped() -> None:
    world = World([host(1, 4)])
    world.submit("low", 1, priority=60)
    world.submit("lower", 1, priority=70)
    world.settle()
    world.submit("gang", 3, priority=1)
    world.submit("small", 1, priority=2)
    for _ in range(2):
        world.tick()
        assert world.stopping == {"lower": "gang", "low": "small"}
        assert world.running == set()
    world.stops_end("lower")
    world.tick()
    assert world.running == {"gang"}
    world.stops_end("low")
    world.tick()
    assert world.running == {"gang", "small"}


def test_who_waits_for_a_stop_leaves_what_was_freed_for_the_next() -> None:
    world = World([host(1, 4), host(2, 4)])
    for label, slots, elsewhere in (("x", 3, "h2"), ("y", 2, "h1")):
        world.submit(label, slots, priority=1, preemptible=False, avoid_hosts=frozenset({elsewhere}))
    world.submit("one", 1, priority=60, avoid_hosts=frozenset({"h2"}))
    world.submit("two", 2, priority=50)
    world.settle()
    world.submit("first", 1, priority=10)
    world.submit("second", 2, priority=11)
    world.tick()
    assert world.stopping == {"one": "first", "two": "second"}
    world.stops_end("two", waits_again=False)
    world.tick()
    assert (world.running, world.stopping) == ({"x", "y", "second"}, {"one": "first"})
    world.stops_end("one", waits_again=False)
    world.tick()
    assert world.running == {"x", "y", "first", "second"}
    assert world.released == ["one", "two"]


def a_gang_has_two_hosts_reserved(**fields: Any) -> World:
    """`low` runs on the one and `top`, which may not be stopped, on the other; `mid` comes after the gang."""
    world = World([host(1, 1), host(2, 1)])
    world.submit("low", 1, priority=60)
    world.submit("top", 1, priority=30, preemptible=False)
    world.tick()
    assert world.running == {"low", "top"}
    world.submit("big", 2, priority=40)
    world.submit("mid", 1, priority=50, **fields)
    return world


def test_a_reservation_does_not_protect_what_runs_there() -> None:
    world = a_gang_has_two_hosts_reserved()
    world.tick()
    assert world.stopping == {"low": "mid"}
    assert world.tick().releases == (), "nobody else is stopped while it saves"
    world.stops_end()
    world.settle()
    assert (world.running, world.backfilled) == ({"top", "mid"}, {"mid"})
    world.finish("top")
    world.tick()
    assert world.stopping == {"mid": "big"}
    world.settle()
    assert world.running == {"big"}


def test_the_gang_takes_what_was_stopped_on_its_host_if_it_can_start_first() -> None:
    world = a_gang_has_two_hosts_reserved()
    world.tick()
    world.finish("top")
    world.tick()
    assert world.why("big").code == WaitCode.COMING_FREE
    world.stops_end()
    world.tick()
    assert world.running == {"big"}
    assert set(world.released) == {"low"}


def test_what_may_not_be_stopped_again_waits_for_the_gang() -> None:
    world = a_gang_has_two_hosts_reserved(preemptible=False)
    world.settle()
    assert (world.running, world.released) == ({"low", "top"}, [])


def test_work_is_stopped_on_a_reserved_host_only_if_no_other_would_do() -> None:
    world = World([host(1, 1), host(2, 1), host(3, 1)])
    for label, priority in (("low", 60), ("top", 30), ("free", 60)):
        world.submit(label, 1, priority=priority, preemptible=label != "top")
    world.tick()
    world.submit("big", 2, priority=40, avoid_hosts=frozenset({world.host_of("free")}))
    world.submit("mid", 1, priority=50)
    world.tick()
    assert world.stopping == {"free": "mid"}
    world.settle()
    assert (world.running, world.backfilled) == ({"low", "top", "mid"}, set())


@pytest.mark.parametrize("pool", [{}, {"preemption": False}, {"scheduler": "fair_share"}])
def test_a_lowered_limit_makes_the_newest_runs_above_it_give_back(pool: dict[str, Any]) -> None:
    world = World([host(1, 8)], **pool)
    for number in range(4):
        world.submit(f"trial {number}", 1, job="search", max_slots=4)
        world.tick()
    for number in range(4):
        world.edit(f"trial {number}", max_slots=2)
    world.tick()
    assert world.stopping == {"trial 2": None, "trial 3": None}
    world.settle()
    assert world.running == {"trial 0", "trial 1"}
    assert world.why("trial 3").sentence == (
        "its job holds 2 of at most 2 slots (max_slots); this needs 1 more"
    )


def test_a_gang_above_a_lowered_limit_is_stopped_and_never_starts() -> None:
    world = World([host(1, 4)])
    world.submit("exp 1", 4, max_slots=4)
    world.tick()
    world.edit("exp 1", max_slots=2)
    world.settle()
    assert (world.running, world.why("exp 1").code) == (set(), WaitCode.OVER_MAX_SLOTS)


def test_no_more_is_given_back_than_the_limit_asks_and_what_is_not_preemptible_stays() -> None:
    world = World([host(1, 8)])
    for number, slots in enumerate((2, 2, 1)):
        world.submit(f"trial {number}", slots, job="search", max_slots=8)
        world.tick()
    world.submit("command", 3, job="commands", preemptible=False, max_slots=8)
    world.tick()
    for number in range(3):
        world.edit(f"trial {number}", max_slots=3)
    world.edit("command", max_slots=1)
    world.tick()
    assert world.stopping == {"trial 1": None}


def test_slots_of_runs_that_no_request_holds_are_not_given_away_when_others_give_back() -> None:
    world = World([host(1, 2)])
    world.submit("trial", 1, max_slots=1)
    world.tick()
    world.edit_host("h1", slots=(1,), held_by="run of an ended job")
    world.edit("trial", max_slots=0)
    world.submit("exp 2", 1)
    plan = world.tick()
    assert (plan.starts, world.stopping) == ((), {"trial": None})
