"""What `job explain` prints of the server's answer."""

from __future__ import annotations

from trainmaster.cli.job import _explained, _local_clock


def test_every_blocker_has_a_line_and_cannot_move_the_cursor() -> None:
    answer = {
        "jobId": "0123456789ab",
        "resourcePool": "default",
        "state": "ACTIVE",
        "summary": {"jobsAhead": 2},
        "tasks": [
            {
                "taskId": "7.a", "slots": 4, "state": "WAITING",
                "blockers": [{"sentence": "2 jobs ahead"}, {"sentence": "gpu\x1b[2J is disabled"}],
                "forecast": [0.0, 60.0],
            },
            {"taskId": "7.b", "slots": 1, "state": "WAITING", "blockers": []},
            {"taskId": "7.c", "slots": 1, "state": "RUNNING"},
            {
                "taskId": "7.s", "slots": 1, "state": "WAITING", "blockers": [{"sentence": "waits in Slurm as job 1"}],
                "forecast": [60.0, 60.0], "forecastBy": "Slurm", "forecastSaidAt": 0.0,
            },
            {
                "taskId": "7.d", "slots": 1, "state": "WAITING", "blockers": [{"sentence": "no slot is free"}],
                "forecastUnknown": "exp 3 has no known end",
            },
        ],
        "edits": [{"at": "2026-11-21T08:00:00.5Z", "user": "ada", "change": "priority 42 to 7", "undo": True}],
    }  # fmt: skip
    lines = _explained(answer)
    assert lines[:4] == [
        "Job 01234567 in pool default: active, 2 jobs ahead",
        "7.a (4 slots): waiting",
        "  - 2 jobs ahead",
        "  - gpu [2J is disabled",
    ]
    assert lines[4].startswith("  starts between ")
    assert lines[5:-1] == [
        "7.b (1 slot): waiting",
        "  - starts on the next pass",
        "7.c (1 slot): running",
        "7.s (1 slot): waiting",
        "  - waits in Slurm as job 1",
        f"  Slurm expects {_local_clock(60.0)}, reported at {_local_clock(0.0)}",
        "7.d (1 slot): waiting",
        "  - no slot is free",
        "  start time unknown: exp 3 has no known end",
        "Edits:",
    ]
    assert lines[-1].endswith("ada: priority 42 to 7 (undo)")
