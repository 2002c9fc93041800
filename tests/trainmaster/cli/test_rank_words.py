"""What `trial pulse` says of each rank's work."""

import pytest

from trainmaster.cli import rank_pulse


@pytest.mark.parametrize(
    ("row", "word"),
    [
        ({"active": True, "processState": "S"}, "yes"),
        ({"active": False, "processState": "S"}, "idle"),
        ({"active": False, "processState": "T"}, "stopped"),
        ({"active": False, "processState": "ended"}, "ended"),
        ({"active": False}, "unknown"),
    ],
)
def test_each_rank_is_working_idle_stopped_ended_or_unknown(row: dict[str, object], word: str) -> None:
    assert rank_pulse._works(row) == word
