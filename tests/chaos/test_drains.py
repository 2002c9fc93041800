"""A backlog that takes longer to arrive than a run's end is waited for: told, and then complete all the same."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.rig.hosts import HostRig
from tests.rig.stack import LAUNCHER, Json, Stack, config, running_stack

pytestmark = [pytest.mark.chaos, pytest.mark.hosts, pytest.mark.survive(1, 42)]

LINES = 20_000
PADDING = "x" * 100
LIMIT_SECONDS = 240.0
#: The server takes so little that a batch is in debt for longer than a drain may stand still.
SLOW = {
    "TRAINMASTER_LOG_BYTES_PER_SECOND": "200000",
    "TRAINMASTER_LOG_BURST_BYTES": "200000",
    "TRAINMASTER_DRAIN_SECONDS": "1",
}
WORKER = f"""
import os
import determined as det

with det.core.init() as context:
    for number in range(1, {LINES} + 1):
        print(f"line {{number}} {PADDING}")
    context.train.report_validation_metrics({LINES}, {{"loss": 0.5}})
    with context.checkpoint.store_path({{"steps_completed": {LINES}}}) as (folder, uuid):
        (folder / "weights").write_bytes(os.urandom(1_000_000))
"""


@pytest.fixture
def slow_stack(host_rig: HostRig) -> Iterator[Stack]:
    if not host_rig.take(1)[0].isolated:
        pytest.skip("needs network namespaces (root and iproute2)")
    with running_stack(host_rig, hosts=1, settings=SLOW) as stack:
        stack.add_hosts()
        yield stack


def test_what_arrives_after_the_end_was_told_is_all_there(slow_stack: Stack) -> None:
    stack = slow_stack
    experiment = stack.submit({"launch.py": LAUNCHER, "worker.py": WORKER}, config(1))
    assert stack.wait_end(experiment, LIMIT_SECONDS) == "STATE_COMPLETED"
    assert len(stack.lines_by_rank(experiment)[0]) < LINES, "the end was told before all had come"

    def arrived() -> bool:
        return len(stack.lines_by_rank(experiment)[0]) >= LINES and checkpoint(stack, experiment) == COMPLETED

    stack.wait(arrived, LIMIT_SECONDS, "the rest of the log and the checkpoint")
    assert stack.lines_by_rank(experiment)[0] == [f"line {n} {PADDING}" for n in range(1, LINES + 1)]
    trial = stack.trial(experiment)
    assert trial["latestValidation"]["metrics"]["avgMetrics"] == {"loss": 0.5} and trial["restarts"] == 0
    stack.assert_nothing_runs(stack.run_keys(experiment))


COMPLETED = "STATE_COMPLETED"


def checkpoint(stack: Stack, experiment: int) -> str:
    found: list[Json] = stack.get(f"/api/v1/experiments/{experiment}/checkpoints")["checkpoints"]
    return str(found[0]["state"]) if found else ""
