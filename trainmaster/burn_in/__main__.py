"""`python3 -m trainmaster.burn_in`: measure each GPU of this run, or the processor without GPUs, and a disk.

Each figure is reported as soon as it is known. A measurement that fails is reported with its error, and the others
follow. The program leaves within about a second when the queue asks for the slots; a later attempt starts again.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any, Callable, Iterator, List, Optional, Tuple

from trainmaster.burn_in.gpu import gpu
from trainmaster.burn_in.piece import SECONDS, Leave, Pace, Result
from trainmaster.burn_in.processor import disk, processor
from trainmaster.core._records import Records
from trainmaster.paths import RunPaths
from trainmaster.runner.state import read_spec

#: exit code: it was asked to leave, and has not finished
LEFT = 75
_SENTENCE_CHARACTERS = 300
#: (the slot or None, what measures)
Part = Tuple[Optional[int], Callable[[], Iterator[Result]]]


def main(seconds: float = SECONDS) -> int:
    paths = RunPaths.from_environment()
    if paths is None:
        print("trainmaster.burn_in runs inside a task and is started by the server.", file=sys.stderr)
        return 2
    records, pace = Records(str(paths.root), 0), Pace(paths.preempt, seconds)
    slots = sorted(slot["index"] for slot in read_spec(paths)["slots"] if slot["kind"] != "cpu")
    try:
        for slot, measure in _parts(pace, slots, paths):
            pace.check()
            _report(records, slot, measure)
    except Leave:
        print("Leaving, since the queue needs the slots. The burn-in starts again later.")
        return LEFT
    records.append("burn_in_done")
    return 0


def _parts(pace: Pace, slots: List[int], paths: RunPaths) -> Iterator[Part]:
    torch = _torch()
    usable = torch is not None and torch.cuda.is_available()
    for place, slot in enumerate(slots):
        yield slot, partial(gpu, pace, torch, place, slot) if usable else partial(_unusable, torch)
    yield None, partial(processor, pace, torch)
    yield None, partial(disk, pace, paths.root)


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
        sentence = " ".join((str(error) or type(error).__name__).split())[:_SENTENCE_CHARACTERS]
        records.append("burn_in_failed", slot=slot, sentence=sentence)
        print(f"{where}: {sentence}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
