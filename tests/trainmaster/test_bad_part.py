"""Which part makes a group slow: the bad one is found in few rounds, and no healthy one is ever named."""

from __future__ import annotations

import math
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from trainmaster.burn_in import between
from trainmaster.burn_in.bad_part import BAD, SLOW, found_by, rounds, search, slow_parts, usual


def searched(count: int, bad: set[int]) -> tuple[int | None, int]:
    """What the search of parts 0 … count - 1 finds, and in how many rounds, if a subset with a bad one is not well."""
    going, asked = search(range(count)), 0
    answers: list[bool] | None = None
    while True:
        try:
            subsets = next(going) if answers is None else going.send(answers)
        except StopIteration as over:
            return over.value, asked
        members = [part for subset in subsets for part in subset]
        assert len(members) == len(set(members)) and all(len(subset) > 1 for subset in subsets)
        answers = [not bad & set(subset) for subset in subsets]
        asked += 1


@given(st.data())
def test_one_bad_part_is_found_in_few_rounds(data: st.DataObject) -> None:
    count = data.draw(st.integers(3, 64))
    bad = data.draw(st.integers(0, count - 1))
    found, asked = searched(count, {bad})
    assert found == bad and asked <= math.ceil(math.log2(count)) + 1


@given(st.data())
def test_of_several_bad_parts_none_is_named_by_the_search(data: st.DataObject) -> None:
    count = data.draw(st.integers(3, 24))
    bad = data.draw(st.sets(st.integers(0, count - 1), min_size=2))
    assert searched(count, bad)[0] is None


def test_of_two_parts_nobody_can_tell() -> None:
    assert searched(2, {0}) == (None, 0)
    assert slow_parts({frozenset((0, 1)): 1.0}, [0, 1]) == set()


def test_an_answer_that_is_missing_names_nobody() -> None:
    well = {
        frozenset(subset): 3 not in subset for size in (2, 3, 4) for subset in combinations(range(4), size)
    }
    assert found_by(range(4), well) == 3
    assert (
        found_by(range(4), {subset: is_well for subset, is_well in well.items() if len(subset) != 3}) is None
    )


def healthy(data: st.DataObject, least: float) -> float:
    return data.draw(st.floats(least, 1.0)) * 10


@given(st.data())
def test_a_minority_that_is_slow_with_all_others_is_named_and_nobody_else(data: st.DataObject) -> None:
    """However the bad ones do among themselves, and however far the healthy differ within the bound."""
    count = data.draw(st.integers(3, 12))
    bad = data.draw(st.sets(st.integers(0, count - 1), max_size=(count - 1) // 2))
    pairs = {}
    for pair in combinations(range(count), 2):
        inside = len(bad & set(pair))
        pairs[frozenset(pair)] = (
            healthy(data, SLOW + 0.001) if not inside
            else data.draw(st.floats(0, 10 * (SLOW + 0.001) * SLOW * 0.999)) if inside == 1
            else data.draw(st.floats(0, 100))
        )  # fmt: skip
    assert slow_parts(pairs, range(count)) == bad


@given(st.data())
def test_whatever_the_rates_are_a_named_part_is_slow_with_all_that_are_not(data: st.DataObject) -> None:
    count = data.draw(st.integers(2, 7))
    pairs = {
        frozenset(pair): data.draw(st.floats(0, 10))
        for pair in combinations(range(count), 2)
        if data.draw(st.integers(0, 9))  # some are missing
    }
    for share in (SLOW, BAD):
        named = slow_parts(pairs, range(count), share) or set()
        others = set(range(count)) - named
        least = share * usual(pairs.values(), count)
        assert 2 * len(others) > count
        if named:
            assert all(pairs[frozenset((a, b))] < least for a in named for b in others)
            assert all(pairs[frozenset(pair)] >= least for pair in combinations(others, 2))


@given(st.integers(0, 20))
def test_every_pair_meets_once_and_no_part_twice_in_a_round(count: int) -> None:
    meetings = list(rounds(count))
    assert sorted(pair for meeting in meetings for pair in meeting) == list(combinations(range(count), 2))
    assert all(len({part for pair in meeting for part in pair}) == 2 * len(meeting) for meeting in meetings)


def test_a_rank_that_hangs_ends_before_those_that_wait_for_its_word() -> None:
    assert between._HANGS_SECONDS + between.LIMIT_SECONDS <= between._AGREE_SECONDS
