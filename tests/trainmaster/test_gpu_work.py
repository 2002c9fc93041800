"""What each process uses of the run's GPUs, by a stand-in for the driver's library."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
STAND_IN = """
import time
from types import SimpleNamespace

class NVMLError(Exception): pass
class NVMLError_NotFound(NVMLError): pass

def nvmlInit(): pass
def nvmlDeviceGetHandleByUUID(uuid):
    if uuid not in ("GPU-a", "GPU-b", "GPU-idle", "MIG-1"): raise NVMLError("no such GPU")
    return uuid
def nvmlDeviceGetProcessUtilization(device, since):
    now = int(time.time() * 1e6)
    if device == "MIG-1": raise NVMLError("not supported")
    if device == "GPU-idle": raise NVMLError_NotFound()
    sample = lambda age, pid, percent: SimpleNamespace(timeStamp=now - int(age * 1e6), pid=pid, smUtil=percent)
    if device == "GPU-a": return [sample(2, 10, 30), sample(1, 10, 60), sample(3600, 11, 99), sample(1, 12, 4_000_000)]
    return [sample(1, 10, 15)]
"""


def work(folder: Path, uuids: list[str]) -> Any:
    """What GpuWork says in a process that has the stand-in."""
    (folder / "pynvml.py").write_text(STAND_IN)
    code = f"""
import json
from trainmaster.runner.gpu_samples import GpuWork
work = GpuWork({uuids!r})
work.by_pid()
print(json.dumps(work.by_pid()))
"""
    environment = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True)
    return json.loads(result.stdout)


@pytest.mark.parametrize(
    ("uuids", "expected"),
    [
        (["GPU-a", "GPU-b"], {"10": 75, "12": 100}),
        (["GPU-idle"], {}),
        (["MIG-1"], None),
        (["GPU-lost"], None),
        ([], None),
    ],
)
def test_the_newest_sample_of_each_process_counts(tmp_path: Path, uuids: list[str], expected: Any) -> None:
    assert work(tmp_path, uuids) == expected
