"""Windows: what a pass does before and in maintenance and reservations, and what forecasts and reasons say of them."""

from dataclasses import replace
from datetime import UTC, datetime
from math import inf
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, precondition, rule

from scheduling.explain import explain
from scheduling.far_queue import Flow
from scheduling.forecast import forecast
from scheduling.plan import decide
from scheduling.reasons import WaitCode
from scheduling.timeline import Ask, Parts, Timeline
from scheduling.window_times import Times
from scheduling.windows import LEAST_RUN, Closings, meetings
from scheduling.world import Snapshot, WindowView
from tests.rig.pool_worlds import World, host
from tests.rig.random_pools import ANY_POOL, SEEDS, random_world

HOUR = 3600.0
DRIVERS = WindowView("drivers", 10 * HOUR, 12 * HOUR, hosts=frozenset({"gpu-1"}))
COURSE = replace(DRIVERS, name="course", group="vision")
BOUND: dict[str, Any] = {"preemptible": False, "max_time": HOUR, "time_left": HOUR}


def pool(*windows: WindowView, hosts: int = 1) -> World:
    return World([host(number, 4) for number in range(1, hosts + 1)], windows=windows)


def saves(world: World, label: str) -> None:
    running = world[label].running
    assert running is not None
    world.edit(label, running=replace(running, last_saved_at=world.now))


def test_before_a_window_only_work_that_ends_or_saves_in_time_starts() -> None:
    world = pool(DRIVERS)
    world.now = 5 * HOUR
    world.submit("bound", 1, **BOUND)
    world.submit("endless", 1, preemptible=False)
    world.submit("saves", 1, notice=HOUR)
    world.submit("slow", 1, notice=6 * HOUR)
    world.tick()
    assert world.running == {"bound", "saves"}
    assert world.why("endless").code == WaitCode.WINDOW
    assert world.why("endless").sentence == (
        "starts after maintenance drivers, 12:00 UTC; it could neither end nor save before 10:00 UTC"
    )
    assert explain(world.snapshot, "endless")[0] == world.why("endless")


def test_what_cannot_end_in_time_starts_elsewhere_and_is_told_why_not_here() -> None:
    world = pool(DRIVERS, hosts=2)
    world.submit("endless", 4, preemptible=False)
    world.submit("next", 1, preemptible=False)
    world.tick()
    assert world.host_of("endless") == "h2"
    assert world.why("next").sentence.startswith("no slot is free")
    assert "gpu-1 is closed to it for maintenance drivers until 12:00 UTC" in world.why("next").sentence


def test_a_run_is_asked_to_save_in_time_and_one_that_could_not_save_is_left_alone() -> None:
    world = pool(DRIVERS)
    for label in ("saved", "never"):
        world.submit(label, 1, notice=HOUR)
    world.tick()
    saves(world, "saved")
    world.now = 9 * HOUR - 10
    world.tick()
    assert world.released == []
    world.now = 9 * HOUR
    world.tick()
    assert world.released == ["saved"]
    assert world.plan.releases[0].window == "drivers"
    world.stops_end()
    world.tick()
    assert world.running == {"never"} and world.why("saved").code == WaitCode.WINDOW
    world.now = 12 * HOUR
    world.tick()
    assert world.running == {"never", "saved"}


def test_a_reservation_is_used_by_its_group_alone() -> None:
    world = pool(COURSE)
    world.now = 10 * HOUR
    world.submit("ours", 1, preemptible=False, groups=("research", "vision"))
    world.submit("theirs", 1, groups=("product",), **BOUND)
    world.tick()
    assert world.running == {"ours"}
    assert world.why("theirs").sentence == "starts after the reservation course for group vision, 12:00 UTC"


