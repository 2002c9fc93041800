"""Ranks that are forks of one process which has imported PyTorch, beside ranks that import it themselves."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.rig import pace
from tests.trainmaster.launch.test_torch_distributed import wait_for
from tests.trainmaster.made_run import environment_of, make_run, records
from trainmaster.launch import warm_ranks
from trainmaster.launch.torch_distributed import TRIAL_MODULE
from trainmaster.launch.warm_ranks import ColdStart, shared_imports

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")

RUN = {"TRAINMASTER_RUN_DIR": "/run"}


@pytest.fixture(autouse=True)
def in_a_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "sitecustomize", type("Site", (), {"start_warm": None}))  # type: ignore[arg-type]


def why_cold(*words: str, overrides: tuple[str, ...] = (), **variables: str) -> str:
    with pytest.raises(ColdStart) as caught:
        shared_imports(words, overrides, {**RUN, **variables}, TRIAL_MODULE)
    return str(caught.value)


@pytest.mark.parametrize(
    ("source", "imports"),
    [
        ("import torch", ["torch"]),
        ('"""What it does."""\nfrom __future__ import annotations\nimport os, torch.nn as nn', ["torch"]),
        (
            "import os.path\nimport numpy as np\nimport determined as det\nfrom torch import nn",
            ["numpy", "torch"],
        ),
        ("from determined import pytorch", ["torch"]),
        ("import os\nos.environ.setdefault('SET', '1')\nimport torch", ["torch"]),
        ("import os\nos.environ.setdefault('UNSET', '1')\nimport torch", "line 2 does more"),
        ("import os\nos.environ.setdefault('SET', print())\nimport torch", "line 2 does more"),
        ("import os\nos.environ['SET'] = '2'\nimport torch", "line 2 does more"),
        ("import sys; sys.path.insert(0, 'lib'); import torch", "line 1 does more"),
        ("from . import x\nimport torch", "line 1 does more"),
        ("import tqdm\nimport torch", "line 1 imports tqdm"),
        ("import torch_xla", "line 1 imports torch_xla"),
        ("import os\ndef main(): import torch", "line 2 does more"),
        ("import os", "does not import torch"),
        ("import", "cannot be read"),
    ],
)
def test_what_stands_before_the_import_of_torch_decides(
    tmp_path: Path, source: str, imports: list[str] | str
) -> None:
    script = tmp_path / "train.py"
    script.write_text(source)
    if isinstance(imports, str):
        assert imports in why_cold(sys.executable, str(script), SET="1")
    else:
        words = [sys.executable, str(script), "--lr", "1"]
        assert shared_imports(words, [], {**RUN, "SET": "1"}, TRIAL_MODULE) == imports


def test_what_is_not_known_imports_for_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "train.py"
    script.write_text("import torch")
    ranks = (sys.executable, str(script))
    allowed = ["--max_restarts=2", "--rdzv-id=x"]
    assert shared_imports(ranks, allowed, RUN, TRIAL_MODULE) == ["torch"]
    assert shared_imports([sys.executable, "-m", TRIAL_MODULE, "a:B"], [], RUN, TRIAL_MODULE) == ["torch"]
    assert "--numa-binding" in why_cold(*ranks, overrides=("--numa-binding=node",))
    assert "--standalone" in why_cold(*ranks, overrides=("--standalone",))
    assert "LD_PRELOAD" in why_cold(*ranks, LD_PRELOAD="x.so")
    assert "PET_NNODES" in why_cold(*ranks, PET_NNODES="1")
    assert "RANK" in why_cold(*ranks, RANK="0")
    assert "another program" in why_cold("bash", str(script))
    assert "no script" in why_cold(sys.executable, "-m", "pdb", str(script))
    assert "is 0" in why_cold(*ranks, TRAINMASTER_WARM_RANKS="0")
    (tmp_path / "queue").mkdir()  # no module without an __init__
    assert shared_imports(ranks, [], RUN, TRIAL_MODULE) == ["torch"]
    (tmp_path / "queue" / "__init__.py").touch()
    assert "module queue of its own" in why_cold(*ranks)
    (tmp_path / "queue" / "__init__.py").unlink()
    script.write_text("import determined\nimport torch")
    assert "determined" in why_cold(*ranks, TRAINMASTER_SDK="installed")
    monkeypatch.setitem(sys.modules, "sitecustomize", os)
    assert "sitecustomize" in why_cold(*ranks)
    with pytest.raises(ColdStart, match="not a run"):
        shared_imports(ranks, [], {}, TRIAL_MODULE)


def launch(folder: Path, script: str, *overrides: str, slots: int = 2, **more: str) -> tuple[Path, int, str]:
    """(run folder, exit code, stderr of the launcher without what it says of this machine's name service)."""
    run = make_run(folder / "run", slots=slots)
    code = folder / "code"
    code.mkdir(exist_ok=True)
    (code / "train.py").write_text(script)
    options = [*overrides, "--"] if overrides else []
    done = subprocess.run(
        [sys.executable, "-m", "determined.launch.torch_distributed", *options, "train.py", str(folder)],
        env=environment_of(run, TRAINMASTER_WARM_RANKS="tell") | more,
        cwd=code,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120 * pace.factor(),
        check=False,
    )
    said = [
        line for line in done.stderr.splitlines(keepends=True) if "hostname of the client socket" not in line
    ]
    return run, done.returncode, "".join(said)


def output(run: Path, rank: int, stream: str = "stdout") -> str:
    return (run / "spool" / f"rank{rank}.{stream}").read_text()


IS_FORK = "b'parent of rank' in open(f'/proc/{os.getppid()}/cmdline', 'rb').read()"

FACTS = """
from __future__ import annotations
import gc, inspect, json, os, random, signal, sys, threading
import numpy as np
import torch

def read(name):
    with open("/proc/self/" + name, "rb") as file:
        return file.read().decode()

def facts():
    files = {number: os.readlink(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")
             if os.path.exists(f"/proc/self/fd/{number}")}
    ours = ("Name", "Umask", "Uid", "Gid", "Threads", "Sig", "Cpus_allowed_list")
    status = [line for line in read("status").splitlines() if line.startswith(ours) and "SigQ" not in line]
    main = {name: str(value).partition(" object at")[0] for name, value in vars(sys.modules["__main__"]).items()
            if name.startswith("__") and name != "__builtins__"}
    return {
        "argv": sys.argv, "orig_argv": sys.orig_argv, "path": sys.path, "executable": sys.executable,
        "flags": str(sys.flags), "main": main, "frames": len(inspect.stack()), "modules": sorted(sys.modules),
        "environment": dict(os.environ), "shown environment": sorted(filter(None, read("environ").split("\\0"))),
        "command line": read("cmdline"), "limits": read("limits"), "status": status, "files": files,
        "leads": (os.getpid() == os.getpgrp(), os.getpid() == os.getsid(0), os.getpgrp() == os.getppid()),
        "main thread": (threading.main_thread().native_id == os.getpid(), threading.active_count()),
        "streams": [(stream.name, stream.encoding, stream.line_buffering, stream.write_through)
                    for stream in (sys.stdin, sys.stdout, sys.stderr)],
        "collector": (gc.isenabled(), gc.get_threshold(), gc.get_freeze_count()),
        "handlers": {int(n): str(signal.getsignal(n)).partition(" at ")[0] for n in signal.valid_signals()},
        "torch": (torch.get_num_threads(), torch.get_num_interop_threads(), torch.cuda.is_available()),
    }

chance = [random.random(), float(np.random.rand()), float(torch.rand(1))]
found = facts()
found["fork"], found["chance"] = %s, chance
print(json.dumps(found))
"""


@needs_torch
def test_a_rank_cannot_tell_a_fork_from_a_program(tmp_path: Path) -> None:
    found: dict[str, list[dict[str, Any]]] = {}
    for way, choice in (("warm", "tell"), ("cold", "0")):
        folder = tmp_path / way
        folder.mkdir()
        run, code, errors = launch(folder, FACTS % IS_FORK, TRAINMASTER_WARM_RANKS=choice)
        assert (code, errors) == (0, "")
        # apart from these, which differ from run to run
        texts = [output(run, rank).replace(str(folder), "FOLDER") for rank in range(2)]
        texts = [re.sub(r"(/stacks/flight\.)\d+", r"\1PID", text) for text in texts]
        found[way] = [json.loads(text) for text in texts]
    assert [rank.pop("fork") for rank in found["warm"]] == [True, True]
    assert [rank.pop("fork") for rank in found["cold"]] == [False, False]
    chances = [rank.pop("chance") for rank in found["warm"]]
    assert all(one != other for one, other in zip(*chances, strict=True))
    of_the_run = ("TORCHELASTIC_ERROR_FILE", "MASTER_PORT", "TRAINMASTER_RANKS_DIR", "TRAINMASTER_WARM_RANKS")
    for rank in range(2):
        warm, cold = found["warm"][rank], found["cold"][rank]
        for each in (warm, cold):
            each.pop("chance", None)
            assert each["environment"]["RANK"] == str(rank)
            each["environment"] = {k: v for k, v in each["environment"].items() if k not in of_the_run}
            shown = each["shown environment"]
            each["shown environment"] = [entry for entry in shown if not entry.startswith(of_the_run)]
        assert warm == cold


@needs_torch
def test_torchrun_restarts_ranks_and_each_end_is_told_as_it_was(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys, time\n"
        "import torch\n"
        f"print(os.environ['TORCHELASTIC_RESTART_COUNT'], {IS_FORK}, flush=True)\n"
        "ready = sys.argv[1] + '/ready' + os.environ['TORCHELASTIC_RESTART_COUNT']\n"
        "if os.environ['RANK'] == '0':\n"
        "    open(ready, 'w').close()\n"
        "    signal.pause()\n"
        "while not os.path.exists(ready): time.sleep(0.02)\n"
        "if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0': os.kill(os.getpid(), signal.SIGKILL)\n"
        "def fail(): raise ValueError('enough')\n"
        "fail()\n"
    )
    run, code, errors = launch(tmp_path, script, "--max_restarts=1")
    assert code == 1
    assert "ChildFailedError" in errors
    assert "warm_torchrun" not in errors
    assert output(run, 0) == output(run, 1) == "0 True\n1 True\n"
    ends = [(record["type"], record["code"], record["signal"]) for record in records(run, 1)]
    assert ends == [("rank_failed", 137, 9), ("rank_failed", 1, None)]
    assert [record["type"] for record in records(run, 0)] == ["rank_ended", "rank_ended"]
    frames = [line for line in output(run, 1, "stderr").splitlines() if "File " in line]
    assert [frame.strip().partition(", line ")[2] for frame in frames] == ["11, in <module>", "10, in fail"]


WORKERS = """
import atexit, os, sys
import torch
import torch.multiprocessing as multiprocessing
from torch.utils.data import DataLoader, Dataset

class Numbers(Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, index):
        return index, int(os.environ["RANK"]), "TRAINMASTER_WARM_ORDER" in os.environ

if __name__ == "__main__":
    atexit.register(print, "said goodbye")
    for method in ("fork", "spawn", "forkserver"):
        loader = DataLoader(Numbers(), num_workers=2, multiprocessing_context=method)
        print(method, [[int(part) for part in item] for item in loader])
    weight = torch.ones(2, requires_grad=True)
    (weight * 3).sum().backward()
    print(weight.grad.tolist(), IS_FORK)
    sys.exit("on purpose")
"""


@needs_torch
def test_data_loaders_start_workers_in_every_way(tmp_path: Path) -> None:
    run, code, _ = launch(tmp_path, WORKERS.replace("IS_FORK", IS_FORK), slots=1)
    items = [[index, 0, 0] for index in range(4)]
    lines = [f"{method} {items}" for method in ("fork", "spawn", "forkserver")]
    assert output(run, 0).splitlines() == [*lines, "[3.0, 3.0] True", "said goodbye"]
    assert output(run, 0, "stderr") == "on purpose\n"
    assert code == 1


KILLS = """
import os, signal, sys
import torch

def parent(pid):
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])

os.kill(%s, signal.SIGKILL)
if %r: signal.pause()
sys.exit(5)
"""


@needs_torch
@pytest.mark.parametrize(
    ("killed", "waits", "code"),
    [("parent(os.getppid())", False, 5), ("os.getppid()", True, 137)],
    ids=["the forker", "the parent of the rank"],
)
def test_a_rank_outlives_the_forker_and_ends_with_its_parent(
    tmp_path: Path, killed: str, waits: bool, code: int
) -> None:
    run, ended, _ = launch(tmp_path, KILLS % (killed, waits), slots=1)
    assert ended == code
    assert [record["code"] for record in records(run)] == [code]


@pytest.mark.survive(12)
@needs_torch
def test_a_forked_rank_continues_when_its_wrapper_is_killed(tmp_path: Path) -> None:
    script = (
        "import os, signal, time\n"
        "import torch\n"
        "ranks = os.environ['TRAINMASTER_RANKS_DIR']\n"
        "os.kill(int(open(f'{ranks}/rank0.pid').read()), signal.SIGKILL)\n"
        "while os.path.exists(ranks): time.sleep(0.02)\n"
        f"print('went on', {IS_FORK}, flush=True)\n"
    )
    run, code, _ = launch(tmp_path, script, slots=1)
    assert code == 1  # of torchrun, which has lost its rank
    wait_for(lambda: output(run, 0) == "went on True\n")


@needs_torch
@pytest.mark.parametrize(
    "file", ["antigravity.py", "cuda/kernels.cu"]
)  # the second is one that torch looks for
def test_a_module_of_the_job_is_found_by_its_ranks_as_ever(tmp_path: Path, file: str) -> None:
    path = tmp_path / "code" / file
    path.parent.mkdir(parents=True)
    path.touch()
    run, code, errors = launch(tmp_path, f"import os\nimport torch\nprint({IS_FORK})\n", slots=1)
    name = path.relative_to(tmp_path / "code").parts[0].partition(".")[0]
    assert (code, errors) == (0, warm_ranks.APART.format(f"the job has a module {name} of its own") + "\n")
    assert output(run, 0) == "False\n"


@pytest.mark.parametrize(
    ("module", "fault"),
    [
        ("print('careful')", "prints"),
        (
            "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
            "threads",
        ),
        ("file = open('/dev/null')", "opens files"),
        ("import os\nos.environ['NEW'] = '1'", "environment"),
    ],
)
def test_an_import_that_a_fork_could_not_share_is_not_shared(tmp_path: Path, module: str, fault: str) -> None:
    (tmp_path / "imported.py").write_text(module)
    program = (
        "import os\nfrom trainmaster.launch.warm_torchrun import import_for_all\n"
        "print(import_for_all(['imported'], dict(os.environb)))"
    )
    environment = environment_of(None)
    environment["PYTHONPATH"] += f"{os.pathsep}{tmp_path}"
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert fault in done.stdout
    assert done.stdout.splitlines()[:-1] == (["careful"] if fault == "prints" else [])
