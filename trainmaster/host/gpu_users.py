"""Which processes compute on the GPUs of this host: those of runs, and those of people who do not use the queue."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Optional, Tuple

from trainmaster.host.accounts import name_of
from trainmaster.host.nvidia import by_nvidia_smi, by_nvml, mig_instances, text
from trainmaster.processes import PROC, age_seconds, is_hidden, marker_of, parent_of, real_uid
from trainmaster.protocol import KEEPER_MARKER, MARKER

_SHOWN = 80
#: all bundles of this workdir: launchers run from here, and their command lines can be read by everybody
_BUNDLES = str(Path(__file__).resolve().parents[3])
_MOST_ANCESTORS = 64

User = Dict[str, Any]


def gpu_users() -> Optional[Dict[str, List[User]]]:
    """By GPU (or MIG) UUID, {"pid", "user", "command", "run", "by", "seconds"} of each process; None if unknown.

    `run` is the run key of its marker, "?" where a launcher of ours is among its ancestors but its environment is
    another account's, null for a process from outside. Anyone can set a marker: `by` is the account of the first
    process that carries it, among this one and its ancestors, and `seconds` for how long that one has lived. `command`
    is the program and its script, never arguments.
    """
    found = on_gpus()
    if found is None:
        return None
    users: Dict[str, List[User]] = {}
    for uuid, pid in found:
        user = {"pid": pid, "user": account_of(pid), "command": command_of(pid), **_run(pid)}
        users.setdefault(uuid, []).append(user)
    return users


def on_gpus() -> Optional[List[Tuple[str, int]]]:
    """(GPU or MIG UUID, pid) of each process that computes on one; None where nobody can tell."""
    found = by_nvml(_all_users)
    return found if found is not None else _by_nvidia_smi()


def account_of(pid: int) -> str:
    """The name of the account that started a process; empty for one that cannot be seen, as of another container."""
    uid = real_uid(pid)
    return "" if uid is None else name_of(uid)


def _words(pid: int) -> List[str]:
    try:
        raw = (PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return []
    return [word.decode("utf-8", "replace") for word in raw.split(b"\0") if word]


def command_of(pid: int) -> str:
    """`python train.py`: arguments may hold secrets."""
    words = _words(pid)
    if not words:
        return ""
    script = [word for word in words[1:2] if not word.startswith("-")]
    return " ".join(Path(word).name for word in words[:1] + script)[:_SHOWN]


def _run(pid: int) -> User:
    """Whose it is: that of the nearest launcher above it, else that of its marker or an ancestor's."""
    line = (pid, *ancestors(pid))
    for variable in (KEEPER_MARKER, MARKER):
        markers = {each: marker_of(each, variable) for each in line}
        run = next(filter(None, markers.values()), None)
        if run is not None:
            first = [each for each in line if markers[each] == run][-1]
            return {"run": run, "by": account_of(first), "seconds": age_seconds(first)}
    ours = any(is_hidden(each) and any(_BUNDLES in word for word in _words(each)) for each in line)
    return {"run": "?" if ours else None, "by": None, "seconds": None}


def ancestors(pid: int) -> Iterator[int]:
    """The parent of a process, its parent and so on; not the first process of all."""
    for _ in range(_MOST_ANCESTORS):
        parent = parent_of(pid)
        if parent is None or parent <= 1:
            return
        yield parent
        pid = parent


def _all_users(nvml: Any) -> List[Tuple[str, int]]:
    """(UUID, pid) of each."""
    devices = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
    return [pair for device in devices for pair in _on_device(nvml, device)]


def _on_device(nvml: Any, device: Any) -> Iterable[Tuple[str, int]]:
    """Yield the processes on a GPU; on a divided one, those of its instances."""
    for handle in mig_instances(nvml, device) or [device]:
        uuid = text(nvml.nvmlDeviceGetUUID(handle))
        for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle):
            yield uuid, int(process.pid)


def _by_nvidia_smi() -> Optional[List[Tuple[str, int]]]:
    answer = by_nvidia_smi("--query-compute-apps=gpu_uuid,pid")
    if answer is None:
        return None
    rows = csv.reader(answer.splitlines(), skipinitialspace=True)
    return [(row[0].strip(), int(row[1])) for row in rows if len(row) == 2 and row[1].strip().isdigit()]