def test_a_number_of_slots_takes_as_few_whole_hosts_as_have_it() -> None:
    window = replace(DRIVERS, hosts=frozenset(), slots=4)
    world = World([host(1, 2), host(2, 2), host(3, 4)], windows=(window,))
    [taken] = Closings(world.snapshot).taken
    assert sum(len(view.slots) for view in world.snapshot.hosts if view.id in taken.hosts) == 4
    world.submit("endless", 4, preemptible=False)
    for _ in range(3):
        world.tick()
        assert Closings(world.snapshot).taken == [taken]
        assert all(not met.asked_at for met in meetings(world.snapshot, taken))


def test_a_forecast_knows_when_a_window_is_over() -> None:
    world = pool(DRIVERS)
    world.now = 9.9 * HOUR
    world.submit("endless", 1, preemptible=False, lasts=(60.0, 600.0))
    world.tick()
    first, last = forecast(world.snapshot, world.plan).spans["endless"]
    assert 11.8 * HOUR < first <= 12 * HOUR <= last < 12.2 * HOUR


def test_a_forecast_does_not_start_work_into_a_window_later() -> None:
    world = pool(DRIVERS)
    world.now = 8 * HOUR
    world.submit("first", 4, preemptible=False, time_left=1.5 * HOUR, lasts=(1.4 * HOUR, 1.5 * HOUR))
    world.submit("second", 4, lasts=(HOUR, HOUR), **BOUND)
    world.tick()
    assert world.running == {"first"}
    assert world.now + forecast(world.snapshot, world.plan).guesses["second"][0] >= 12 * HOUR


def test_in_a_fair_share_pool_nothing_is_granted_for_hosts_under_maintenance() -> None:
    world = World([host(1, 4), host(2, 4)], windows=(DRIVERS,), scheduler="fair_share")
    world.now = 11 * HOUR
    for label in ("one", "two"):
        world.submit(label, 4)
    world.tick()
    assert sum(world.plan.shares.values()) == 4 and len(world.running) == 1


def test_a_reservation_is_granted_to_its_group_alone_and_the_rest_of_the_pool_to_all() -> None:
    world = World([host(1, 4), host(2, 4)], windows=(COURSE,), scheduler="fair_share")
    world.now = 11 * HOUR
    for label in ("one", "two"):
        world.submit(label, 4)
    world.submit("ours", 4, groups=("research", "vision"))
    world.tick()
    assert world.host_of("ours") == "h1" and len(world.running) == 2
    assert sorted(world.plan.shares.values()) == [0, 4, 4]


def test_a_run_in_the_way_of_a_reservation_keeps_the_share_that_it_holds() -> None:
    world = World([host(1, 4), host(2, 4)], windows=(COURSE,), scheduler="fair_share")
    world.submit("in the way", 4, **BOUND, avoid_hosts=frozenset({"gpu-2"}))
    world.tick()
    world.now = 11 * HOUR
    world.submit("ours", 4, groups=("vision",))
    world.submit("theirs", 4)
    world.tick()
    assert world.plan.shares == {"in the way": 4, "ours": 4, "theirs": 0}


def test_a_run_of_the_group_elsewhere_leaves_it_what_is_reserved() -> None:
    world = World([host(1, 4), host(2, 4)], windows=(COURSE,), scheduler="fair_share")
    world.submit("elsewhere", 4, preemptible=False, groups=("vision",), avoid_hosts=frozenset({"gpu-1"}))
    world.tick()
    world.now = 11 * HOUR
    world.submit("theirs", 4)
    world.submit("ours", 4, groups=("vision",))
    world.tick()
    assert world.plan.shares == {"elsewhere": 4, "ours": 4, "theirs": 0}


def test_a_window_of_one_gang_keeps_no_other_from_its_reservation() -> None:
    world = pool(DRIVERS)
    world.now = HOUR
    world.submit("until 8", 4, **{**BOUND, "time_left": 7 * HOUR})
    world.tick()
    running = world["until 8"].running
    assert running is not None
    world.edit("until 8", running=replace(running, ends=(8 * HOUR, 8 * HOUR)))
    for label, hours in (("long", 3), ("short", 1)):
        world.submit(label, 4, preemptible=False, time_left=hours * HOUR, max_time=hours * HOUR)
    world.tick()
    assert world.plan.reservations == {"short": ("h1",)}


