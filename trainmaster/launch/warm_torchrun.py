"""torchrun and the ranks of one host as forks of one process that has imported PyTorch.

The process is the ranks' own program, `python train.py`, and comes here from sitecustomize.py, before its first line:

    python train.py ─ imports torch ─ becomes torchrun ─► wrap_rank of each rank
         └─ forker ─► parent of a rank ─► the rank: returns to sitecustomize, and runs train.py

So a rank is what the interpreter itself makes of `python train.py`: its `__main__`, arguments, paths and end are the
real ones. A wrap_rank asks the forker for its rank, and gets the rank's end from the rank's parent. Forks are made
while there is one thread, and nothing that a fork could not share. If the import did more than that, there is no
forker, and each wrap_rank executes its rank.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import importlib
import json
import os
import re
import runpy
import select
import signal
import socket
import sys
import threading
import time
import traceback
from typing import Callable, ClassVar, Dict, Iterator, List, NoReturn, Optional, Set, Tuple

from trainmaster.launch.shown_memory import ShownMemory
from trainmaster.launch.warm_ranks import APART, CHOICE, ColdStart, hidden_module
from trainmaster.launch.wrap_rank import FORKER, LENGTH_BYTES, RANKS_DIR, RECORD_BYTES
from trainmaster.protocol import RANK, WARM_ORDER

# What torchrun and wrap_rank set for a rank. The import of torch reads none of it.
_OF_RANKS = re.compile(
    rb"(TRAINMASTER|GROUP|LOCAL|ROLE)_RANK|RANK|ROLE_NAME|((GROUP|LOCAL|ROLE)_)?WORLD_SIZE|MASTER_(ADDR|PORT)"
    rb"|(TORCH_)?NCCL_ASYNC_ERROR_HANDLING|TORCHELASTIC_\w+"
)
_MESSAGE_SECONDS = 10.0
_MESSAGE_BYTES_MAX = 8 * 1024 * 1024

Begin = Callable[[], None]


def run(order: str, begin: Begin) -> None:
    """Become torchrun. Returns in a rank alone.

    `begin` is called in each process that then runs something of its own.
    """
    wanted = json.loads(order)
    launcher: List[str] = wanted["launcher"]
    with open("/proc/self/environ", "rb") as file:  # noqa: PTH123
        shown = file.read()
    variables = (entry.partition(b"=") for entry in shown.split(b"\0") if entry)
    began = {name: value for name, _, value in variables if name != WARM_ORDER.encode()}
    try:
        memory = ShownMemory.find(shown, WARM_ORDER)
        fault = import_for_all(wanted["imports"], began)
        hidden = hidden_module(wanted["words"], sys.modules, _Sought.names)
        if hidden:
            raise ColdStart(f"the job has a module {hidden} of its own")
    except Exception as reason:
        _tell(began, str(reason))
        os.execve(launcher[0], launcher, began)
    ended, held = os.pipe()  # held by torchrun alone: the forker ends with it
    if fault is None:
        listener = _listener(os.environ[RANKS_DIR])
        if os.fork() == 0:
            os.close(held)
            memory.show(["forker of the ranks"])
            _fork_ranks(listener, ended, wanted["words"], began, memory)
            begin()
            return
        listener.close()
    else:
        _tell(began, fault)
    os.close(ended)
    memory.show(launcher[launcher.index("-m") + 1 :])
    _be_torchrun(launcher, begin)


def _tell(began: Dict[bytes, bytes], reason: str) -> None:
    if began.get(CHOICE.encode()) == b"tell":
        os.write(2, f"{APART.format(reason)}\n".encode("utf-8", "replace"))


def _listener(folder: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    handle = os.open(folder, os.O_PATH | os.O_CLOEXEC)
    listener.bind(f"/proc/self/fd/{handle}/{FORKER}")  # its own path may be too long for an address
    os.close(handle)
    listener.listen(128)
    return listener


# The import


def import_for_all(names: List[str], began: Dict[bytes, bytes]) -> Optional[str]:
    """Import the modules. Return why forks of this process would differ from processes that import them, or None."""
    files = _open_files()
    kept = [(number, os.dup(number), os.memfd_create("output")) for number in (1, 2)]
    sys.meta_path.append(_Sought)
    try:
        for number, _, output in kept:
            os.dup2(output, number)
        for name in names:
            importlib.import_module(name)
    finally:
        sys.meta_path.remove(_Sought)
        printed = [_give_back(*streams) for streams in kept]
    if any(printed):
        return "importing it prints something"
    if len(os.listdir("/proc/self/task")) != 1:  # noqa: PTH208
        return "importing it starts threads (with OMP_NUM_THREADS=1 it does not)"
    if _open_files() != files:
        return "importing it opens files or devices"
    if dict(os.environb) != began:
        return "importing it changes the environment"
    torch = sys.modules["torch"]
    if torch.cuda.is_initialized() or not hasattr(torch.default_generator, "seed"):
        return "this PyTorch cannot be forked"
    return None


def _give_back(number: int, own: int, output: int) -> bool:
    """Print on a stream what was kept of it; whether that was anything."""
    (sys.stdout if number == 1 else sys.stderr).flush()
    os.dup2(own, number)
    size = os.fstat(output).st_size
    os.write(number, os.pread(output, size, 0))
    os.close(own)
    os.close(output)
    return size > 0


def _open_files() -> Set[str]:
    return {name for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")}  # noqa: PTH110, PTH208


class _Sought:
    """The last of the finders: it sees what no other has found."""

    names: ClassVar[List[str]] = []

    @classmethod
    def find_spec(cls, name: str, path: object = None, target: object = None) -> None:
        cls.names.append(name)


# torchrun


def _be_torchrun(launcher: List[str], begin: Begin) -> NoReturn:
    """`python -m torch.distributed.run …` to its end."""
    module = launcher[launcher.index("-m") + 1]
    sys.argv[:] = launcher[launcher.index("-m") + 1 :]
    sys.orig_argv = launcher  # type: ignore[attr-defined, unused-ignore]  # Python 3.10
    sys.path.insert(0, os.getcwd())  # noqa: PTH109
    code = 1
    try:
        begin()
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        if code and not isinstance(end.code, int):
            print(end.code, file=sys.stderr)
    except BaseException as error:
        frames = error.__traceback__.tb_next if error.__traceback__ else None  # without this one
        traceback.print_exception(type(error), error, frames)
    # as after any program: its threads end, what it registered is called, what it holds is released
    ctypes.pythonapi.Py_Exit(code)
    os._exit(code)


# The forker, and the parent of a rank


def _fork_ranks(
    listener: socket.socket, ended: int, words: List[str], began: Dict[bytes, bytes], memory: ShownMemory
) -> None:
    """Fork for each wrap_rank that asks, until torchrun has ended. Returns in a rank."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        if ended in select.select([listener.fileno(), ended], [], [])[0]:
            os._exit(0)
        way = listener.accept()[0]
        if os.fork() == 0:
            listener.close()
            os.close(ended)
            return _be_parent(way, words, began, memory)
        way.close()


