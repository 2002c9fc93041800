"""Twelve ways in which one rank of a gang hangs, each under a real torchrun with gloo: is it named, and how soon?

    python -m benchmarks.hangs [--keep FOLDER] [NAME…]

For each: whether the rank is named, the collective that the others wait in, whether two looks prove the hang (so that a
rule may end it), and the seconds from the moment the rank hangs to the verdict. --keep writes what the hosts told.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from logs.hangs import evidence, verdict
from logs.hangs.evidence import ENDED, Told
from tests.rig.bundles import install
from trainmaster.host.stacks import stack
from trainmaster.paths import Workdir
from trainmaster.processes import marked
from trainmaster.protocol import MARKER, RUN_DIR

RANKS, VICTIM = 4, 2
KEY = f"hang{os.getpid()}.1.0"
#: what is found must be found within this time
WITHIN_SECONDS = 60.0

_TRAINING = """
import os, sys, time
os.environ.setdefault("OMP_NUM_THREADS", "1")
from datetime import timedelta
import torch
import torch.distributed as dist

def main():
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    rank, gradient = dist.get_rank(), torch.ones(8)
    for step in range(20):
        dist.all_reduce(gradient)
    dist.barrier()
    open(f"began.{rank}", "w").close()
    (hang if rank == VICTIM else others)(gradient)
    time.sleep(3600)

"""
_MAIN = "\nmain()\n"
#: name -> (what the victim does, what the others do, collectives that may be named; none: it has none)
ALL_REDUCE = "dist.all_reduce(gradient)"


@dataclass(frozen=True)
class Injected:
    name: str
    victim: str
    others: str = ALL_REDUCE
    collectives: tuple[str, ...] = ("all_reduce",)


TWELVE = (
    Injected("stopped", "import signal; os.kill(os.getpid(), signal.SIGSTOP)"),
    Injected("left_out", "dist.broadcast(gradient, 0); dist.all_reduce(gradient)",
             "dist.all_reduce(gradient); dist.broadcast(gradient, 0); dist.all_reduce(gradient)"),
    Injected("sizes", "dist.reduce_scatter_tensor(torch.ones(2), torch.ones(8)); dist.barrier()",
             "dist.reduce_scatter_tensor(torch.ones(1), torch.ones(4)); dist.barrier()"),
    Injected("loader", """
        class Data(torch.utils.data.Dataset):
            def __len__(self): return 8
            def __getitem__(self, index): time.sleep(3600)
        next(iter(torch.utils.data.DataLoader(Data(), num_workers=1)))"""),
    Injected("lock", "import threading; lock = threading.Lock(); lock.acquire(); lock.acquire()"),
    Injected("pipe", "os.mkfifo('fifo'); pipe = os.open('fifo', os.O_RDWR); os.read(pipe, 1)"),
    Injected("dead_peer", "os._exit(0)", "dist.new_group([0, 1, 2, 3])", ("new_group",)),
    Injected("endless_loop", """
        number = 0
        while True: number = (number + 1) % 1000"""),
    Injected("barrier_left_out", "import queue; queue.Queue().get()", "dist.barrier()", ("barrier",)),
    Injected("order", "dist.broadcast(gradient, 0); dist.all_reduce(gradient)",
             "dist.all_reduce(gradient); dist.broadcast(gradient, 0)"),
    Injected("socket", """
        import socket
        listening = socket.create_server(("127.0.0.1", 0))
        socket.create_connection(listening.getsockname()).recv(1)"""),
    Injected("long_call", "import ctypes; ctypes.PyDLL(None).sleep(3600)"),
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--keep", type=Path)
    arguments = parser.parse_args()
    chosen = [each for each in TWELVE if not arguments.names or each.name in arguments.names]
    named = collective = 0
    for injected in chosen:
        found = measured(injected, arguments.keep)
        named += found["named"]
        collective += found["collective"]
        print(json.dumps(found), flush=True)
    print(f"rank named {named} of {len(chosen)}, collective {collective} of {len(chosen)}")


def measured(injected: Injected, keep: Path | None = None) -> dict[str, Any]:
    """One hang, from its injection to the verdict."""
    with tempfile.TemporaryDirectory(prefix="hang-") as folder:
        workdir = Workdir(Path(folder))
        process = _started(injected, workdir)
        try:
            code = workdir.run(KEY).code
            while len(list(code.glob("began.*"))) < RANKS:
                if process.poll() is not None:
                    raise SystemExit(f"{injected.name}: torchrun has ended with {process.returncode}")
                time.sleep(0.1)
            begun = time.monotonic()
            time.sleep(3)
            first, first_at = _look(workdir), time.monotonic()
            time.sleep(verdict.APART_SECONDS)
            second, second_at = _look(workdir), time.monotonic()
        finally:
            ranks = {each["pid"] for each in marked().get(KEY, [])}  # each has a session of its own
            for pid in {process.pid, *ranks}:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait()
    if keep:
        looks = {"apart_seconds": round(second_at - first_at, 1), "looks": [first, second]}
        (keep / f"{injected.name}.json").write_text(json.dumps(looks, indent=1, sort_keys=True) + "\n")
    before, now = (gang_of(look) for look in (first, second))
    found = verdict.judge(now)
    agrees = verdict.confirmed(verdict.judge(before), found)
    return {
        "name": injected.name,
        "named": found is not None and agrees and found.ranks == (VICTIM,),
        "collective": found is not None and found.collective.split(" ")[0] in injected.collectives,
        "may_be_ended": found is not None and verdict.may_be_ended(found, before, now, second_at - first_at),
        "seconds": round(second_at - begun, 1),
        "sentence": found.sentence if found else None,
    }


def gang_of(look: dict[str, Any]) -> Sequence[Told]:
    """What a host told of its ranks, by the ranks' numbers as text."""
    return [evidence.told(rank, "gpu1", look.get(str(rank), {"state": ENDED})) for rank in range(RANKS)]


def _look(workdir: Workdir) -> dict[str, Any]:
    answer = stack({"runs": {KEY: {"ranks": None, "collectives": True}}}, workdir)
    ranks: dict[str, Any] = answer["runs"][KEY]["ranks"]
    return ranks


def _started(injected: Injected, workdir: Workdir) -> subprocess.Popen[bytes]:
    paths, bundle = workdir.run(KEY), install(workdir.root)
    for folder in (paths.code, paths.spool):
        folder.mkdir(parents=True)
    paths.spec.write_text('{"members": 1}')
    bodies = [f"def {name}(gradient):\n    {body.strip()}\n" for name, body in
              (("hang", injected.victim.replace("\n    ", "\n")), ("others", injected.others))]  # fmt: skip
    (paths.code / "train.py").write_text(f"VICTIM = {VICTIM}" + _TRAINING + "\n".join(bodies) + _MAIN)
    environment = {
        **os.environ, "PYTHONPATH": str(bundle), MARKER: paths.key, RUN_DIR: str(paths.root),
        "TORCH_FR_BUFFER_SIZE": "2000", "PYTHONDONTWRITEBYTECODE": "",
    }  # fmt: skip
    launcher = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        f"--nproc-per-node={RANKS}",
        "train.py",
    ]
    with (paths.spool / "launcher.stderr").open("wb") as output:
        return subprocess.Popen(
            launcher, cwd=paths.code, env=environment, stdout=output, stderr=output, start_new_session=True
        )


if __name__ == "__main__":
    main()