def test_hosts_are_kept_for_a_gang_that_is_too_late_for_a_window_only_at_the_worst() -> None:
    """Others would take each slot that comes free, and it would start after the window at last."""
    world = pool(replace(DRIVERS, hosts=frozenset({"gpu-1", "gpu-2"})), hosts=2)
    for number in range(8):
        world.submit(f"small{number}", 1, preemptible=False, time_left=3 * HOUR, max_time=3 * HOUR)
    world.tick()
    for number in range(8):
        running = world[f"small{number}"].running
        assert running is not None
        ends = (world.now + HOUR / 2, world.now + 3 * HOUR)
        world.edit(f"small{number}", running=replace(running, ends=ends))
    world.submit("gang", 8, preemptible=False, time_left=8 * HOUR, max_time=8 * HOUR)
    world.tick()
    assert sorted(world.plan.reservations["gang"]) == ["h1", "h2"]


def test_no_host_is_kept_for_a_gang_that_closes_before_the_gang_can_start() -> None:
    world = pool(DRIVERS, hosts=2)
    world.now = HOUR
    long = {"preemptible": False, "time_left": 30 * HOUR, "max_time": 30 * HOUR}
    world.submit("until 8", 4, **{**BOUND, "time_left": 7 * HOUR}, avoid_hosts=frozenset({"gpu-2"}))
    world.submit("until 9", 4, preemptible=False, avoid_hosts=frozenset({"gpu-1"}))
    world.tick()
    for label, end in (("until 8", 8 * HOUR), ("until 9", 9 * HOUR)):
        running = world[label].running
        assert running is not None
        world.edit(label, running=replace(running, ends=(end, end)))
    world.submit("short", 4, preemptible=False, time_left=HOUR, max_time=HOUR)
    world.tick()
    assert world.plan.reservations["short"] == ("h1",)
    world.edit("short", time_left=3 * HOUR, max_time=3 * HOUR)
    world.tick()
    assert world.plan.reservations["short"] == ("h2",)
    world.submit("long", 4, **long)
    world.tick()
    assert world.plan.reservations == {"short": ("h2",)}


def test_a_run_that_saves_for_a_window_is_in_the_forecast_of_what_waits() -> None:
    world = pool(DRIVERS, hosts=2)
    world.submit("saved", 4, notice=HOUR, avoid_hosts=frozenset({"gpu-2"}))
    world.submit("firm", 4, preemptible=False)
    world.tick()
    saves(world, "saved")
    for label, ends in (("saved", 30 * HOUR), ("firm", 9.5 * HOUR)):
        running = world[label].running
        assert running is not None
        world.edit(label, running=replace(running, ends=(ends, ends)))
    world.now = 9 * HOUR
    world.submit("next", 4, preemptible=False, lasts=(HOUR, HOUR), priority=60, time_left=HOUR, max_time=HOUR)
    world.edit("saved", avoid_hosts=frozenset())
    for _ in range(2):
        world.tick()  # asks it to save; then it is saving
        start = forecast(world.snapshot, world.plan).guesses["next"][1]
        assert world.now + start >= 12 * HOUR  # "saved" takes gpu-2 at half past nine, before it


def test_forecasts_far_behind_know_windows() -> None:
    work: dict[str, Any] = {
        "lasts": (600.0, 600.0),
        "time_left": 600.0,
        "max_time": 600.0,
        "preemptible": False,
    }
    starts = []
    for windows in ((), (DRIVERS,)):
        world = pool(*windows)
        world.now = 9.5 * HOUR
        for number in range(230):
            world.submit(f"t{number:03}", 4, **work)
        world.tick()
        guesses = forecast(world.snapshot, world.plan).guesses
        starts.append([world.now + guesses[f"t{number:03}"][1] for number in (3, 202, 229)])
    assert [later - sooner for sooner, later in zip(*starts, strict=True)] == pytest.approx(
        [2 * HOUR, 2 * HOUR, 2 * HOUR], abs=0.4 * HOUR
    )


