"""The mean of several runs and its band; labels that do not cover each other."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metrics.run_groups import POINTS, Band, apart, mean_of, thinned


def test_runs_reported_at_the_same_steps_are_averaged_there() -> None:
    x = np.array([1.0, 2.0, 4.0])
    runs = [(x, np.array([1.0, 2.0, 3.0])), (x, np.array([3.0, 2.0, 7.0]))]
    found = mean_of(runs, Band.RANGE)
    assert found is not None
    assert found.x.tolist() == [1, 2, 4] and found.mean.tolist() == [2, 2, 5]
    assert found.low.tolist() == [1, 2, 3] and found.high.tolist() == [3, 2, 7]
    deviation = mean_of(runs, Band.DEVIATION)
    assert (
        deviation is not None and deviation.low.tolist() == [1, 2, 3] and deviation.high.tolist() == [3, 2, 7]
    )


def test_the_deviation_of_large_values_is_a_number() -> None:
    x = np.array([1.0, 2.0])
    found = mean_of([(x, np.array([1e300, 1.0])), (x, np.array([-1e300, 3.0]))], Band.DEVIATION)
    assert found is not None and found.mean.tolist() == [0, 2]
    assert found.high.tolist() == pytest.approx([1e300, 3])


def test_a_run_counts_only_between_its_own_ends() -> None:
    short = (np.array([0.0, 2.0]), np.array([0.0, 2.0]))
    long = (np.array([1.0, 3.0]), np.array([10.0, 30.0]))
    found = mean_of([short, long, (np.array([]), np.array([]))], Band.RANGE)
    assert found is not None
    assert dict(zip(found.x.tolist(), found.mean.tolist(), strict=True)) == {0: 0, 1: 5.5, 2: 11, 3: 30}
    apart_in_time = mean_of([short, (np.array([8.0, 9.0]), np.array([1.0, 1.0]))], Band.RANGE)
    assert apart_in_time is not None and apart_in_time.x.tolist() == [0, 2, 8, 9]
    assert mean_of([(np.array([]), np.array([]))], Band.RANGE) is None


def test_a_long_run_is_averaged_in_parts_without_what_is_no_number() -> None:
    y = np.tile([1.0, 3.0], 5000)
    y[7] = math.nan
    x, means = thinned(np.arange(10_000.0), y)
    assert len(x) == POINTS and (np.diff(x) > 0).all()
    assert means == pytest.approx(np.full(POINTS, 2.0), abs=0.05)


@given(places=st.lists(st.floats(0, 200), min_size=1, max_size=8))
def test_labels_keep_their_order_and_their_distance(places: list[float]) -> None:
    found = apart(places, 13, 230)
    order = sorted(range(len(places)), key=places.__getitem__)
    moved = [found[at] for at in order]
    assert all(above - below >= 13 - 1e-9 for below, above in pairwise(moved))
    assert max(moved) <= 230 and min(moved) >= -1e-9
    if all(abs(one - other) >= 13 for at, one in enumerate(places) for other in places[:at]):
        assert found == places
