"""When waiting work starts."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduling import reasons
from scheduling.forecast import MOST_FORECASTS, Forecast, forecast
from scheduling.plan import applied, decide
from scheduling.reasons import NEVER
from scheduling.world import GroupShare, HostView, PoolView, Request, Snapshot
from tests.rig.pool_worlds import UPLOADED, host

HOUR = 3600.0
#: more than a run takes to stop
MOMENT = 240.0


def request(name: str, slots: int, place: float, **fields: Any) -> Request:
    return Request(name, name, name, slots, position=place, submitted_at=place, **fields)


def full(
    pool: PoolView, hosts: list[HostView], running: dict[str, tuple[int, Any]], **fields: Any
) -> Snapshot:
    """At 1,000 s. `running`: name -> (slots, its end as a range or None)."""
    requests = tuple(
        request(name, slots, place, **fields) for place, (name, (slots, _)) in enumerate(running.items())
    )
    started = Snapshot(100.0, pool, tuple(hosts), requests)
    started = replace(applied(started, decide(started)), now=1000.0)
    ends = {name: end for name, (_, end) in running.items()}
    placed = tuple(
        replace(one, running=replace(one.running, ends=ends[one.task_id]))
        for one in started.requests
        if one.running
    )
    assert len(placed) == len(running)
    return replace(started, requests=placed)


def waiting(snapshot: Snapshot, *requests: Request) -> Snapshot:
    return replace(snapshot, requests=(*snapshot.requests, *requests))


def made(snapshot: Snapshot) -> Forecast:
    return forecast(snapshot, decide(snapshot))


def test_the_next_starts_when_the_first_run_ends() -> None:
    snapshot = full(PoolView(), [host(1, 2)], {"a": (1, (2000, 3000)), "b": (1, (50_000, 60_000))})
    found = made(waiting(snapshot, request("next", 1, 10)))
    (first, last) = found.spans["next"]
    assert 1500 < first < 2300 and 2700 < last < 3500
    assert found.unknown == {}


def test_one_behind_another_starts_when_that_is_over() -> None:
    snapshot = full(PoolView(preemption=False), [host(1, 1)], {"a": (1, (2000, 2010))})
    found = made(
        waiting(
            snapshot, request("first", 1, 10, lasts=(HOUR, 2 * HOUR)), request("second", 1, 11, lasts=(1, 2))
        )
    )
    assert found.spans["first"][1] < 2100
    low, high = found.spans["second"]
    assert 2000 + 0.8 * HOUR < low < 2000 + 1.3 * HOUR and 2000 + 1.7 * HOUR < high < 2000 + 2.6 * HOUR


def test_a_gang_waits_for_the_last_of_its_hosts_and_small_work_does_not_wait_for_the_gang() -> None:
    runs = {"a": (4, (2000, 2200)), "b": (4, (9000, 9900))}
    snapshot = full(PoolView(), [host(1, 4), host(2, 4)], runs)
    found = made(
        waiting(snapshot, request("gang", 8, 10, lasts=(HOUR, HOUR)), request("small", 1, 11, lasts=(60, 90)))
    )
    assert found.spans["gang"][0] > 7500
    assert found.spans["small"][1] < 2600, "it runs on sufferance until the gang can start"
    held = made(waiting(replace(snapshot, pool=PoolView(preemption=False)), *made_requests()))
    assert held.spans["small"][0] > 9000, "where nothing is stopped, the slots are kept for the gang"


def test_small_work_does_not_wait_for_a_gang_of_one_slot_hosts() -> None:
    snapshot = full(PoolView(), [host(1, 1), host(2, 1)], {"a": (1, (2000, 2200)), "b": (1, (9000, 9900))})
    found = made(
        waiting(snapshot, request("gang", 2, 10, lasts=(HOUR, HOUR)), request("small", 1, 11, lasts=(60, 90)))
    )
    assert found.spans["gang"][0] > 7500
    assert found.spans["small"][1] < 2600, "it runs on sufferance until the gang can start"


def made_requests() -> list[Request]:
    return [request("gang", 8, 10, lasts=(HOUR, HOUR)), request("small", 1, 11, lasts=(60, 90))]


def test_hosts_whose_ranks_cannot_meet_make_no_gang() -> None:
    hosts = [host(n, 4) for n in (1, 2, 3)]
    runs = {"a": (4, (2000, 2010)), "b": (4, (3000, 3010)), "c": (4, (9000, 9010))}
    snapshot = waiting(full(PoolView(), hosts, runs), request("gang", 8, 10))
    assert made(snapshot).spans["gang"][1] < 4000
    [(one, two)] = [
        tuple(next(iter(r.running.slots)) for r in snapshot.requests if r.running and r.task_id in ("a", "b"))
    ]
    apart = replace(snapshot, pool=PoolView(bad_pairs=frozenset({frozenset({one, two})})))
    assert made(apart).spans["gang"][0] > 7500


def test_what_is_being_stopped_for_it_makes_it_start_soon() -> None:
    snapshot = full(PoolView(), [host(1, 2)], {"low": (2, (90_000, 99_000))}, priority=90)
    found = made(waiting(snapshot, request("high", 2, 10, priority=1)))
    assert found.spans["high"][0] >= 1000 and found.spans["high"][1] < 1000 + MOMENT


def test_max_slots_of_a_job_hold_its_work_back() -> None:
    snapshot = full(PoolView(), [host(1, 4)], {"a": (2, (5000, 5010))}, max_slots=2)
    mine = replace(request("b", 2, 10, max_slots=2), job_id="a")
    assert made(waiting(snapshot, mine)).spans["b"][0] > 4000


@pytest.mark.parametrize(
    ("runs", "lasts", "says"),
    [
        ({"exp 1": (2, None)}, None, "exp 1 reports no progress and has no time limit"),
        (
            {"exp 1": (1, None), "exp 2": (1, None)},
            None,
            "exp 1 and exp 2 report no progress and have no time limit",
        ),
        (
            {"exp 1": (2, (2000, 3000))},
            None,
            "exp 8 ahead of it has no time limit, and nothing similar has run here yet",
        ),
    ],
)
def test_without_a_known_end_the_sentence_says_whose(runs: dict[str, Any], lasts: Any, says: str) -> None:
    snapshot = waiting(full(PoolView(), [host(1, 2)], runs), request("exp 8", 2, 10), request("exp 9", 2, 11))
    found = made(snapshot)
    assert found.unknown["exp 9"] == says
    assert "exp 9" not in found.spans


def test_what_is_off_or_blocked_is_unknown_with_its_reason_and_what_never_fits_is_left_out() -> None:
    snapshot = full(PoolView(), [host(1, 2), host(2, 8, silent=True)], {"a": (2, (2000, 3000))})
    found = made(
        waiting(
            snapshot,
            request("off", 8, 10),
            request("blocked", 1, 11, blocked=UPLOADED),
            request("never", 99, 12),
        )
    )
    assert found.unknown == {
        "off": "needs 8 slots on hosts that are unavailable: gpu-2 is silent",
        "blocked": "its newest checkpoint is still being uploaded",
    }
    assert "never" not in found.spans


def test_what_stands_far_back_is_told_how_many_are_before_it() -> None:
    snapshot = full(PoolView(), [host(1, 1)], {"a": (1, (2000, 3000))})
    many = [request(f"t{n:04}", 1, 10 + n, lasts=(60, 90)) for n in range(MOST_FORECASTS + 1300)]
    found = made(waiting(snapshot, *many))
    assert len(found.spans) == MOST_FORECASTS
    assert (
        found.why_unknown("t2234")
        == f"2,234 requests are ahead of it; only the first {MOST_FORECASTS:,} get a forecast"
    )


def random_snapshot(seed: int) -> Snapshot:
    random = Random(seed)
    size = random.choice([1, 2, 4, 8])
    hosts = tuple(
        host(n, size, aux_capacity=2, silent=random.random() < 0.1) for n in range(1, random.randint(2, 6))
    )
    pool = PoolView(
        scheduler=random.choice(["priority", "priority", "fair_share"]),
        preemption=random.random() < 0.7,
        allow_heterogeneous_fits=random.random() < 0.3,
        unpreemptible_slots=random.choice([None, None, size]),
    )
    requests = tuple(
        request(
            f"t{number}",
            random.choice([0, 1, 1, 2, 4, 8, 16]),
            number,
            priority=random.choice([10, 42, 42, 60]),
            preemptible=random.random() < 0.8,
            max_slots=random.choice([None, None, 8]),
            lasts=random.choice([None, (60.0, 5000.0), (500.0, 600.0)]),
        )
        for number in range(random.randint(1, 30))
    )
    snapshot = Snapshot(1000.0, pool, hosts, requests)
    snapshot = applied(snapshot, decide(snapshot))
    known = tuple(
        replace(
            one, running=replace(one.running, ends=random.choice([None, (1500.0, 4000.0), (900.0, 950.0)]))
        )
        if one.running
        else one
        for one in snapshot.requests
    )
    return replace(snapshot, now=1200.0, requests=known)


@pytest.mark.parametrize(("ends", "is_known"), [((5000, 6000), True), (None, False)])
def test_what_the_plan_stops_nobody_for_waits_for_the_first_event(ends: Any, is_known: bool) -> None:
    """The plan is right about whom it stops; the forecast alone would have the run of lower priority stopped."""
    snapshot = full(PoolView(), [host(1, 1)], {"low": (1, ends)}, priority=60)
    snapshot = waiting(snapshot, request("high", 1, 10, priority=50))
    plan = decide(snapshot)
    assert forecast(snapshot, plan).spans["high"][1] < 1000 + MOMENT
    nobody = replace(plan, releases=(), waits={"high": reasons.no_room(1, 0, [])})
    found = forecast(snapshot, nobody)
    if is_known:
        assert found.spans["high"][0] > 4000
    else:
        assert found.unknown == {"high": "low reports no progress and has no time limit"}


def test_a_run_that_was_submitted_once_is_not_expected_to_come_again() -> None:
    snapshot = full(PoolView(), [host(1, 1)], {"urgent": (1, (2800, 3200))}, priority=1)
    mine = waiting(snapshot, request("mine", 1, 10, priority=50))
    plan = decide(mine)
    once = [request("urgent", 1, 0, priority=1, lasts=(2000, 4000))]
    alone, after_one = forecast(mine, plan), forecast(mine, plan, once)
    assert after_one == alone and alone.spans["mine"][1] < 4500
    often = [request(f"urgent {n}", 1, float(n), priority=1, lasts=(2000, 4000)) for n in range(3)]
    assert forecast(mine, plan, often).spans["mine"][1] > alone.spans["mine"][1]


def test_work_that_is_submitted_as_the_first_event_goes_first_if_it_is_ahead() -> None:
    """It looks as if the request could start now; the plan starts nothing before something happens."""
    snapshot = full(PoolView(), [host(1, 1)], {"low": (1, (50_000, 60_000))}, priority=60)
    snapshot = waiting(snapshot, request("high", 1, 10, priority=50))
    nobody = replace(decide(snapshot), releases=(), waits={"high": reasons.no_room(1, 0, [])})
    often = [request(f"urgent {n}", 1, float(n), priority=1, lasts=(2000, 4000)) for n in range(3)]
    assert forecast(snapshot, nobody, often).spans["high"][0] > 1000 + 1500


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_every_wait_has_an_ordered_range_from_now_on_or_a_sentence(seed: int) -> None:
    snapshot = random_snapshot(seed)
    plan = decide(snapshot)
    found = forecast(snapshot, plan)
    assert found == forecast(snapshot, plan), "the same snapshot, the same forecast"
    assert not found.spans.keys() & found.unknown.keys()
    known = {task for task, reason in plan.waits.items() if reason.code not in NEVER}
    assert found.spans.keys() | found.unknown.keys() == known
    for first, last in found.spans.values():
        assert snapshot.now <= first <= last < float("inf")
    assert all(found.unknown.values())


def with_burn_ins(snapshot: Snapshot, seed: int) -> Snapshot:
    """Some wait before, between and behind the other requests, with every priority and any length."""
    random = Random(seed)
    burn_ins = [
        request(
            f"burn-in {number}",
            random.choice([1, 2, 4]),
            random.uniform(-1, 31),
            priority=random.choice([1, 42, 99]),
            lasts=random.choice([None, (60.0, 300.0)]),
            weight=random.choice([0.1, 9.0]),
            yields=True,
        )
        for number in range(3)
    ]
    return waiting(snapshot, *burn_ins)


def submitted_lately(seed: int) -> tuple[list[Request], list[Request]]:
    """Work of four priorities that came three times each, and burn-ins, some of its kinds and earlier."""
    random = Random(seed)
    lasts = (60.0, 900.0)
    work = [
        request(f"w{n}", random.choice([1, 2]), float(n), priority=priority, lasts=lasts)
        for n, priority in enumerate([10, 42, 60, 99] * 6)
    ]
    burn_ins = [
        request(
            f"burn-in w{n}", 1, -5000.0 + n, priority=random.choice([1, 42, 99]), lasts=lasts, yields=True
        )
        for n in range(6)
    ]
    return work, burn_ins


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), groups=st.booleans())
def test_a_burn_in_that_waits_delays_no_forecast(seed: int, groups: bool) -> None:
    without = random_snapshot(seed)
    if groups:
        without = replace(without, pool=replace(without.pool, shares={"team": GroupShare(1.0)}))
    snapshot = with_burn_ins(without, seed)
    work, burn_ins = submitted_lately(seed)
    plan = decide(snapshot)
    found = forecast(snapshot, plan, [*work, *burn_ins])
    alone = forecast(without, decide(without), work)
    if not any(start.task_id.startswith("burn-in") for start in plan.starts):
        ordinary = {task: span for task, span in found.spans.items() if not task.startswith("burn-in")}
        assert ordinary == alone.spans
        assert {
            task: why for task, why in found.unknown.items() if not task.startswith("burn-in")
        } == alone.unknown


def test_many_burn_ins_that_wait_take_no_futures_from_other_work() -> None:
    snapshot = waiting(full(PoolView(), [host(1, 4096)], {"a": (4096, (2800, 9200))}), request("mine", 1, 10))
    many = [request(f"burn-in {n}", 1, 20 + n, lasts=(60, 90), yields=True) for n in range(150)]
    assert made(waiting(snapshot, *many)).spans["mine"] == made(snapshot).spans["mine"]


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    scheduler=st.sampled_from(["priority", "fair_share"]),
    ends=st.sampled_from([None, (1400.0, 1500.0), (90_000.0, 99_000.0)]),
    least=st.sampled_from([0, 3600]),
)
def test_a_burn_in_that_runs_delays_a_forecast_by_the_time_to_yield(
    seed: int, scheduler: str, ends: Any, least: int
) -> None:
    """With requests of one slot, of which none starts later because another one starts sooner."""
    random = Random(seed)
    min_runtime = {1: least} if scheduler == "priority" else {}
    pool = PoolView(scheduler=scheduler, min_runtime=tuple(min_runtime.items()))
    burn_ins = [request(f"burn-in {n}", 2, n, priority=random.choice([1, 99]), yields=True) for n in range(2)]
    hosts = (host(1, 2), host(2, 2), host(3, 2))
    runs = Snapshot(900.0, pool, hosts, (request("run", 2, 5), *burn_ins))
    runs = applied(runs, decide(runs))
    known = [
        replace(one, running=replace(one.running, ends=(2000.0, 3000.0) if one.task_id == "run" else ends))
        for one in runs.requests
        if one.running
    ]
    assert len(known) == 3
    others = [
        request(
            f"t{n}", 1, 10 + n, priority=random.choice([10, 42, 99]), weight=random.choice([1.0, 3.0]),
            lasts=random.choice([(60.0, 900.0), (500.0, 600.0)]),
        )
        for n in range(random.randint(5, 12))
    ]  # fmt: skip
    snapshot = replace(runs, now=1000.0, requests=(*known, *others))
    gone = [
        replace(one, running=replace(one.running, stopping=True)) if one.yields and one.running else one
        for one in known
    ]
    found, without = made(snapshot), made(replace(snapshot, requests=(*gone, *others)))
    assert {one.task_id for one in others} == {task for task in found.spans if task.startswith("t")}
    for task, span in without.spans.items():
        assert found.spans[task][1] <= span[1] + MOMENT, task


def test_a_burn_in_keeps_its_slots_where_nothing_is_stopped() -> None:
    snapshot = full(
        PoolView(preemption=False), [host(1, 1)], {"burn-in": (1, (2000, 2010))}, yields=True, priority=99
    )
    found = made(waiting(snapshot, request("next", 1, 10)))
    assert found.spans["next"][0] > 1900
    snapshot = replace(snapshot, pool=PoolView())
    assert made(waiting(snapshot, request("next", 1, 10, priority=99))).spans["next"][1] < 1000 + MOMENT


def test_burn_ins_that_were_submitted_lately_are_not_expected_before_other_work() -> None:
    snapshot = waiting(full(PoolView(), [host(1, 1)], {"a": (1, (2800, 3200))}), request("mine", 1, 10))
    often = [
        request(f"burn-in {n}", 1, float(n), priority=1, lasts=(2000, 4000), yields=True) for n in range(3)
    ]
    assert forecast(snapshot, decide(snapshot), often) == made(snapshot)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), slots=st.sampled_from([1, 2, 4]))
def test_of_equal_requests_the_one_behind_starts_no_sooner(seed: int, slots: int) -> None:
    random = Random(seed)
    runs = {f"r{n}": (1, (1000 + random.uniform(1, 4000), 6000 + random.uniform(1, 4000))) for n in range(8)}
    snapshot = full(PoolView(), [host(1, 4), host(2, 4)], runs)
    found = made(waiting(snapshot, *(request(f"t{n}", slots, 100 + n, lasts=(100, 1000)) for n in range(12))))
    spans = [found.spans[f"t{n}"] for n in range(12)]
    assert spans == sorted(spans)
    assert [last for _, last in spans] == sorted(last for _, last in spans)
