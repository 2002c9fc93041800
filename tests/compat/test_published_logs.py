"""The published client reads, filters and follows logs, and says how long they are kept."""

from __future__ import annotations

import re

import pytest

from tests.compat.conftest import PATIENCE_SECONDS, PublishedClient
from tests.compat.test_published_client import run_to_its_end
from tests.rig.pace import wait_until

pytestmark = pytest.mark.compat

RANKS = """
import sys
for step in range(1500):
    for rank in range(2):
        print(f"[rank={rank}] step {step} of {rank}", file=sys.stderr if rank else sys.stdout, flush=True)
print("[rank=0] ERROR: a tensor is NaN", flush=True)
"""


@pytest.fixture(scope="module")
def ended(det: PublishedClient, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The ids of a trial whose log has 3,001 lines of two ranks, and of its task."""
    _, trial = run_to_its_end(det, tmp_path_factory.mktemp("ranks"), RANKS)
    return str(trial["id"]), str(trial["taskId"])


def steps(said: str) -> list[tuple[int, int]]:
    """(rank, step) of each line, in order."""
    return [(int(rank), int(step)) for rank, step in re.findall(r"\[rank=(\d)\] \|\| step (\d+) of", said)]


def test_a_trials_log_is_read_whole_and_in_part(det: PublishedClient, ended: tuple[str, str]) -> None:
    trial, _ = ended
    whole = steps(det("trial", "logs", trial))
    for rank in (0, 1):
        assert [step for of, step in whole if of == rank] == list(range(1500))
    assert steps(det("trial", "logs", trial, "--rank-id", "1")) == [(1, step) for step in range(1500)]
    tail = steps(det("trial", "logs", trial, "--rank-id", "1", "--tail", "1200"))
    assert tail == [(1, step) for step in range(300, 1500)], "no line twice beyond 1,000"
    assert steps(det("trial", "logs", trial, "--rank-id", "1", "--head", "2")) == [(1, 0), (1, 1)]
    assert len(steps(det("trial", "logs", trial, "--stdtype", "stderr"))) == 1500
    errors = det("trial", "logs", trial, "--level", "ERROR")
    assert "|| ERROR: a tensor is NaN" in errors and not steps(errors)
    assert not steps(det("trial", "logs", trial, "--source", "master"))
    assert steps(det("trial", "logs", trial, "--agent-id", "compat", "--rank-id", "-1")) == []
    assert not steps(det("trial", "logs", trial, "--timestamp-after", "2100-01-01T00:00:00Z"))
    records = det("trial", "logs", trial, "--json", "--head", "3")
    assert re.findall(r'"trialId": (\d+)', records) == [trial] * 3
    assert steps(det("trial", "logs", trial, "-f")) == whole, "a log that has ended is followed to its end"


def test_a_tasks_log_is_read_and_followed(det: PublishedClient, ended: tuple[str, str]) -> None:
    _, task = ended
    assert len(steps(det("task", "logs", task, "--allocation-id", f"{task}.1"))) == 3000
    assert len(steps(det("task", "logs", "-f", task))) == 3000


def test_an_unknown_trial_and_wrong_filters_are_refused_with_a_sentence(
    det: PublishedClient, ended: tuple[str, str]
) -> None:
    unknown = det.run("trial", "logs", "999999")
    assert unknown.returncode != 0 and "trial 999999 not found" in unknown.stdout + unknown.stderr
    wrong = det.run("trial", "logs", ended[0], "--timestamp-after", "yesterday")
    assert wrong.returncode != 0 and "RFC 3339" in wrong.stdout + wrong.stderr


def test_log_retention_is_set_and_cleaned_up(det: PublishedClient, ended: tuple[str, str]) -> None:
    trial, _ = ended
    token = det.server.token()

    def remaining() -> int:
        path = f"/api/v1/trials/{trial}/remaining_log_retention_days"
        return int(det.server.request("GET", path, token=token)["remainingDays"])

    det("trial", "set", "log-retention", trial, "--days", "50")
    assert remaining() == 50
    det("trial", "set", "log-retention", trial, "--forever")
    assert remaining() == -1
    assert "Deleted 0 rows" in det("task", "cleanup-logs")
    det("trial", "set", "log-retention", trial, "--days", "0")
    assert re.search(r"Deleted 30\d\d rows of log entries", det("task", "cleanup-logs"))
    assert wait_until(
        lambda: "The log was removed when its job ended" in det("trial", "logs", trial), PATIENCE_SECONDS
    )
