"""How an attempt ended, in the words that scripts made for Determined look for."""

from __future__ import annotations

import pytest

from jobs import dialect_ends
from jobs.states import Reason

WELL = "resources exited successfully with a zero exit code"
FAILED = "resources failed with non-zero exit code: container failed with non-zero exit code: 3 (exit code 3)"


@pytest.mark.parametrize(
    ("reason", "code", "exit_reason", "exit_status"),
    [
        (
            Reason.COMPLETED,
            0,
            f"allocation stopped early after all resources exited: {WELL}",
            "exited successfully",
        ),
        (Reason.RANK_FAILED, 3, f"allocation failed: {FAILED}", FAILED),
        (Reason.COMMAND_FAILED, 3, f"allocation failed: {FAILED}", FAILED),
        (Reason.PAUSED_BY_USER, 0, f"allocation preempted after all resources exited: {WELL}", "preempted"),
        (Reason.PREEMPTED, 137, "allocation killed after resources were killed", "allocation killed"),
        (Reason.KILLED_BY_USER, 0, "allocation killed after resources were killed", "allocation killed"),
        (
            Reason.HOST_LOST,
            None,
            "allocation failed due to agent failure: agent failed while",
            "agent failed while",
        ),
        (
            Reason.LAUNCH_FAILED,
            None,
            "due to agent failure: agent failed to launch the",
            "agent failed to launch",
        ),
        (
            Reason.RUN_VANISHED,
            None,
            "due to restore error: RM failed to restore the allocation",
            "RM failed to",
        ),
    ],
)
def test_the_words_of_an_end(reason: Reason, code: int | None, exit_reason: str, exit_status: str) -> None:
    end = dialect_ends.of(reason, code)
    assert exit_reason in end.exit_reason and exit_status in end.exit_status


@pytest.mark.parametrize("reason", [reason for reason in Reason if reason != Reason.COMPLETED])
@pytest.mark.parametrize("code", [None, 0, 1, 143])
def test_only_what_ended_well_has_success_in_the_exit_status_of_a_command(
    reason: Reason, code: int | None
) -> None:
    """Scripts look for the word. A trial that saved as it was asked to is no command."""
    status = dialect_ends.of(reason, code).exit_status
    assert "success" not in status or "preempted" in status
