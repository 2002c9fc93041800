"""Which processes belong to which rank of a run, and what the kernel says about them.

A process of a run carries its marker; its rank stands in the variable of our launch modules, or in one of those that
torchrun, Horovod, MPI and Slurm set. Where a run of one host has none of these, its processes are rank 0.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Dict, Iterable, List, NamedTuple, Optional, Protocol, Set, Tuple

from trainmaster.processes import PROC
from trainmaster.protocol import MARKER, RANK

_RANK_VARIABLES = (
    RANK,
    "RANK",
    "HOROVOD_RANK",
    "OMPI_COMM_WORLD_RANK",
    "PMIX_RANK",
    "PMI_RANK",
    "SLURM_PROCID",
)
_TICKS_PER_SECOND = float(os.sysconf("SC_CLK_TCK"))
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
#: a process is somebody else's for good once it was so at this many looks: between fork and exec it shows its parent's
_LOOKS = 2
_GONE = ("Z", "X", "x")


class Seen(NamedTuple):
    """A process at one moment. `state` is the kernel's letter, `cpu_seconds` what it has used since it began.

    `resident_bytes` counts memory that it shares with others, too.
    """

    pid: int
    start_time: int
    parent: int
    state: str
    cpu_seconds: float
    resident_bytes: int


class ProcessesOfRanks(Protocol):
    """Finds the processes of each rank on this host. `ranked`: what has no rank is no rank's."""

    @property
    def ranked(self) -> bool: ...

    def look(self) -> Dict[int, List[Seen]]:
        """The living processes of each rank."""


class RankProcesses:
    """Looks at a run's processes again and again, at the cost of one listing of /proc and one small file of each."""

    def __init__(self, run_key: str, alone: bool) -> None:
        """`alone`: the gang has one host, so that processes without a rank are rank 0 if no process has one."""
        self._marker = f"{MARKER}={run_key}".encode()
        self._alone = alone
        self.ranked = False  # a process with a rank was seen: what has none is a launcher, never a rank
        self._ours: Dict[int, Tuple[int, Optional[int]]] = {}  # pid -> start time, rank
        self._others: Dict[int, int] = {}  # pid -> how often it was seen

    def look(self) -> Dict[int, List[Seen]]:
        """The living processes of each rank, parents before their children as far as pids tell."""
        pids = {int(name) for name in os.listdir(PROC) if name.isdigit()}  # noqa: PTH208  # every two seconds
        self._forget(pids)
        for pid in pids.difference(self._ours):
            if self._others.get(pid, 0) < _LOOKS:
                self._sort_in(pid)
        by_rank: Dict[Optional[int], List[Seen]] = {}
        for pid in sorted(self._ours):
            seen = look_at(pid)
            start_time, rank = self._ours[pid]
            if seen is None or seen.start_time != start_time:
                del self._ours[pid]
                continue
            if rank is None:  # it may have been seen before its exec
                rank = self._sort_in(pid)
            by_rank.setdefault(rank, []).append(seen)
        unranked = by_rank.pop(None, [])
        self.ranked = self.ranked or bool(by_rank)
        if unranked and self._alone and not self.ranked:
            return {0: unranked}
        return {rank: processes for rank, processes in by_rank.items() if rank is not None}

    def _forget(self, pids: Set[int]) -> None:
        for pid in [pid for pid in self._ours if pid not in pids]:
            del self._ours[pid]
        for pid in [pid for pid in self._others if pid not in pids]:
            del self._others[pid]

    def _sort_in(self, pid: int) -> Optional[int]:
        """Read the environment of a process: its rank, None for one of ours without any, or not ours."""
        variables = _read(pid, "environ").split(b"\0")
        seen = look_at(pid) if self._marker in variables else None
        if seen is None:
            self._others[pid] = self._others.get(pid, 0) + 1
            return None
        # wrap_rank is no rank, but its parent; what it forks looks like it until the exec
        rank = None if b"wrap_rank" in _read(pid, "cmdline") else rank_in(variables)
        self._ours[pid] = (seen.start_time, rank)
        return rank


def look_at(pid: int) -> Optional[Seen]:
    """The process as it is now, None when it is gone or only its corpse is left."""
    fields = _read(pid, "stat").rpartition(b")")[2].split()
    state = fields[0].decode("ascii", "replace") if fields else _GONE[0]
    if state in _GONE:
        return None
    used = (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND
    return Seen(pid, int(fields[19]), int(fields[1]), state, used, int(fields[21]) * _PAGE_BYTES)


def rank_in(variables: Iterable[bytes]) -> Optional[int]:
    """The rank that an environment says, None without one."""
    found: Dict[str, str] = {}
    for variable in variables:
        name, _, value = variable.decode("utf-8", "replace").partition("=")
        if name in _RANK_VARIABLES and value.isdigit():
            found[name] = value
    for name in _RANK_VARIABLES:
        if name in found:
            return int(found[name])
    return None


def waits_in(pid: int) -> str:
    """The kernel function that the process sleeps in; empty where it runs or nobody may know."""
    text = _read(pid, "wchan").decode("utf-8", "replace")
    return "" if text == "0" else text


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(PROC, str(pid), name).read_bytes()
    except OSError:  # gone, or another account's
        return b""
