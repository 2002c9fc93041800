"""What held slots went to: parts that always add up, whatever a job says; and the time of each is the right one's."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.step_facts import SECOND, Fact, Steps, steps_of
from jobs.time_parts import DAY, Attempt, Held, Reached, Span, seconds_by_day

#: what hostile training code may say of times and steps
ANY = st.integers(-(2**70), 2**70) | st.integers(0, 200 * SECOND)
MOMENTS = st.integers(0, 3 * DAY)
SPANS = st.builds(Span, ANY, ANY)
STORED = st.integers(-(2**62), 2**63 - 1) | st.integers(0, 200 * SECOND)
FACTS = st.lists(st.builds(Fact, STORED, STORED), max_size=12)


def steps(facts: Sequence[Fact], begin: int, end: int, reached: Sequence[Reached] = ()) -> Steps:
    of_facts = np.array(facts, np.int64).reshape(-1, 2)
    return steps_of(of_facts[:, 0], of_facts[:, 1], begin, end, [one.step for one in reached])


ATTEMPTS = st.builds(
    Attempt,
    gang_started_at=st.none() | MOMENTS,
    end=MOMENTS,
    begun_step=ANY,
    steps=st.builds(steps, FACTS, MOMENTS, MOMENTS),
    saves=st.lists(SPANS, max_size=5),
    reached=st.lists(st.builds(Reached, ANY, st.sampled_from(["preempted", "host_lost"])), max_size=4),
    runs=st.booleans(),
    stop_at=st.none() | MOMENTS,
    slow_share=st.floats(),
)
HELD = st.builds(
    Held,
    begin=MOMENTS,
    end=MOMENTS,
    started_at=st.none() | MOMENTS,
    slots=st.integers(0, 4),
    idle=st.lists(st.lists(SPANS, max_size=3), max_size=6),
)


@settings(max_examples=60)
@given(ATTEMPTS, st.lists(HELD, max_size=2), st.randoms(use_true_random=False))
def test_parts_add_up_to_the_time_held_whatever_a_job_says(
    attempt: Attempt, members: list[Held], random: object
) -> None:
    found = seconds_by_day(attempt, members)
    for days, member in zip(found, members, strict=True):
        held = member.slots * max(0, member.end - member.begin)
        assert sum(sum(sums.values()) for sums in days.values()) == held
        assert all(amount >= 0 for sums in days.values() for amount in sums.values())
        for day, sums in days.items():
            begin, end = max(member.begin, day * DAY), min(member.end, (day + 1) * DAY)
            assert sums.total() == member.slots * max(0, end - begin)
    saves = list(attempt.saves)
    random.shuffle(saves)  # type: ignore[attr-defined]
    shuffled = Attempt(**{**vars(attempt), "saves": saves})
    assert seconds_by_day(shuffled, members) == found


def in_full(facts: Sequence[Fact], begin: int, end: int) -> Steps:
    """As `steps`, with each report that brought a new step."""
    found: list[Fact] = []
    for at, step in sorted((min(max(at, begin), end), step) for at, step in facts if step >= 0):
        if found and at == found[-1].at and step > found[-1].step:
            found.pop()
        if not found or step > found[-1].step:
            found.append(Fact(at, step))
    known = steps(facts, begin, end)
    return Steps(found, known.gap, known.pace)


@settings(max_examples=60)
@given(
    st.lists(st.builds(Fact, st.integers(0, 6000 * SECOND) | MOMENTS, st.integers(-3, 60)), max_size=40),
    st.lists(st.builds(Reached, st.integers(1, 50), st.sampled_from(["preempted", "host_lost"])), max_size=3),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_the_few_reports_that_are_kept_say_the_same_as_all(
    facts: list[Fact], reached: list[Reached], runs: bool, random: object
) -> None:
    all_of_them = in_full(facts, 0, DAY)
    random.shuffle(facts)  # type: ignore[attr-defined]
    few = steps(facts, 0, DAY, reached)
    told = [
        seconds_by_day(Attempt(0, DAY, steps=each, reached=reached, runs=runs), [Held(0, DAY, 0, 1)])
        for each in (few, all_of_them)
    ]
    assert told[0] == told[1]


def test_of_many_reports_few_are_kept() -> None:
    at = np.arange(1, 100_001, dtype=np.int64)
    found = steps_of(at * SECOND, at, 0, 10**12, borders=[500])
    assert [fact.step for fact in found.facts] == [1, 499, 500, 100_000]
    assert (found.gap, found.pace) == (SECOND, SECOND)


def told(
    attempt: Attempt, *, held: float = 100, started: float | None = 10, slots: int = 1, **more: object
) -> dict[str, float]:
    """Seconds by what they went to, of slots held from second 0 on."""
    at = None if started is None else int(started * SECOND)
    member = Held(0, int(held * SECOND), at, slots, **more)  # type: ignore[arg-type]
    total: Counter[str] = Counter()
    for sums in seconds_by_day(attempt, [member])[0].values():
        total.update(sums)
    return {what: amount / SECOND for what, amount in total.items()}


def attempt(facts: list[tuple[float, int]], *, end: float = 100, gang: float = 20, **more: object) -> Attempt:
    began, ended = int(gang * SECOND), int(end * SECOND)
    reached: list[Reached] = more.get("reached", [])  # type: ignore[assignment]
    found = steps([Fact(int(at * SECOND), step) for at, step in facts], began, ended, reached)
    return Attempt(began, ended, steps=found, **more)  # type: ignore[arg-type]


def spans(*seconds: tuple[float, float]) -> list[Span]:
    return [Span(int(begin * SECOND), int(end * SECOND)) for begin, end in seconds]


STEPS = [(40, 10), (50, 20), (60, 30), (70, 40), (80, 50), (90, 60)]


def test_a_run_waits_for_its_gang_loads_trains_saves_and_ends() -> None:
    # the steps before the first report last as long as the later ones: 10 s
    assert told(attempt(STEPS)) == {"start": 10 + 10, "gang": 10, "progress": 60, "end": 10}
    saved = attempt(STEPS, saves=spans((55, 58), (57, 62)))
    assert told(saved) == {"start": 20, "gang": 10, "progress": 53, "checkpoint": 7, "end": 10}
    assert told(attempt(STEPS), slots=4)["progress"] == 240


def test_steps_are_done_again_after_the_latest_stop_that_had_reached_them() -> None:
    before = [Reached(45, "preempted"), Reached(25, "host_lost")]
    found = told(attempt(STEPS, reached=before, begun_step=0))
    assert found == {
        "start": 20, "gang": 10, "again:host_lost": 25, "again:preempted": 20, "progress": 15, "end": 10,
    }  # fmt: skip
    resumed = told(attempt([(40, 30), (50, 40), (60, 50)], reached=before, begun_step=20, end=60), held=60)
    assert resumed["again:host_lost"] == 5 and resumed["again:preempted"] == 20 and resumed["progress"] == 5


def test_what_cannot_be_known_is_not_told() -> None:
    assert told(attempt([])) == {"start": 10, "gang": 10, "not_told": 80}
    # one report alone says neither when the steps began nor how long one lasts
    assert told(attempt([(60, 5)])) == {"start": 10, "gang": 10, "not_told": 40, "end": 40}
    # earlier attempts did report: this one has not come to a step
    assert told(attempt([], reached=[Reached(9, "host_lost")])) == {"start": 90, "gang": 10}


def test_a_run_whose_steps_cease_has_stalled() -> None:
    hours = {"end": 7200.0, "runs": True}
    assert told(attempt(STEPS, **hours), held=7200)["stalled"] == 7110  # type: ignore[arg-type]
    stopped = attempt(STEPS, end=7200, stop_at=7000 * SECOND)
    assert told(stopped, held=7200) == {
        "start": 20, "gang": 10, "progress": 60, "stalled": 6910, "end": 200,
    }  # fmt: skip
    # by itself it may have done something else at its end
    assert told(attempt(STEPS, end=7200), held=7200)["end"] == 7110
    assert told(attempt(STEPS, runs=True))["progress"] == 70
    # it does new work once it has come to where the one before was
    assert told(attempt(STEPS, runs=True, reached=[Reached(60, "host_lost")]))["progress"] == 10


def each_half_minute(begin: float, first: int, count: int) -> list[tuple[float, int]]:
    return [(begin + 30 * i, first + i) for i in range(count)]


def test_a_stall_stays_one_when_it_is_over() -> None:
    before = each_half_minute(50, 1, 100)
    (hung_at, step) = before[-1]
    after = each_half_minute(hung_at + 7200, step + 1, 100)
    end = after[-1][0]
    # the step after it took its usual time
    assert told(attempt(before + after, end=end), held=end)["stalled"] == 7200 - 30
    # as long a gap with as many steps is none
    faster = [(hung_at + 7200, step + 240)]
    assert "stalled" not in told(attempt(before + faster, end=hung_at + 7200), held=hung_at + 7200)
    saved = attempt(before + after, end=end, saves=spans((hung_at + 60, hung_at + 3660)))
    assert told(saved, held=end)["stalled"] == 7200 - 30 - 3600


def test_the_same_step_again_and_again_is_a_stall() -> None:
    before = each_half_minute(50, 1, 100)
    (hung_at, step) = before[-1]
    end = hung_at + 7200
    alive = [(hung_at + 60 * i, step) for i in range(1, 121)]
    assert told(attempt(before + alive, end=end, runs=True), held=end)["stalled"] == 7200


def test_the_usual_time_between_reports_is_that_of_all() -> None:
    reports = each_half_minute(50, 1, 3000)
    end = reports[-1][0] + 4 * 3600
    assert told(attempt(reports, end=end, runs=True), held=end)["stalled"] == 4 * 3600


def test_idle_slots_and_a_slow_rank_take_from_the_work() -> None:
    idle = [spans((0, 70)), spans((30, 40), (35, 50))]
    found = told(attempt(STEPS), slots=4, idle=idle)
    assert found == {"start": 80, "gang": 40, "progress": 240 - 40 - 20, "idle": 60, "end": 40}
    slow = told(attempt(STEPS, slow_share=0.25))
    assert slow["slow"] == 15 and slow["progress"] == 45


def test_members_that_never_began_only_started() -> None:
    assert told(Attempt(None, 100 * SECOND), started=None) == {"start": 100}
    assert told(Attempt(None, 100 * SECOND), started=30) == {"start": 30, "gang": 70}