def _be_parent(way: socket.socket, words: List[str], began: Dict[bytes, bytes], memory: ShownMemory) -> None:
    """Lead a session with the rank in it, and tell the rank's end. Returns in the rank."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        command, environment, streams = _asked(way)
    except (OSError, ValueError):
        os._exit(1)
    changed = {name: value for name, value in environment.items() if began.get(name) != value}
    foreign = began.keys() - environment.keys() | {name for name in changed if not _OF_RANKS.fullmatch(name)}
    if command != words or foreign:
        _tell(began, f"torchrun starts {command} with other variables ({sorted(foreign)})")
        os._exit(0)
    os.setsid()
    # so that no signal to the group ends the rank's parent before the rank
    signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
    rank = os.fork()
    if rank == 0:
        way.close()
        _be_rank(streams, changed, memory)
        return
    try:
        way.sendall(rank.to_bytes(RECORD_BYTES, "little") + os.getpid().to_bytes(RECORD_BYTES, "little"))
        memory.show([f"parent of rank {environment[RANK.encode()].decode()}"])
        for descriptor in streams:
            os.close(descriptor)
        end = os.waitid(os.P_PID, rank, os.WEXITED | os.WNOWAIT)  # its pid stays its own until it is read
        assert end is not None
        status = end.si_status << 8 if end.si_code == os.CLD_EXITED else end.si_status
        way.sendall(status.to_bytes(RECORD_BYTES, "little"))
        way.settimeout(None)
        way.recv(1)
    except OSError:  # wrap_rank is gone; the rank continues
        pass
    finally:
        os.waitpid(rank, 0)
        os._exit(0)


def _be_rank(streams: List[int], changed: Dict[bytes, bytes], memory: ShownMemory) -> None:
    """Make this process what an execution of the rank's command would have made it."""
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environb.update(changed)
    memory.restore(changed)
    # what an import takes by chance, which would be the same in all ranks; `random` does it by itself
    sys.modules["torch"].default_generator.seed()
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    with contextlib.suppress(AttributeError):
        threading.main_thread()._set_native_id()  # type: ignore[attr-defined]  # Python 3.12 does it by itself
    for name in [name for name in sys.modules if name.partition(".")[0] == "trainmaster"]:
        del sys.modules[name]
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _asked(way: socket.socket) -> Tuple[List[str], Dict[bytes, bytes], List[int]]:
    """(command, environment, the three streams) that a wrap_rank asks for."""
    way.settimeout(_MESSAGE_SECONDS)
    numbers = array.array("i")
    data, ancillary, _, _ = way.recvmsg(65536, socket.CMSG_SPACE(3 * numbers.itemsize))
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            numbers.frombytes(content)
    length = int.from_bytes(data[:LENGTH_BYTES], "little")
    if len(numbers) != 3 or min(numbers) < 3 or length > _MESSAGE_BYTES_MAX:
        raise ValueError("not a message of wrap_rank")
    received = bytearray(data[LENGTH_BYTES:])
    until = time.monotonic() + _MESSAGE_SECONDS
    while len(received) < length:
        more = way.recv(65536)
        if not more or time.monotonic() > until:
            raise ValueError("the message ended early")
        received += more
    parts: Iterator[bytes] = iter(bytes(received).split(b"\0"))
    command = [os.fsdecode(next(parts)) for _ in range(int(next(parts)))]
    environment = dict(part.split(b"=", 1) for part in parts)
    return command, environment, list(numbers)
