"""How closely passes may follow each other: the first at once, under a flood a part of the time."""

import queue

import pytest

from dispatch.passes.pace import LONGEST_REST_SECONDS, PART, SAVED_SECONDS, Pace


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_work_of_short_passes_that_comes_now_and_then_never_waits(clock: Clock) -> None:
    pace = Pace(lambda pool_id: None, clock)
    for _ in range(200):  # ten submissions and ten ends a second, passes of 14 ms
        clock.now += 0.05
        assert pace.may_pass(1) and pace.took(1, 0.014) == 0


def test_passes_of_a_flood_take_their_part_of_the_time(clock: Clock) -> None:
    pace, worked, begun = Pace(lambda pool_id: None, clock), 0.0, clock.now
    while clock.now < begun + 60:
        clock.now += 0.1
        worked += 0.1
        clock.now += pace.took(1, 0.1)
    assert worked <= 60 * PART + SAVED_SECONDS + 0.1
    assert pace.took(2, 0.1) == 0, "one pool waits for no other"


def test_no_rest_is_long_however_long_a_pass_was(clock: Clock) -> None:
    pace = Pace(lambda pool_id: None, clock)
    for _ in range(3):
        clock.now += 5
        assert pace.took(1, 5) == pytest.approx(LONGEST_REST_SECONDS)


def test_passes_of_a_second_rest_no_longer_and_what_comes_later_does_not_wait(clock: Clock) -> None:
    pace = Pace(lambda pool_id: None, clock)
    for _ in range(5):  # they take more than their part
        clock.now += 1
        assert pace.took(1, 1) == pytest.approx(LONGEST_REST_SECONDS) and not pace.may_pass(1)
        clock.now += LONGEST_REST_SECONDS
    clock.now += 2
    assert pace.took(1, 0.1) == 0


def test_what_is_asked_for_in_a_rest_is_asked_for_once_when_it_is_over() -> None:
    again: queue.Queue[int] = queue.Queue()
    pace = Pace(again.put)
    assert pace.took(1, SAVED_SECONDS + 0.01) > 0
    assert not pace.may_pass(1) and not pace.may_pass(1) and pace.may_pass(2)
    assert again.get(timeout=10) == 1 and pace.may_pass(1) and again.empty()
