"""Ranges are moved to where starts have been."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduling.calibration import MOST_PLACES, UNFORESEEN, Learned, place, span, still_waiting

GUESS = (100.0, 200.0, 800.0)
SECONDS = st.floats(0, 1e6)


def test_without_promises_the_range_is_that_of_the_model() -> None:
    first, last = span(GUESS, [])
    assert (first, last) == pytest.approx((100 * (1 - UNFORESEEN), 800 * (1 + UNFORESEEN)), rel=0.01)


def test_places_are_on_the_scale_of_the_model() -> None:
    first, last = span(GUESS, [])
    assert [place(GUESS, each) for each in (first, 200.0, last)] == pytest.approx([-1, 0, 1])


@pytest.mark.parametrize("truth", [0.2, 1.0, 5.0])
def test_ranges_hold_four_fifths_of_starts_that_are_sooner_or_later_than_the_model_says(truth: float) -> None:
    random, places, inside = Random(1), list[float](), 0
    for number in range(900):
        middle = random.uniform(10, 1000)
        guess = middle / 2, middle, middle * 2
        first, last = span(guess, places)
        seconds = middle * truth * random.lognormvariate(0, 0.3)
        inside += number >= 300 and first <= seconds <= last
        places.append(place(guess, seconds))
    assert 0.74 <= inside / 600 <= 0.86


def test_what_was_long_ago_does_not_count() -> None:
    lately = [0.1] * MOST_PLACES
    assert span(GUESS, [5.0] * 1000 + lately) == span(GUESS, lately)


@given(st.lists(SECONDS, min_size=3, max_size=3), st.lists(st.floats(-10, 10), max_size=50), SECONDS)
def test_a_range_is_in_order_and_a_place_is_finite(
    seconds: list[float], places: list[float], start: float
) -> None:
    first, middle, last = sorted(seconds)
    earliest, latest = span((first, middle, last), places)
    assert 0 <= earliest <= latest < float("inf")
    assert abs(place((first, middle, last), start)) <= 10


def test_what_is_late_and_still_waits_moves_the_range_though_the_starts_so_far_were_sooner() -> None:
    soon = [-0.5] * 40
    late = still_waiting([(number * 100.0, GUESS) for number in range(30)], 5000.0)
    assert late and min(late) > 1
    assert span(GUESS, soon, late)[1] > 2 * span(GUESS, soon)[1]
    assert span(GUESS, soon, [-3.0] * 30)[1] == pytest.approx(span(GUESS, soon)[1], rel=0.3), "not yet late"


def test_what_still_waits_within_its_range_tells_nothing_yet() -> None:
    assert still_waiting([(0.0, GUESS)], 99.0) == []
    assert still_waiting([(0.0, GUESS), (0.1, GUESS)], 200.0) == pytest.approx([0]), "one of two alike counts"


def test_of_promises_that_were_given_close_together_one_counts() -> None:
    learned = Learned().started(1000.0, GUESS, 200.0).started(1009.0, GUESS, 200.0)
    assert learned.places == pytest.approx([0]) and learned.newest == 1000
    assert len(learned.started(1011.0, GUESS, 200.0).places) == 2
