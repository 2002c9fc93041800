"""A rank tells what torch's flight recorder knows of its collectives, whenever its host asks.

A thread of the rank waits at a pipe in the run's folder, so it answers while the rank's own thread hangs in a
collective: in the backend's C code, which leaves the interpreter free. It does nothing until it is asked.
trainmaster/host/flight.py asks and reads.
"""
# ruff: noqa: PTH118 (pathlib is slow to import)

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` itself imports enum
import _thread
import json
import os
import sys
from typing import Any, Dict, List

#: of CPU backends such as gloo, and of NCCL
_DUMPS = ("_dump_fr_trace_json", "_dump_nccl_trace_json")


def answer_when_asked(folder: str) -> None:
    """Wait for questions at `<folder>/flight.<pid>`; answers are `flight.<pid>.json` there."""
    path = os.path.join(folder, "flight.%d" % os.getpid())
    try:
        try:  # noqa: SIM105  # contextlib is slow to import
            os.mkfifo(path, 0o600)
        except FileExistsError:
            pass
        # open for writing too, so that no reader ever sees the end of it
        pipe = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:  # the job must start whatever this costs
        return
    # the thread takes no signal: those of the program belong to the program's own threads, as if it were not there
    before = _signal.pthread_sigmask(_signal.SIG_BLOCK, _signal.valid_signals())
    try:
        _thread.start_new_thread(_answer, (pipe, path + ".json"))
    finally:
        _signal.pthread_sigmask(_signal.SIG_SETMASK, before)


def _answer(pipe: int, path: str) -> None:
    while True:
        try:
            os.read(pipe, 4096)
            beside = path + ".new"
            file = os.open(
                beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
            )
            with os.fdopen(file, "wb") as stream:
                stream.write(_told())
            os.replace(beside, path)  # noqa: PTH105
        except (
            OSError
        ):  # the folder is gone or the disk full: nobody gets an answer, and nothing else happens
            return


def _told() -> bytes:
    recorder = sys.modules.get("torch._C._distributed_c10d")
    traces = []
    for name in _DUMPS:
        dump = getattr(recorder, name, None)
        if dump is not None:
            try:
                traces.append(bytes(dump()))
            except Exception:  # of a torch that takes other arguments
                continue
    return b'{"groups": %s, "traces": [%s]}' % (json.dumps(_groups()).encode(), b", ".join(traces))


def _groups() -> Dict[str, List[int]]:
    """The ranks of each process group, by the name that the recorder has for it."""
    try:
        world: Any = sys.modules["torch.distributed.distributed_c10d"]._world
        return {
            str(world.pg_names[group]): sorted(ranks) for group, ranks in list(world.pg_group_ranks.items())
        }
    except Exception:  # of a torch that keeps it elsewhere
        return {}
