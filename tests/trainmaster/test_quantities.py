"""Durations and sizes in words: at most two units, never sixty of one, the same in every room."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster import quantities

UNITS = {"s": 1, "min": 60, "h": 3_600, "d": 86_400}


@pytest.mark.parametrize(
    ("seconds", "words", "age"),
    [(-3, "0 s", "0 s"), (0.4, "0 s", "0 s"), (95, "95 s", "2 min"), (119.6, "2 min", "2 min"),
     (720, "12 min", "12 min"),
     (3_600, "1 h", "1 h"), (12_000, "3 h 20 min", "3 h"), (86_399, "1 d", "24 h"), (86_400, "1 d", "1 d"),
     (367_000, "4 d 6 h", "4 d")],
)  # fmt: skip
def test_durations(seconds: float, words: str, age: str) -> None:
    assert (quantities.duration(seconds), quantities.age(seconds)) == (words, age)


@given(st.floats(0, 1e9))
def test_a_duration_is_true_to_its_smallest_unit(seconds: float) -> None:
    parts = quantities.duration(seconds).split()
    told = [(int(count), UNITS[unit]) for count, unit in zip(parts[::2], parts[1::2], strict=True)]
    assert len(told) <= 2
    grain = 1 if seconds < 120 else 60 if seconds < 86_400 else 3_600
    assert abs(sum(count * size for count, size in told) - seconds) <= grain / 2 + 0.5


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (95 * 2**20, "95.0 MiB"), (3 * 2**50, "3072.0 TiB")],
)
def test_sizes(count: int, words: str) -> None:
    assert quantities.size(count) == words