def test_what_is_far_behind_waits_for_the_end_of_a_window_that_takes_what_it_needs() -> None:
    flow = Flow([(100.0, 200.0, 8), (150.0, 300.0, 4)])
    assert flow.after(0.0, 400.0, 8) == 50.0
    assert flow.after(0.0, 800.0, 8) == 100.0
    assert flow.after(0.0, 1200.0, 8) == 300.0
    assert flow.after(0.0, 1600.0, 8) == 350.0
    assert flow.after(400.0, inf, 8) == inf


@pytest.mark.parametrize("closing", [(), ((-inf, 500.0, frozenset({0})),)])
def test_holes_of_hosts_that_are_closed_or_avoided_are_not_used(closing: Any) -> None:
    timeline = Timeline(0.0, 0.0, [[0.0, 0.0, 300.0, 300.0], [1000.0]], {})
    assert timeline.place(Ask(4, single_host=True, borrows=False), 100.0) == 300.0  # opens a hole at host 0
    small = Ask(1, single_host=True, borrows=True, closings=closing)
    banned = replace(small, closings=(), banned=frozenset({0}))
    assert timeline.place(banned, 10.0) == 1000.0
    assert timeline.place(small, 10.0) == (500.0 if closing else 0.0)


def test_a_window_far_away_does_not_keep_work_without_a_limit_from_starting() -> None:
    far = replace(DRIVERS, starts=50 * HOUR, ends=52 * HOUR)
    world = pool(far)
    world.submit("endless", 1, preemptible=False)
    world.tick()
    assert world.running == {"endless"}
    world.now = 27 * HOUR
    world.submit("late", 1, preemptible=False)
    world.tick()
    assert world.why("late").code == WaitCode.WINDOW


@pytest.mark.parametrize("limit, needs", [(None, "a max_time"), (8 * 24 * HOUR, "a shorter max_time")])
def test_a_weekly_window_that_closes_the_hosts_again_promises_no_time(
    limit: float | None, needs: str
) -> None:
    again = DRIVERS.ends + (5 * HOUR if limit is None else 166 * HOUR)
    world = pool(replace(DRIVERS, again=again))
    world.submit("long", 1, preemptible=False, time_left=limit, max_time=limit)
    world.tick()
    assert world.why("long").sentence == f"needs {needs}: maintenance drivers takes its hosts every week"
    assert "long" not in forecast(world.snapshot, world.plan).spans
    world.edit("long", time_left=HOUR, max_time=HOUR)
    world.tick()
    assert world.running == {"long"}


class Counted(Timeline):
    """Counts how often it looks for hosts."""

    looks = 0

    def _earliest(self, ask: Ask) -> tuple[float, Parts]:
        self.looks += 1
        return super()._earliest(ask)


def test_a_gang_is_placed_among_many_windows_with_few_looks() -> None:
    closings = tuple((100.0 * n - 50, 100.0 * n + 150, frozenset({n})) for n in range(32))
    ask = Ask(64, single_host=False, borrows=False, closings=closings)
    timeline = Counted(0.0, 0.0, [[10.0 * n] * 8 for n in range(32)], {})
    assert timeline.when(ask) == 90.0
    assert timeline.looks <= 4
    everywhere = replace(ask, closings=tuple((-inf, 100.0 + n, frozenset({n})) for n in range(32)))
    timeline = Counted(0.0, 0.0, [[0.0] * 8 for n in range(32)], {})
    assert timeline.when(everywhere) == 107.0
    assert timeline.looks <= 2 * 32 + 1


