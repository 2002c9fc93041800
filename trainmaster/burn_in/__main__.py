"""`python3 -m trainmaster.burn_in`: measure each GPU of this run, or the processor without GPUs, and a disk.

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
from typing import Any, Callable, Iterator, Optional

from trainmaster.burn_in.gpu import gpu
from trainmaster.burn_in.piece import SECONDS, Leave, Pace, Result
from trainmaster.burn_in.processor import disk, processor
from trainmaster.core._records import Records
from trainmaster.paths import RunPaths
from trainmaster.runner.state import read_spec

#: exit code: it was asked to leave, and has not finished
LEFT = 75
_SENTENCE_CHARACTERS = 300
#: for one GPU, most of it to write and read its memory; how often is looked whether its process has ended
_SECONDS_OF_SLOT, _LOOK_SECONDS = 300, 0.2


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
        slots = sorted(slot["index"] for slot in read_spec(paths)["slots"] if slot["kind"] != "cpu")
        for place, slot in enumerate(slots):
            pace.check()
            _in_its_own_process(pace, records, place, slot)
        torch = _torch()
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
    until = time.monotonic() + _SECONDS_OF_SLOT
    try:
        while child.poll() is None and time.monotonic() < until:
            pace.check()
            time.sleep(_LOOK_SECONDS)
    finally:
        is_late = child.poll() is None
        if is_late:
            child.kill()
            with suppress(subprocess.TimeoutExpired):  # one that the driver holds cannot be killed
                child.wait(_LOOK_SECONDS)
    if is_late:
        _failed(records, slot, f"It was not measured within {_SECONDS_OF_SLOT} s.")
    elif child.returncode == LEFT:
        raise Leave
    elif child.returncode:
        _failed(records, slot, f"Its program ended with {_ending(child.returncode)}.")


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
    sentence = " ".join(why.split())[:_SENTENCE_CHARACTERS]
    records.append("burn_in_failed", slot=slot, sentence=sentence)
    print(f"{'the host' if slot is None else f'slot {slot}'}: {sentence}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    of_slot, seconds = [*sys.argv[1:3], "", ""][:2]
    sys.exit(main(float(seconds or SECONDS), of_slot))
