"""What the kernel's out-of-memory killer has done, on the host and in this process's cgroup: evidence for exit 137."""

from __future__ import annotations

from pathlib import Path
from typing import Dict, List, Optional

from trainmaster.host.asking import text_of

_CGROUPS = Path("/sys/fs/cgroup")
_VMSTAT = Path("/proc/vmstat")
_OWN = Path("/proc/self/cgroup")


def counted() -> Dict[str, int]:
    """Processes killed so far: `cgroup` in this process's cgroup, `host` anywhere. What cannot be read is absent."""
    found = {"cgroup": _in_cgroup(), "host": _number(_VMSTAT, "oom_kill")}
    return {name: count for name, count in found.items() if count is not None}


def since(before: Dict[str, int]) -> Dict[str, int]:
    """How many more than at `before`, an earlier answer of `counted`."""
    now = counted()
    return {name: max(0, now[name] - count) for name, count in before.items() if name in now}


def _in_cgroup() -> Optional[int]:
    """cgroup v2 counts in memory.events, v1 in memory.oom_control of the memory controller."""
    rows = [row.split(":", 2) for row in text_of(_OWN).splitlines()]
    for path in _counters(rows):
        count = _number(path, "oom_kill")
        if count is not None:
            return count
    return None


def _counters(rows: List[List[str]]) -> List[Path]:
    """Where a host has v1's memory controller, v2's group of a process counts no memory: v1 first."""
    paths = [row[2].lstrip("/") for row in rows if len(row) == 3 and "memory" in row[1].split(",")]
    found = [_CGROUPS / "memory" / path / "memory.oom_control" for path in paths]
    paths = [row[2].lstrip("/") for row in rows if len(row) == 3 and row[0] == "0"]
    return found + [_CGROUPS / path / "memory.events" for path in paths]


def _number(path: Path, name: str) -> Optional[int]:
    """The number behind `name` at the beginning of a line."""
    try:
        for line in path.read_text().splitlines():
            key, _, value = line.partition(" ")
            if key == name:
                return int(value)
    except (OSError, ValueError):
        return None
    return None