CLOSINGS = st.lists(
    st.tuples(st.integers(-5, 30), st.integers(1, 15), st.frozensets(st.integers(0, 3))), max_size=5
)


@settings(max_examples=100, deadline=None)
@given(
    free=st.lists(st.integers(0, 20), min_size=4, max_size=4), found=CLOSINGS, hosts=st.sampled_from([1, 2])
)
def test_the_first_start_among_windows_is_that_of_looking_at_every_second(
    free: list[int], found: list[tuple[int, int, frozenset[int]]], hosts: int
) -> None:
    closings = tuple((float(last), float(last + lasts), closed) for last, lasts, closed in found)
    ask = Ask(2 * hosts, single_host=False, borrows=False, closings=closings)
    timeline = Timeline(0.0, 0.0, [[float(time)] * 2 for time in free], {})

    def fits(second: int) -> bool:
        closed = [these for last, until, these in closings if last < second < until]
        can = [n for n in range(4) if free[n] <= second and not any(n in these for these in closed)]
        return len(can) >= hosts

    assert timeline.when(ask) == next(second for second in range(100) if fits(second))


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def test_a_weekly_window_keeps_the_clock_of_its_time_zone() -> None:
    weekly = Times(datetime(2026, 10, 20, 8), datetime(2026, 10, 20, 10), "Europe/Berlin", weekly=True)
    assert weekly.coming(at("2026-10-20T00:00")) == (at("2026-10-20T06:00"), at("2026-10-20T08:00"))
    assert weekly.coming(at("2026-10-20T08:00")) == (at("2026-10-27T07:00"), at("2026-10-27T09:00"))
    assert weekly.coming(at("2027-04-01T00:00")) == (at("2027-04-06T06:00"), at("2027-04-06T08:00"))
    once = replace(weekly, weekly=False)
    assert once.coming(at("2026-10-20T07:59")) and once.coming(at("2026-10-20T08:00")) is None


def test_the_night_of_a_change_of_the_clock_is_right() -> None:
    spring = Times(datetime(2026, 3, 29, 1), datetime(2026, 3, 29, 4), "Europe/Berlin")
    assert spring.at(0) == (at("2026-03-29T00:00"), at("2026-03-29T02:00"))
    autumn = Times(datetime(2026, 10, 25, 1), datetime(2026, 10, 25, 4), "Europe/Berlin")
    assert autumn.at(0) == (at("2026-10-24T23:00"), at("2026-10-25T03:00"))


def test_a_time_that_the_clock_skips_is_no_time() -> None:
    skipped = Times(datetime(2026, 3, 29, 2, 30), datetime(2026, 3, 29, 3, 10), "Europe/Berlin")
    assert skipped.coming(at("2026-03-28T00:00")) is None
    weekly = replace(skipped, weekly=True)
    assert weekly.coming(at("2026-03-28T00:00")) == (at("2026-04-05T00:30"), at("2026-04-05T01:10"))


@given(st.datetimes(datetime(2026, 1, 1), datetime(2027, 12, 31)), st.integers(0, 200), st.booleans())
@settings(max_examples=30, deadline=None)
def test_the_time_that_comes_next_is_the_first_that_is_not_over(
    starts: datetime, days: int, weekly: bool
) -> None:
    starts = starts.replace(microsecond=0)
    times = Times(starts, starts.replace(hour=23, minute=59, second=59), "America/New_York", weekly)
    now = times.at(0)[0] + days * 86400.0
    spans = [times.at(week) for week in range(32 if weekly else 1)]
    assert times.coming(now) == next((span for span in spans if span[1] > now), None)


@pytest.mark.parametrize("days, meets", [(0, True), (7, True), (1, False)])
def test_weekly_windows_meet_on_later_weeks_too(days: int, meets: bool) -> None:
    weekly = Times(datetime(2026, 12, 1, 8), datetime(2026, 12, 1, 10), weekly=True)
    other = Times(datetime(2026, 12, 1 + days, 9), datetime(2026, 12, 1 + days, 11))
    assert weekly.meets(other, at("2026-11-28T00:00")) is meets
    assert other.meets(weekly, at("2026-11-28T00:00")) is meets


