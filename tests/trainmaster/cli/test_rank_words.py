"""What `trial pulse` says of each rank's work, and `trial hangs` of what kept them."""

import argparse
from typing import Any, cast

import pytest

from trainmaster.cli import rank_pulse
from trainmaster.client import Client


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


class OneHang:
    def get(self, path: str) -> dict[str, Any]:
        hang = {
            "attempt": 2, "since": "2026-11-28T10:41:07Z", "sentence": "Rank 2 is \x1b[31mstopped.",
            "outcome": "Nothing was ended.", "evidence": ["Rank 0 waits.", "Rank 2 is stopped."],
        }  # fmt: skip
        return {"hangs": [{**hang, "stacks": "rank 0"} if path.endswith("/hangs?stacks=true") else hang]}


@pytest.mark.parametrize("stacks", [False, True])
def test_a_hang_is_told_with_where_each_rank_is(stacks: bool, capsys: pytest.CaptureFixture[str]) -> None:
    rank_pulse._hangs(cast(Client, OneHang()), "7.1", argparse.Namespace(stacks=stacks, json=False))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Attempt 2: no progress since 2026-11-28 ")
    assert "\x1b" not in lines[1] and lines[2:5] == [
        "Nothing was ended.",
        "  Rank 0 waits.",
        "  Rank 2 is stopped.",
    ]
    assert ("rank 0" in lines) == stacks
