"""Host processes of a run as forks of a process that has imported everything, instead of new interpreters.

A new Python costs 30 to 80 ms and 15 MB for each of launcher and runner; a fork costs 2 ms and what it changes.
In `ps` and /proc a fork looks like the process it stands for: its command line and its marker are written over
spare room in the memory that the kernel shows, which `serve` was started with for this purpose.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
from pathlib import Path
from typing import Callable, Dict, List, Optional, Tuple

from trainmaster.protocol import KEEPER_MARKER
from trainmaster.runner.runner_log import open_log

#: in the environment of `serve`: room for the marker of a run
SPARE_VARIABLE = "TRAINMASTER_SPARE"
SPARE_VARIABLE_BYTES = 256
#: as the last argument of `serve`: room for a longer command line
SPARE_ARGUMENT_BYTES = 512
_ARG_START, _ARG_END = 45, 46  # in /proc/self/stat, counted from the field behind the name
_LAST_DESCRIPTOR = 4096

_main: Optional[Callable[[List[str]], int]] = None


def warm_up(main: Callable[[List[str]], int]) -> None:
    """Fork from now on, if this process can do that: `main` carries out the arguments of a command.

    The process has one thread and has imported all that `main` needs.
    """
    global _main
    try:
        libc().getenv(SPARE_VARIABLE.encode())
    except (OSError, AttributeError):
        return
    _main = main if SPARE_VARIABLE in os.environ else None
    gc.collect()
    gc.freeze()  # or the first collection of each fork would copy every page


def is_warm() -> bool:
    """May this process fork launchers and runners?"""
    return _main is not None


def cool_down() -> None:
    """From now on by new interpreters: where threads run, or another account's memory would be taken along."""
    global _main
    _main = None


def fork(command: List[str], environment: Dict[str, str], log: Path, keep_open: Tuple[int, ...]) -> int:
    """The pid of a child that carries out `command` (of `detached.spawn_in_session`) as if it had been executed."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        _become(command, environment, log, keep_open)
        assert _main is not None  # is_warm()
        code = _main(command[command.index("-s") + 2 :])
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)


def _become(command: List[str], environment: Dict[str, str], log: Path, keep_open: Tuple[int, ...]) -> None:
    os.setsid()
    os.chdir("/")
    null = os.open(os.devnull, os.O_RDWR)
    output = open_log(log)
    for source, target in ((null, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    kept = sorted({0, 1, 2, *keep_open})
    for number, descriptor in enumerate(kept):
        os.closerange(descriptor + 1, [*kept, _LAST_DESCRIPTOR][number + 1])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, set())
    _show(command, environment[KEEPER_MARKER])
    os.environ.clear()
    os.environ.update(environment)


def _show(command: List[str], run_key: str) -> None:
    """Let the kernel show this process with that command line and that run's marker."""
    address = libc().getenv(SPARE_VARIABLE.encode())
    if address:  # the second generation has it already
        room = len(SPARE_VARIABLE) + 1 + SPARE_VARIABLE_BYTES
        marker = f"{KEEPER_MARKER}={run_key}".encode()
        _overwrite(address - len(SPARE_VARIABLE) - 1, room, marker)
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[_ARG_START]), int(fields[_ARG_END])
    _overwrite(start, end - start, b"\0".join(word.encode("utf-8", "surrogateescape") for word in command))


def _overwrite(address: int, room: int, text: bytes) -> None:
    ctypes.memmove(address, text[: room - 1].ljust(room, b"\0"), room)


def libc() -> ctypes.CDLL:
    """The C library; OSError or AttributeError where it is not to be had."""
    library = ctypes.CDLL(None, use_errno=True)
    library.getenv.restype = ctypes.c_void_p
    library.getenv.argtypes = [ctypes.c_char_p]
    return library
