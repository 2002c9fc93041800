"""Which GPUs Slurm has given a run: by what it tells the job, and what the driver shows there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.rig.web import ROOT
from trainmaster.jsonfile import write_json
from trainmaster.paths import RunPaths
from trainmaster.runner.slurm_gpus import given
from trainmaster.runner.state import read_spec

#: of a node with four GPUs, in the form of trainmaster.host.nvidia; its library counts them from the other end
SEEN = [
    {"index": 3 - number, "minor": number, "uuid": f"GPU-{name}", "mig": []}
    for number, name in enumerate("abcd")
]
NVML = """
class NVMLError(Exception):
    pass
class Memory:
    total = 2**30
def refuse(*_):
    raise NVMLError
nvmlInit = nvmlShutdown = lambda: None
nvmlSystemGetDriverVersion = lambda: "550.1"
nvmlDeviceGetCount = lambda: 4
nvmlDeviceGetHandleByIndex = lambda index: index
nvmlDeviceGetHandleByUUID = lambda uuid: int(uuid[-1])
nvmlDeviceGetUUID = lambda handle: f"GPU-{handle}"
nvmlDeviceGetName = lambda handle: "A100"
nvmlDeviceGetMemoryInfo = lambda handle: Memory
nvmlDeviceGetPciInfo = nvmlDeviceGetMigMode = refuse
nvmlDeviceGetMinorNumber = lambda handle: 3 - handle
"""


@pytest.mark.parametrize(
    ("seen", "told", "count", "found"),
    [
        (SEEN, {"CUDA_VISIBLE_DEVICES": "2,1"}, 2, ["GPU-c", "GPU-b"]),
        # Slurm keeps the others from the job: what is seen is numbered from 0, and so is what CUDA is told
        (SEEN[2:], {"SLURM_STEP_GPUS": "2,3", "CUDA_VISIBLE_DEVICES": "0,1"}, 2, ["GPU-c", "GPU-d"]),
        # the driver shows all the same, so the numbers of the node count
        (SEEN, {"SLURM_STEP_GPUS": "3", "CUDA_VISIBLE_DEVICES": "0"}, 1, ["GPU-d"]),
        (SEEN, {"SLURM_JOB_GPUS": "0-1", "CUDA_VISIBLE_DEVICES": "0,1"}, 2, ["GPU-a", "GPU-b"]),
        (SEEN, {"CUDA_VISIBLE_DEVICES": "MIG-x,MIG-y"}, 2, ["MIG-x", "MIG-y"]),
        ([{**SEEN[0], "mig": [{"uuid": "MIG-x"}]}], {"CUDA_VISIBLE_DEVICES": "0"}, 1, []),
        (SEEN, {"CUDA_VISIBLE_DEVICES": "0,0"}, 2, []),
        (SEEN, {"CUDA_VISIBLE_DEVICES": "0,7"}, 2, []),
        (SEEN, {}, 2, []),
        # without the numbers of the devices those of the library would be a guess
        ([{**gpu, "minor": None} for gpu in SEEN], {"SLURM_STEP_GPUS": "2,3"}, 2, []),
        ([], {"CUDA_VISIBLE_DEVICES": "0"}, 1, []),
    ],
)
def test_what_slurm_tells_names_gpus_or_nothing(
    seen: list[dict[str, Any]], told: dict[str, str], count: int, found: list[str]
) -> None:
    assert given(seen, told, count) == found


def named(folder: Path, told: str) -> Any:
    """The spec of a run of two GPUs after its node has named them; all that is stood in for is NVIDIA's library."""
    slots = [{"index": number, "uuid": "", "kind": "cuda"} for number in (0, 1)]
    paths = RunPaths(folder / "run")
    paths.root.mkdir(exist_ok=True)
    write_json(paths.spec, {"slots": slots, "host": {"name": "n1"}, "remarks": ["first"]})
    (folder / "pynvml.py").write_text(NVML)
    code = "import sys, pathlib; from trainmaster.runner import slurm_gpus; from trainmaster.paths import RunPaths; "
    code += "slurm_gpus.name_gpus(RunPaths(pathlib.Path(sys.argv[1])))"
    environment = {
        "PATH": f"{folder}:/usr/bin:/bin", "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", "SLURM_STEP_GPUS": told,
    }  # fmt: skip
    subprocess.run([sys.executable, "-c", code, str(paths.root)], env=environment, check=True)
    return read_spec(paths)


def test_the_spec_of_a_run_gets_the_gpus_of_its_job(tmp_path: Path) -> None:
    spec = named(tmp_path, "3,1")
    assert [slot["uuid"] for slot in spec["slots"]] == ["GPU-0", "GPU-2"] and spec["remarks"] == ["first"]


def test_a_run_whose_gpus_are_not_known_says_so_and_keeps_what_slurm_gave(tmp_path: Path) -> None:
    spec = named(tmp_path, "8,9")
    assert [slot["uuid"] for slot in spec["slots"]] == ["", ""]
    assert "which 2 GPUs of n1 Slurm has given this run cannot be told" in spec["remarks"][1]
