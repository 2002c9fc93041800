"""What the figures of burn-ins mean beside those of other hosts, and what is not taken from a host."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hosts.health.burn_in import MEASURES, Figure, as_record, compare, read


def gpu(value: float, slot: int = 0, device: str = "H100", measure: str = "copy") -> Figure:
    return Figure(measure, value, "", device, slot)


def test_a_slow_gpu_is_told_with_its_evidence() -> None:
    others = [[gpu(24.0), gpu(26.0, 1)], [gpu(24.0)], [gpu(23.0)], [gpu(22.0)]]
    slow, usual = compare([gpu(11.0, 3), gpu(20.0, 4)], others)
    assert slow.sentence == "slot 3: copy bandwidth 11 GB/s, the median of 4 other hosts is 23.5 GB/s"
    assert (slow.is_slow, slow.is_bad, usual.is_slow, usual.is_bad) == (True, True, False, False)


def test_between_half_and_three_quarters_is_told_and_not_bad() -> None:
    [found] = compare([gpu(15.0)], [[gpu(24.0)]] * 3)
    assert (found.is_slow, found.is_bad) == (True, False)


@pytest.mark.parametrize(
    "others",
    [
        [[gpu(24.0)]] * 2,
        [[gpu(24.0, device="A100")]] * 5,
        [[Figure("copy", 24.0, "another way", "H100", 0)]] * 5,
        [[gpu(24.0, 0), gpu(24.0, 1), gpu(24.0, 2)]],
    ],
)
def test_without_three_alike_hosts_nothing_is_said(others: list[list[Figure]]) -> None:
    [found] = compare([gpu(1.0)], others)
    assert (found.median, found.is_slow, found.is_bad) == (None, False, False)


def test_wrong_results_need_no_other_host() -> None:
    [wrong, right] = compare([gpu(2.0, measure="wrong_results"), gpu(0.0, measure="wrong_memory")], [])
    assert wrong.is_bad and wrong.sentence == "slot 0: wrong results of matrix products 2"
    assert not right.is_slow


def test_a_rate_of_the_host_is_told_and_never_bad_and_a_wrong_result_is() -> None:
    others = [[Figure("disk_write", 900.0, "ext4 on /dev/sda")]] * 3
    [slow, wrong] = compare(
        [Figure("disk_write", 90.0, "ext4 on /dev/sda"), Figure("wrong_memory", 1.0)], others
    )
    assert (slow.is_slow, slow.is_bad, wrong.is_bad) == (True, False, True)


@pytest.mark.parametrize(
    "told",
    [
        None,
        [],
        {},
        {"measure": "temper", "value": 1.0},
        {"measure": ["copy"], "value": 1.0},
        {"measure": "copy", "value": "24"},
        {"measure": "copy", "value": True},
        {"measure": "copy", "value": -1.0},
        {"measure": "copy", "value": float("nan")},
        {"measure": "copy", "value": 10**400},
        {"measure": "copy", "value": 1.0, "slot": 7},
        {"measure": "copy", "value": 1.0, "slot": True},
        {"measure": "copy", "value": 1.0, "slot": [0]},
        {"measure": "copy", "value": 1.0, "how": 3},
    ],
)
def test_nonsense_is_no_figure(told: object) -> None:
    assert read(told, [0, 1]) is None


def test_a_figure_is_kept_as_it_was_read() -> None:
    told: dict[str, Any] = {"measure": "copy", "value": 24, "how": "by\x00 PyTorch" + "x" * 999, "slot": 1}
    figure = read(told, [0, 1])
    assert figure is not None
    assert (figure.value, figure.how[:10], len(figure.how), figure.slot) == (24.0, "by PyTorch", 160, 1)
    assert Figure(**as_record(figure)) == figure


@given(
    st.lists(st.floats(0.1, 1e6), min_size=3, max_size=9),
    st.sampled_from(sorted(MEASURES)),
    st.floats(0.1, 1e6),
)
def test_a_host_that_is_not_below_all_others_is_never_slow(
    values: list[float], measure: str, value: float
) -> None:
    """However the others are spread: only what is below three quarters of a value that most reach is told."""
    others = [[gpu(each, measure=measure)] for each in values]
    [found] = compare([gpu(value, measure=measure)], others)
    if MEASURES[measure].unit and found.is_slow:
        assert sum(value < each for each in values) >= len(values) / 2
