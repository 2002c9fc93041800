"""Columns as bytes: exact, whatever is in them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metrics import chunks, packing
from metrics.table import column_of
from metrics.values import storable

LONG = st.integers(-(2**63), 2**63 - 1)


@given(
    st.one_of(
        st.lists(LONG), st.lists(st.integers(0, 300)), st.builds(range, LONG, st.just(2**62), st.just(2**60))
    )
)
def test_integers_come_back(values: list[int]) -> None:
    values = list(values)
    packed = packing.pack_integers(np.array(values, np.int64))
    assert packing.unpack_integers(packed, len(values)).tolist() == values


@given(
    st.one_of(st.lists(st.floats()), st.lists(st.floats(width=32)), st.lists(st.integers(-9, 9).map(float)))
)
def test_floats_come_back_bit_by_bit(values: list[float]) -> None:
    column = np.array(values, np.float64)
    found = packing.unpack_floats(packing.pack_floats(column), len(values))
    assert np.array_equal(found, column, equal_nan=True)
    assert (np.signbit(found) == np.signbit(column))[~np.isnan(column)].all()


@pytest.mark.parametrize(
    ("values", "bytes_each"),
    [(range(0, 5000, 5), 0), (np.full(1000, 0.5), 4), (np.random.default_rng(0).random(1000), 8)],
)
def test_what_is_regular_takes_little_room(values: object, bytes_each: int) -> None:
    assert len(packing.pack_floats(np.array(values, np.float64))) <= 1000 * bytes_each + 20


def test_bytes_of_another_form_are_refused() -> None:
    with pytest.raises(ValueError, match="form"):
        packing.unpack_integers(b"x", 1)


@given(
    st.lists(
        st.one_of(
            st.floats(), st.integers(), st.booleans(), st.none(), st.text(max_size=3), st.just(["a", 1])
        ),
        min_size=1,
    )
)
def test_columns_come_back_with_what_is_no_number(values: list[object]) -> None:
    plain = [storable({"x": value})["x"] for value in values]
    column = column_of(plain)
    again = chunks.unpack_column(chunks.pack_column(column), len(plain))
    assert again.as_reported() == column.as_reported() == plain