def with_windows(seed: int, rules: dict[str, Any]) -> Snapshot:
    """A pool in which anything may have happened, with windows soon or now, and work of all kinds for them."""
    random, world = Random(seed), random_world(seed, **rules).snapshot
    windows = []
    for number in range(random.randint(1, 3)):
        starts = world.now + random.choice([-50.0, 20.0, 400.0, 2000.0])
        named = frozenset(view.name for view in world.hosts if random.random() < 0.4)
        windows.append(
            WindowView(
                f"w{number}", starts, starts + random.choice([60.0, 900.0]), named,
                0 if named else random.randint(1, 6), random.choice(["", "vision", "product"]),
            )
        )  # fmt: skip
    requests = tuple(
        replace(
            each,
            time_left=random.choice([None, 30.0, 300.0]),
            notice=random.choice([10.0, 60.0, 500.0]),
            running=each.running and replace(each.running, asked_preempt=random.random() < 0.5),
        )
        for each in world.requests
    )
    return replace(world, pool=replace(world.pool, windows=tuple(windows), overrun=5.0), requests=requests)


@settings(max_examples=60, deadline=None)
@given(seed=SEEDS, rules=ANY_POOL)
def test_a_window_never_cuts_a_run_that_could_not_save_and_nothing_else_is_placed_before_it(
    seed: int, rules: dict[str, Any]
) -> None:
    snapshot = with_windows(seed, rules)
    requests, now = {request.task_id: request for request in snapshot.requests}, snapshot.now
    taken, plan = Closings(snapshot).taken, decide(snapshot)
    for start in plan.starts:
        request, hosts = requests[start.task_id], {host_id for host_id, _ in start.hosts}
        for one in taken:
            if hosts & one.hosts and not one.admits(request):
                ends = request.time_left is not None and now + request.time_left + 5 <= one.window.starts
                saves = request.preemptible and now + LEAST_RUN + request.notice <= one.window.starts
                assert ends or saves, (request, one)
    windows = {one.window.name: one for one in taken}
    for release in plan.releases:
        if release.window:
            run, one = requests[release.task_id], windows[release.window]
            assert run.preemptible and run.running is not None and not run.running.stopping
            assert run.running.asked_preempt or run.running.last_saved_at is not None
            assert one.hosts & set(run.running.slots) and not one.admits(run)
            assert one.window.starts - run.notice <= now < one.window.ends


