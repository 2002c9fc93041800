"""`python3 -m trainmaster.burn_in`: measure each GPU of this run and the links between them, the processor and a disk.

Each figure is reported as soon as it is known. A measurement that fails is reported with its error, and the others
follow. Each GPU is measured by a process of its own. The program leaves within about a second when the queue asks for
the slots; a later attempt starts again.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from typing import Any, Callable, Iterator, List, Optional, Sequence

from trainmaster.burn_in import between
from trainmaster.burn_in.gpu import gpu
from trainmaster.burn_in.piece import SECONDS, SENTENCE_CHARACTERS, Leave, Pace, Result
from trainmaster.burn_in.processor import disk, processor
from trainmaster.core._records import Records
from trainmaster.launch.torch_distributed import DEFAULT_PORT
from trainmaster.paths import RunPaths
from trainmaster.runner.state import read_spec

#: exit code: it was asked to leave, and has not finished
LEFT = 75
#: for one GPU, most of it to write and read its memory; how often is looked whether its process has ended
_SECONDS_OF_SLOT, _LOOK_SECONDS = 300, 0.2
#: for all pairs of its GPUs
_SECONDS_OF_LINKS = 600


def main(seconds: float = SECONDS, of_slot: str = "") -> int:
    """`of_slot`: of a process for a single GPU, which sees no other, the slot that it is."""
    paths = RunPaths.from_environment()
    if paths is None:
        print("trainmaster.burn_in runs inside a task and is started by the server.", file=sys.stderr)
        return 2
    records, pace = Records(str(paths.root), 0), Pace(paths.preempt, seconds)
    try:
        if of_slot:
            _report(records, int(of_slot), _of_gpu(pace, int(of_slot)))
            return 0
        spec = read_spec(paths)
        slots = sorted(slot["index"] for slot in spec["slots"] if slot["kind"] != "cpu")
        for place, slot in enumerate(slots):
            pace.check()
            _in_its_own_process(pace, records, place, slot)
        torch = _torch()
        if torch is not None and len(slots) != 1:
            _links(pace, records, slots, spec["gang"]["ports"].get("c10d") or DEFAULT_PORT)
        for measure in (partial(processor, pace, torch), partial(disk, pace, paths.root)):
            pace.check()
            _report(records, None, measure)
    except Leave:
        print("Leaving, since the queue needs the slots. The burn-in starts again later.")
        return LEFT
    records.append("burn_in_done")
    return 0


def _of_gpu(pace: Pace, slot: int) -> Callable[[], Iterator[Result]]:
    torch = _torch()
    usable = torch is not None and torch.cuda.is_available()
    return partial(gpu, pace, torch, 0, slot) if usable else partial(_unusable, torch)


def _in_its_own_process(pace: Pace, records: Records, place: int, slot: int) -> None:
    """Measure the GPU where no other is seen: CUDA shows a process one part of a divided GPU at most.

    One that breaks or hangs ends only that process, so the other GPUs and the host are still measured.
    """
    environment, command = dict(os.environ), [sys.executable, "-m", "trainmaster.burn_in", str(slot)]
    seen = environment.get("CUDA_VISIBLE_DEVICES", "").split(",")
    environment["CUDA_VISIBLE_DEVICES"] = seen[place] if place < len(seen) and seen[place] else str(place)
    child = subprocess.Popen([*command, str(pace.seconds)], env=environment)
    if _watched(pace, [child], _SECONDS_OF_SLOT):
        _failed(records, slot, f"It was not measured within {_SECONDS_OF_SLOT} s.")
    elif child.returncode == LEFT:
        raise Leave
    elif child.returncode:
        _failed(records, slot, f"Its program ended with {_ending(child.returncode)}.")


def _links(pace: Pace, records: Records, slots: List[int], port: int) -> None:
    """Measure between the GPUs, a process for each; without GPUs between two processes."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    if slots and "MIG-" in visible:
        return  # NCCL knows no parts of a GPU
    count = len(slots) or 2
    command = [sys.executable, "-m", "trainmaster.burn_in.between", str(min(pace.seconds, between.SECONDS))]
    place = {
        "WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    children = [
        subprocess.Popen(command, env={**os.environ, **place, "RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank in range(count)
    ]
    is_late = _watched(pace, children, _SECONDS_OF_LINKS)
    # the first code that is no signal: the others were killed because of that one
    failed = max((child.returncode for child in children if child.returncode), default=0)
    pace.check()  # then they have left
    what = "the links between its GPUs" if slots else "the rate between two processes"
    if is_late:
        _failed(records, None, f"{what}: not measured within {_SECONDS_OF_LINKS} s.")
    elif failed:
        _failed(records, None, f"{what}: a program ended with {_ending(failed)}.")


def _watched(pace: Pace, children: Sequence["subprocess.Popen[bytes]"], seconds: float) -> bool:
    """Wait until they have ended; whether they took too long. None is left."""
    until = time.monotonic() + seconds
    try:
        while any(child.poll() is None for child in children) and time.monotonic() < until:
            pace.check()
            if any(child.returncode for child in children):
                break  # the others would wait for it
            time.sleep(_LOOK_SECONDS)
        return time.monotonic() >= until and any(child.poll() is None for child in children)
    finally:
        for child in children:
            if child.poll() is None:
                child.kill()
                with suppress(subprocess.TimeoutExpired):  # one that the driver holds cannot be killed
                    child.wait(_LOOK_SECONDS)


def _ending(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def _torch() -> Any:
    try:
        import torch
    except Exception:  # one that is broken here is none
        return None
    return torch


def _unusable(torch: Any) -> Iterator[Result]:
    why = "has no PyTorch" if torch is None else "has a PyTorch that finds no GPU"
    raise RuntimeError(f"The Python of jobs on this host {why}, so GPUs cannot be measured.")


def _report(records: Records, slot: Optional[int], measure: Callable[[], Iterator[Result]]) -> None:
    where = "the host" if slot is None else f"slot {slot}"
    try:
        for result in measure():
            records.append("burn_in", **result._asdict())
            print(f"{where}: {result.measure} {result.value:g}", flush=True)
    except Leave:
        raise
    except Exception as error:
        _failed(records, slot, str(error) or type(error).__name__)


def _failed(records: Records, slot: Optional[int], why: str) -> None:
    sentence = " ".join(why.split())[:SENTENCE_CHARACTERS]
    records.append("burn_in_failed", slot=slot, sentence=sentence)
    print(f"{'the host' if slot is None else f'slot {slot}'}: {sentence}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    of_slot, seconds = [*sys.argv[1:3], "", ""][:2]
    sys.exit(main(float(seconds or SECONDS), of_slot))
