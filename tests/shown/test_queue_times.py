"""Starts and ends in words."""

from datetime import UTC, datetime

from shown.queue import times


def test_a_span_never_begins_and_ends_in_the_same_minute() -> None:
    begin = datetime(2024, 3, 5, 12, 44, 10, tzinfo=UTC)
    assert times.between(begin, begin.replace(second=50)) == "Mar 05, 2024 12:44 to 12:45"
    assert times.between(begin, begin.replace(hour=13)) == "Mar 05, 2024 12:44 to 13:44"
    assert times.between(begin, begin.replace(day=6)) == "Mar 05, 2024 12:44 to Mar 06, 2024 12:44"
