"""What `job update --dry-run` and `job ls` print of the server's answers, and when an edit is asked about."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from trainmaster.cli.job import _columns, previewed

NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
MINE, THEIRS = "73853c5c-1111", "0d714127-2222"


def answer(**more: Any) -> dict[str, Any]:
    empty: dict[str, Any] = {"changes": ["Job 73853c5c: it gets priority 1."], "order": [], "movedJobs": 0}
    return {**empty, "stops": [], "starts": [], "stopsOthers": False, **more}


def stop(**more: Any) -> dict[str, Any]:
    row = {
        "jobId": THEIRS,
        "name": "first_job",
        "username": "bob",
        "slots": 1,
        "runs": 1,
        "neverSaved": False,
    }
    return {**row, "startedAt": "2026-11-21T11:48:00.000000Z", "mine": False, **more}


def test_a_preview_is_readable_text() -> None:
    lines = previewed(
        answer(
            order=[
                {"jobId": MINE, "name": "second_job", "place": 0, "was": 1},
                {"jobId": THEIRS, "name": "first_job", "place": 1, "was": 0},
            ],
            movedJobs=2,
            stops=[stop(lastSavedAt="2026-11-21T11:56:00.000000Z")],
            starts=[{"jobId": MINE, "now": False, "reason": "1 being freed by exp 1"}],
        ),
        NOW,
    )
    assert lines == [
        "With this edit:",
        "  Job 73853c5c: it gets priority 1.",
        "New order:",
        "   # | was | ID       | Job Name",
        "  ---+-----+----------+------------",
        "   0 |   1 | 73853c5c | second_job",
        "   1 |   0 | 0d714127 | first_job",
        "It stops:",
        "  job 0d714127 first_job (1 slot, of bob): it last saved 4 min ago",
        "Job 73853c5c: start time unknown: 1 being freed by exp 1.",
    ]


def test_what_would_be_lost_is_said_and_cannot_move_the_cursor() -> None:
    said = previewed(
        answer(
            stops=[
                stop(neverSaved=True, name="a\x1b[2Jb"),
                stop(slots=4, runs=2, mine=True, startedAt="2026-11-21T08:00:00Z"),
            ]
        ),
        NOW,
    )
    assert said[-2:] == [
        "  job 0d714127 a [2Jb (1 slot, of bob): it has never saved and would lose 12 min of work",
        "  2 runs of job 0d714127 first_job (4 slots, yours): it has not saved in 4 h; "
        "it will save when asked to stop",
    ]


def test_a_start_is_at_once_in_a_range_or_not_known() -> None:
    starts = [
        {"jobId": MINE, "now": True},
        {"jobId": MINE, "now": False, "forecast": [1.0e9, 1.1e9], "reason": "no slot is free"},
        {"jobId": MINE, "now": False, "forecastUnknown": "nothing is known of exp 1"},
        {
            "jobId": MINE,
            "now": False,
            "forecast": [1.0e9, 1.0e9],
            "forecastBy": "Slurm",
            "reason": "waits in Slurm",
        },
    ]
    said = previewed(answer(starts=starts), NOW)
    assert said[2:4] == ["It stops nothing.", "Job 73853c5c starts immediately."]
    assert said[4].startswith("Job 73853c5c starts between 2001-09-") and said[4].endswith(
        ": no slot is free."
    )
    assert said[5] == "Job 73853c5c: start time unknown: nothing is known of exp 1."
    assert said[6].startswith("Job 73853c5c: Slurm expects 2001-09-") and said[6].endswith(
        ": waits in Slurm."
    )


@pytest.mark.parametrize(
    "says",
    ["cannot meet its deadline, 08:00 UTC", "whether it meets its deadline, 08:00 UTC, is not known: x"],
)
def test_what_becomes_of_a_deadline_is_a_sentence_of_its_own(says: str) -> None:
    starts = [{"jobId": MINE, "now": True, "deadline": says}]
    assert previewed(answer(starts=starts), NOW)[-1] == f"Job 73853c5c: {says}."


def test_a_long_order_shows_its_first_places_and_an_idle_edit_says_so() -> None:
    order = [{"jobId": MINE, "name": "job", "place": place, "was": place + 1} for place in range(100)]
    said = previewed(answer(order=order, movedJobs=9000), NOW)
    assert "  and 8988 more jobs that move" in said
    assert previewed(answer(changes=[]), NOW) == ["Nothing would change."]


def test_a_row_says_how_its_runs_leave() -> None:
    status = next(column for column in _columns(weighted=False, short=True) if column.heading == "Status")
    row = {"summary": {"state": "STATE_SCHEDULED"}, "leaving": "pausing"}
    assert status.value(row) == "STATE_SCHEDULED (pausing)"
    assert status.value({"summary": {"state": "STATE_QUEUED"}}) == "STATE_QUEUED"


def test_the_columns_are_the_documented_ones() -> None:
    headings = [column.heading for column in _columns(weighted=False, short=True)]
    assert headings == [
        "#", "ID", "Type", "Job Name", "Priority", "Submitted", "Slots (acquired/needed)", "Status", "User",
    ]  # fmt: skip
    assert [column.heading for column in _columns(weighted=True, short=True)][4] == "Weight"
