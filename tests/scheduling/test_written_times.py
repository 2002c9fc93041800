"""Durations and deadlines as people write them."""

from datetime import UTC, datetime

import pytest

from scheduling.written_times import deadline_in


@pytest.mark.parametrize(
    ("written", "means"),
    [
        ("2026-12-01", "2026-12-01T00:00:00+00:00"),
        (" 2026-12-01T08:00+01:00 ", "2026-12-01T07:00:00+00:00"),
        ("2026-12-01 08:00", "2026-12-01T08:00:00+00:00"),
        (datetime(2026, 12, 1, 8, tzinfo=UTC), "2026-12-01T08:00:00+00:00"),
        ("1h30m", 5400),
        (3600, 3600),
    ],
)
def test_a_deadline_is_a_time_or_a_number_of_seconds(written: object, means: object) -> None:
    assert deadline_in(written) == means
    assert deadline_in(means) == means, "it is read again from a config"


@pytest.mark.parametrize(
    "written", ["20261201", "2026-W50", "2026W501", "20261201T0800", "3600", "", "soon", True]
)
def test_what_could_be_taken_for_something_else_is_no_deadline(written: object) -> None:
    with pytest.raises(ValueError):
        deadline_in(written)
