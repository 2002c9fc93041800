"""The launch module and the SDK in a whole run, started by the host part and read by its runner."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.trainmaster.conftest import TestHost, wait_until
from tests.trainmaster.made_run import free_port
from tests.trainmaster.stream_server import StreamServer
from trainmaster.processes import of_run

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")

PROGRAM = """
import determined as det, torch.distributed as dist, os, signal, sys
dist.init_process_group("gloo")
info = det.get_cluster_info()
with det.core.init(distributed=det.core.DistributedContext.from_torch_distributed()) as core:
    rank = core.distributed.rank
    print("hello from", rank, "of trial", info.trial.trial_id)
    if rank == 0:
        core.train.report_validation_metrics(1, {"loss": float("nan")})
    core.distributed.allgather(None)
    if rank == 1:
        sys.exit(3)
    signal.pause()
"""


def two_slots() -> dict[str, Any]:
    ports = {"c10d": free_port(), "comm": free_port()}
    return {
        "python": sys.executable,
        "slots": [{"index": index, "uuid": f"cpu-{index}", "kind": "cpu"} for index in range(2)],
        "gang": {"addresses": ["127.0.0.1"], "slot_counts": [2], "ports": ports, "interface": None, "secret": "ab"},
        "trial": {
            "trial_id": 4, "experiment_id": 2, "trial_seed": 1, "hparams": {}, "config": {}, "run_id": 1,
            "steps_completed": 0, "latest_checkpoint": None,
        },
    }  # fmt: skip


def test_the_failing_rank_its_lines_and_the_metrics_reach_the_server(
    host: TestHost, stream_server: StreamServer
) -> None:
    entrypoint = ["python3", "-m", "determined.launch.torch_distributed", "train.py"]
    paths, answer = host.launch(entrypoint, {"train.py": PROGRAM}, **two_slots())
    assert answer["state"] == "launched"
    record = stream_server.wait_for(stream_server.exit, 60)
    assert record["code"] == 3
    assert (record["first_failure"]["rank"], record["first_failure"]["code"]) == (1, 3)
    for rank in range(2):
        assert stream_server.texts(f"rank{rank}.stdout") == [f"hello from {rank} of trial 4"]
    reports = [entry["d"] for entry in stream_server.records("core") if entry["d"]["type"] == "metrics"]
    assert [(report["group"], report["metrics"]) for report in reports] == [("validation", {"loss": "NaN"})]
    wait_until(lambda: of_run(paths.key) == [])
    assert not list(Path(paths.root).glob("ranks-*"))