class Pool(RuleBasedStateMachine):
    """Groups, windows, edits, lost hosts and passes in any order, beside the simplest model of what must hold.

    The model knows who may be where, and for every run whether anybody may have stopped it.
    """

    tasks = Bundle("tasks")

    def __init__(self) -> None:
        super().__init__()
        self.world = World([host(number, size) for number, size in ((1, 4), (2, 4), (3, 2))], overrun=5.0)
        self.windows: dict[str, WindowView] = {}
        self.count = 0

    @rule(
        target=tasks, slots=st.sampled_from([0, 1, 2, 4, 8]), priority=st.sampled_from([10, 42, 42, 60]),
        kind=st.sampled_from([(True, None), (True, 200.0), (False, None), (False, 200.0)]),
        group=st.sampled_from([(), ("research", "vision"), ("product",)]), notice=st.sampled_from([20.0, 90.0]),
    )  # fmt: skip
    def submit(
        self,
        slots: int,
        priority: int,
        kind: tuple[bool, float | None],
        group: tuple[str, ...],
        notice: float,
    ) -> str:
        self.count += 1
        name = f"t{self.count:02}"
        preemptible, limit = kind
        self.world.submit(
            name, slots, priority=priority, preemptible=preemptible, time_left=limit, max_time=limit,
            groups=group, notice=notice,
        )  # fmt: skip
        return name

    @rule(
        number=st.integers(1, 3),
        ahead=st.sampled_from([0.0, 100.0, 600.0]),
        group=st.sampled_from(["", "vision"]),
    )
    def add_window(self, number: int, ahead: float, group: str) -> None:
        starts = self.world.now + ahead
        named = frozenset({f"gpu-{number}"})
        if all(named.isdisjoint(one.hosts) or one.ends <= self.world.now for one in self.windows.values()):
            self.windows[f"w{number}"] = WindowView(f"w{number}", starts, starts + 200, named, group=group)

    @rule(number=st.integers(1, 3))
    def remove_window(self, number: int) -> None:
        self.windows.pop(f"w{number}", None)

    @rule(
        number=st.integers(1, 3),
        away=st.sampled_from([{"silent": True}, {"silent": False}, {"draining": True}]),
    )
    def host_changes(self, number: int, away: dict[str, bool]) -> None:
        self.world.edit_host(f"h{number}", **away)

    @rule(seconds=st.sampled_from([1.0, 60.0, 300.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.now += seconds

    @precondition(lambda self: self.world.running)
    @rule(data=st.data())
    def asks_whether_to_stop(self, data: st.DataObject) -> None:
        task = data.draw(st.sampled_from(sorted(self.world.running)))
        running = self.world[task].running
        assert running is not None
        self.world.edit(task, running=replace(running, asked_preempt=True))

    @precondition(lambda self: self.world.running)
    @rule(data=st.data())
    def ends(self, data: st.DataObject) -> None:
        self.world.finish(data.draw(st.sampled_from(sorted(self.world.running))))

    @rule(task=tasks, priority=st.sampled_from([1, 42, 90]))
    def edit(self, task: str, priority: int) -> None:
        if any(each.task_id == task for each in self.world.snapshot.requests):
            self.world.edit(task, priority=priority)

    @rule()
    def tick(self) -> None:
        self.world.stops_end()
        self._tick()

    def _tick(self) -> None:
        world = self.world
        now = world.now + 1
        coming = {name: one for name, one in self.windows.items() if one.ends > now}
        world._snapshot = replace(
            world._snapshot, pool=replace(world._snapshot.pool, windows=(*coming.values(),))
        )
        before = {each.task_id: each for each in world.snapshot.requests}
        plan = world.tick()
        names = {view.id: view.name for view in world.snapshot.hosts}
        for start in plan.starts:
            request = before[start.task_id]
            for host_id, _ in start.hosts:
                for one in coming.values():
                    if names[host_id] in one.hosts and one.group not in request.groups:
                        limit = None if request.time_left is None else now + request.time_left + 5
                        in_time = limit is not None and limit <= one.starts
                        assert in_time or (request.preemptible and now + request.notice < one.starts)
        for release in plan.releases:
            run = before[release.task_id]
            assert run.running is not None and run.preemptible
            assert release.for_task_id or run.running.asked_preempt

    @invariant()
    def everyone_is_somewhere_once(self) -> None:
        held = [
            slot
            for each in self.world.snapshot.requests
            if each.running
            for ids in each.running.slots.values()
            for slot in ids
        ]
        assert len(held) == len(set(held))

    def teardown(self) -> None:
        """Without windows and with all hosts, what waits is not told of a window, and the pool comes to rest."""
        self.windows.clear()
        for number in (1, 2, 3):
            self.world.edit_host(f"h{number}", silent=False, draining=False)
        for _ in range(60):
            self.tick()
            if not (self.world.plan.starts or self.world.plan.releases):
                break
        else:
            raise AssertionError("the pool never comes to rest")
        assert all(reason.code != WaitCode.WINDOW for reason in self.world.plan.waits.values())


TestPool = Pool.TestCase
TestPool.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
