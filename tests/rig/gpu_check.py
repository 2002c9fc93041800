"""`make gpu-check`: the parts that only a real GPU can try, on the machine at hand.

NVML's calls as the product makes them, CUDA_VISIBLE_DEVICES with UUIDs, which processes are seen on a GPU, a CUDA
out-of-memory error, and NCCL under torchrun. It says what it could not check; without a GPU that is all of it, and no
failure. `GPU_CHECK_PYTHON` names a Python with a torch for CUDA, where that of the environment has none.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hosts.health import faults, measured, verdicts
from trainmaster.host import condition, gpu_users, nvidia
from trainmaster.kernel_signs import Sign
from trainmaster.paths import Workdir

PYTHON = os.environ.get("GPU_CHECK_PYTHON") or sys.executable
_SECONDS = 300
#: all that a data center's GPU tells; a divided or consumer's one lacks some
_NUMBERS = {
    "memory errors (ECC)": ("ecc_volatile", "ecc_aggregate"),
    "row remapping": ("rows_pending", "rows_failed"),
    "retired pages (before Ampere)": ("pages", "pages_pending"),
    "throttle reasons": ("throttle",),
    "PCI Express": ("width", "width_most", "generation", "generation_most"),
    "performance state": ("pstate", "busy"),
    "memory": ("memory_used", "memory_total", "processes"),
}
Gpu = dict[str, Any]


class NotCheckedError(Exception):
    """Why something could not be checked here."""


def main() -> int:
    """The exit code: 1 if a check failed."""
    gpus, source = nvidia.find_gpus()
    if not gpus:
        print(f"No GPU was found here (by {source}), so nothing was checked.")
        return 0
    print(f"{len(gpus)} x {gpus[0]['name']}, driver {gpus[0]['driver']}, found by {source}")
    failed = 0
    for name, check in CHECKS.items():
        try:
            for sentence in check(gpus):
                print(f"ok           {name}: {sentence}")
        except NotCheckedError as why:
            print(f"not checked  {name}: {why}")
        except (AssertionError, subprocess.SubprocessError, OSError) as error:
            failed += 1
            print(f"FAILED       {name}: {error}")
    return 1 if failed else 0


def _look(gpus: list[Gpu]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        asked = {"gpus": {gpu["uuid"]: gpu["pci"] for gpu in gpus if gpu["pci"]}}
        return condition.Asked({"condition": asked, "gpu_users": True}, Workdir(Path(folder))).condition()


def _nvml(gpus: list[Gpu]) -> Iterator[str]:
    begun = time.monotonic()
    told = _look(gpus)
    seconds = time.monotonic() - begun
    assert not told.get("driver_late"), f"the driver did not answer within {condition.PATIENCE_SECONDS:g} s"
    if told["denied"]:
        raise NotCheckedError(" ".join(told["denied"]))
    yield f"one look at all GPUs took {seconds:.2f} s"
    for gpu in gpus:
        numbers = told["gpus"].get(gpu["uuid"])
        assert numbers is not None, f"{gpu['uuid']} at {gpu['pci']} told nothing"
        missing = [what for what, names in _NUMBERS.items() if not all(name in numbers for name in names)]
        for what, names in _NUMBERS.items():
            if what not in missing:
                yield f"{gpu['pci']}: {what}: " + ", ".join(f"{name} {numbers[name]}" for name in names)
        if missing:
            print(f"not checked  NVML: {gpu['pci']} does not tell: {', '.join(missing)}")


def _signs(gpus: list[Gpu]) -> Iterator[str]:
    """By the rules of the server, of a GPU that was never looked at before."""
    asked = measured.Asked({gpu["uuid"]: gpu["pci"] for gpu in gpus})
    kept: dict[str, Any] = {}
    for _ in range(10):
        look = measured.read(_look(gpus), asked, server_now=time.time(), run_folder="/", over={})
        assert look is not None, "the answer is none that the server takes"
        kept = faults.step(kept, look, log_is_read=True, use=faults.Use()).kept
    found = [
        f"{kind} {device} ({verdicts.of(Sign(kind, 0, device)).action})"
        for kind, device in faults.standing(kept)
    ]
    yield f"10 looks found {', '.join(found) or 'nothing wrong'}"


def _run(code: str, visible: str, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": visible}
    command = [PYTHON, *words] if words else [PYTHON, "-c", code]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=_SECONDS, check=False
    )


def _with_cuda() -> None:
    said = _run("import torch; print(torch.version.cuda or '', torch.cuda.is_available())", "0")
    if said.returncode != 0:
        raise NotCheckedError(f"{PYTHON} has no torch")
    if not said.stdout.endswith("True\n"):
        raise NotCheckedError(f"the torch of {PYTHON} cannot use the GPU; name another by GPU_CHECK_PYTHON")


def _visible(gpus: list[Gpu]) -> Iterator[str]:
    _with_cuda()
    of_each = "str(torch.cuda.get_device_properties(i).uuid) for i in range(torch.cuda.device_count())"
    code = f"import torch; print([{of_each}])"
    for gpu in gpus:
        said = _run(code, gpu["uuid"])
        assert said.returncode == 0, said.stderr[-500:]
        assert gpu["uuid"].replace("GPU-", "") in said.stdout, (
            f"{gpu['uuid']} made {said.stdout.strip()} visible"
        )
    assert "[]" in _run(code, "").stdout, "an empty CUDA_VISIBLE_DEVICES hides no GPU"
    yield f"each of {len(gpus)} UUIDs makes that GPU visible, and an empty one none"


def _processes(gpus: list[Gpu]) -> Iterator[str]:
    _with_cuda()
    code = "import torch; held = torch.zeros(1 << 20, device='cuda'); print('here', flush=True); input()"
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": gpus[0]["uuid"]}
    with subprocess.Popen(
        [PYTHON, "-c", code], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n", "a program could not use the GPU"
        found = gpu_users.on_gpus()
        process.kill()
    assert found is not None, "nobody can tell who uses the GPU"
    if (gpus[0]["uuid"], process.pid) not in found:
        raise NotCheckedError(
            "the driver tells other pids than this machine has, as in a container, or instances (MIG)"
        )
    yield f"pid {process.pid} was seen on {gpus[0]['uuid']}"


def _out_of_memory(gpus: list[Gpu]) -> Iterator[str]:
    _with_cuda()
    bytes_wanted = 2 * gpus[0]["memory_mib"] * 1024 * 1024
    said = _run(
        f"import torch; torch.empty({bytes_wanted}, dtype=torch.uint8, device='cuda')", gpus[0]["uuid"]
    )
    last = said.stderr.strip().splitlines()[-1:]
    assert said.returncode == 1 and last and "out of memory" in last[0], (
        f"exit code {said.returncode}: {last}"
    )
    yield f"exit code 1 and {last[0][:90]!r}"
    assert _run("import torch; torch.zeros(1, device='cuda')", gpus[0]["uuid"]).returncode == 0, (
        "the GPU is lost after"
    )


_NCCL = """
import os, torch, torch.distributed as dist
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
total = torch.ones(1 << 20, device="cuda")
dist.all_reduce(total)
torch.cuda.synchronize()
assert total[0].item() == dist.get_world_size()
dist.destroy_process_group()
"""


def _nccl(gpus: list[Gpu]) -> Iterator[str]:
    _with_cuda()
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "sum.py"
        script.write_text(_NCCL)
        number, visible = str(len(gpus)), ",".join(gpu["uuid"] for gpu in gpus)
        words = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node", number, str(script))
        said = _run("", visible, *words)
    assert said.returncode == 0, said.stderr[-1000:]
    yield f"{number} ranks summed 4 MiB"
    if len(gpus) == 1:
        raise NotCheckedError("between GPUs, since there is one")


CHECKS: dict[str, Callable[[list[Gpu]], Iterator[str]]] = {
    "NVML": _nvml,
    "signs of faults": _signs,
    "CUDA_VISIBLE_DEVICES": _visible,
    "processes on a GPU": _processes,
    "out of memory": _out_of_memory,
    "NCCL under torchrun": _nccl,
}

if __name__ == "__main__":
    sys.exit(main())
