"""How long work runs, from what is known of it."""

import math
from random import Random
from statistics import NormalDist

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduling.durations import ends_of, lasts_of
from scheduling.past_runs import PastRuns, Work

SECONDS = st.floats(1, 1e6)
HISTORIES = st.lists(SECONDS, max_size=30)
WORK = Work("ada", "COMMAND", "lint", 1)


def like(*seconds: float) -> NormalDist | None:
    past = PastRuns()
    for number, each in enumerate(seconds):
        past.add(f"job {number}", WORK, each)
    return past.like("new", WORK)


LIMITS = st.none() | SECONDS


def test_nothing_known_is_unknown() -> None:
    assert lasts_of(None, None) is None
    assert ends_of(0, 100, None, None, None) is None
    assert ends_of(0, 100, 0.001, None, None) is None, "at the very start the pace says nothing"


def test_a_time_limit_alone_bounds_the_end() -> None:
    assert lasts_of(3600, None) == (360, 3600)
    assert ends_of(1000, 1600, None, 3600, None) == (1600 + 300, 1000 + 3600)


def test_progress_narrows_as_the_run_proceeds() -> None:
    widths = []
    for part in (0.1, 0.5, 0.9, 1.0):
        span = ends_of(0, 1000 * part, part, None, None)
        assert span is not None and span[0] <= 1000 <= span[1]
        widths.append(span[1] - span[0])
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] == 0


def test_a_run_that_is_longer_than_any_before_it_still_has_an_end() -> None:
    span = ends_of(0, 50_000, None, None, like(*[100.0] * 20))
    assert span is not None and 50_000 <= span[0] < span[1] < math.inf


def test_history_counts_from_when_slots_were_held_but_pace_and_limit_from_the_start() -> None:
    known = like(*(100.0 + number for number in range(20)))
    assert ends_of(50, 90, None, None, known, held_since=20) == ends_of(20, 90, None, None, known)
    assert ends_of(50, 90, 0.5, 300, known, held_since=20) == ends_of(50, 90, 0.5, 300, None)


@given(SECONDS, SECONDS, st.none() | st.floats(0, 1), LIMITS, HISTORIES)
def test_an_end_is_a_range_from_now_on_and_within_the_limit(
    started_at: float, ran: float, progress: float | None, limit: float | None, history: list[float]
) -> None:
    now = started_at + ran
    span = ends_of(started_at, now, progress, limit, like(*history))
    if span is not None:
        assert now <= span[0] <= span[1] < math.inf
        assert limit is None or span[1] <= max(now, started_at + limit) + 1e-6


@given(LIMITS, HISTORIES)
def test_a_duration_is_a_range_within_the_limit(limit: float | None, history: list[float]) -> None:
    span = lasts_of(limit, like(*history))
    assert (span is None) == (limit is None and not history)
    if span is not None:
        assert 0 < span[0] <= span[1] <= (limit or math.inf)


@pytest.mark.parametrize("known", [4, 8, 30])
def test_ranges_from_history_hold_four_fifths_of_lognormal_durations(known: int) -> None:
    random = Random(known)
    inside = 0
    for _ in range(1000):
        history = [random.lognormvariate(8, 0.7) for _ in range(known)]
        span = lasts_of(None, like(*history))
        assert span is not None
        inside += span[0] <= random.lognormvariate(8, 0.7) <= span[1]
    assert 740 <= inside <= 900


def test_what_still_runs_ends_within_its_range_four_times_of_five() -> None:
    random = Random(2)
    inside = 0
    for _ in range(1000):
        history = [random.lognormvariate(8, 0.7) for _ in range(20)]
        whole = random.lognormvariate(8, 0.7)
        now = random.random() * whole
        span = ends_of(0, now, None, None, like(*history))
        assert span is not None
        inside += span[0] <= whole <= span[1]
    assert 740 <= inside <= 880
