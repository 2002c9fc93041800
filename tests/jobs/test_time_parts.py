"""What held slots went to: parts that always add up, whatever a job says; and the time of each is the right one's."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.time_parts import (
    DAY,
    SECOND,
    Attempt,
    Fact,
    Held,
    Reached,
    Span,
    seconds_by_day,
)

#: what hostile training code may say of times and steps
ANY = st.integers(-(2**70), 2**70) | st.integers(0, 200 * SECOND)
MOMENTS = st.integers(0, 3 * DAY)
SPANS = st.builds(Span, ANY, ANY)
ATTEMPTS = st.builds(
    Attempt,
    gang_started_at=st.none() | MOMENTS,
    end=MOMENTS,
    begun_step=ANY,
    facts=st.lists(st.builds(Fact, ANY, ANY), max_size=12),
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
    facts, saves = list(attempt.facts), list(attempt.saves)
    random.shuffle(facts)  # type: ignore[attr-defined]
    random.shuffle(saves)  # type: ignore[attr-defined]
    shuffled = Attempt(**{**vars(attempt), "facts": facts, "saves": saves})
    assert seconds_by_day(shuffled, members) == found


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
    of_steps = [Fact(int(at * SECOND), step) for at, step in facts]
    return Attempt(int(gang * SECOND), int(end * SECOND), facts=of_steps, **more)  # type: ignore[arg-type]


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


def test_idle_slots_and_a_slow_rank_take_from_the_work() -> None:
    idle = [spans((0, 70)), spans((30, 40), (35, 50))]
    found = told(attempt(STEPS), slots=4, idle=idle)
    assert found == {"start": 80, "gang": 40, "progress": 240 - 40 - 20, "idle": 60, "end": 40}
    slow = told(attempt(STEPS, slow_share=0.25))
    assert slow["slow"] == 15 and slow["progress"] == 45


def test_members_that_never_began_only_started() -> None:
    assert told(Attempt(None, 100 * SECOND), started=None) == {"start": 100}
    assert told(Attempt(None, 100 * SECOND), started=30) == {"start": 30, "gang": 70}
