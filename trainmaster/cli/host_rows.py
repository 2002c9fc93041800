"""How hosts are shown: the list, one host, the doctor's table, its interpreters, what it measured last."""

from __future__ import annotations

import sys
import time
from typing import Any, Dict, List

from trainmaster.cli import output
from trainmaster.cli.output import Column, clean, colored, local_time
from trainmaster.client import Json

_MARKS = {"ok": ("ok", "green"), "warn": ("warning", "yellow"), "fail": ("failed", "red")}


def slots_held(row: Json) -> str:
    slots = row.get("slots") or []
    return f"{sum(bool(slot.get('heldBy')) for slot in slots)}/{len(slots)}"


def holder(held: Any) -> str:
    """What holds a slot: the task's name and its user, and since when it has not used the GPU."""
    if not isinstance(held, dict):
        return str(held or "")
    idle = f", idle since {local_time(held['idleSince'])}" if held.get("idleSince") else ""
    return f"{held.get('name') or held.get('taskId')} ({held.get('username')}){idle}"


def used_by(slot: Json) -> str:
    """What holds a slot, or after whom it is being cleaned up and which processes are left."""
    cleaned = slot.get("cleaning")
    if not isinstance(cleaned, dict):
        return holder(slot.get("heldBy"))
    pids = [f"pid {process.get('pid')}" for process in cleaned.get("remains") or []]
    more = f" and {len(pids) - 3} more" if len(pids) > 3 else ""
    return f"being cleaned up after {holder(cleaned)}{': ' if pids else ''}{', '.join(pids[:3])}{more}"


def where(row: Json) -> str:
    if row.get("transport") == "local":
        return "this server"
    user, address, port = row.get("user") or "", row.get("address") or "", row.get("port") or 22
    name = f"{user}@{address}" if user else address
    return name if port == 22 else f"{name}:{port}"


HOSTS = [
    Column("Name", lambda row: row["name"]),
    Column("State", lambda row: row["state"]),
    Column("Pool", lambda row: row.get("pool")),
    Column("Slots (held/all)", slots_held),
    Column("Address", where),
    Column("Last Seen", lambda row: local_time(row.get("lastSeenAt"))),
    Column("Reason", lambda row: row.get("stateReason")),
]
DETAILS = [
    *HOSTS[:3],
    Column("Address", where),
    Column("Jump hosts", lambda row: " → ".join(str(jump.get("address")) for jump in row.get("jumps") or [])),
    Column("Host key", lambda row: _key(row.get("hostKey") or {})),
    Column("Python", lambda row: row.get("python") or row.get("activate")),
    Column("Route to the server", lambda row: row.get("serverRoute")),
    Column("Last seen", lambda row: local_time(row.get("lastSeenAt"))),
    Column("Clock skew", lambda row: _seconds(row.get("clockSkewSeconds"))),
    Column("Reason", lambda row: row.get("stateReason")),
]
SLOTS = [
    Column("Slot", lambda row: row["index"]),
    Column("Kind", lambda row: row.get("kind")),
    Column("Brand", lambda row: row.get("brand")),
    Column("Memory", lambda row: f"{row['memoryMb']} MB" if row.get("memoryMb") else ""),
    Column("Enabled", lambda row: row.get("enabled")),
    Column("Held By", used_by),
    Column("UUID", lambda row: row.get("uuid")),
]

CHECKS = [
    Column("Check", lambda row: row["name"]),
    Column("State", lambda row: row["state"]),
    Column("Sentence", lambda row: row["sentence"]),
]


def _key(key: Json) -> str:
    return f"{key.get('fingerprint') or key.get('offered') or ''} ({key.get('state', 'unknown')})"


def _seconds(skew: Any) -> str:
    return "" if skew is None else f"{skew:.3f} s"


def show_doctor(host: Json) -> None:
    """The doctor's table, worst last, so that it is read."""
    checks = (host.get("doctor") or {}).get("checks") or []
    if not checks:
        print("The doctor has not checked this host yet.")
        return
    width = max(len(check["name"]) for check in checks)
    order = list(_MARKS)
    for check in sorted(checks, key=lambda one: order.index(one["state"]) if one["state"] in order else 0):
        mark, color = _MARKS.get(check["state"], (check["state"], "yellow"))
        shown = colored(f"{mark:<8}", color, sys.stdout)
        print(f" {shown} {clean(check['name']):<{width}}  {clean(check['sentence'])}")


def interpreter_lines(host: Json) -> List[str]:
    """ "/usr/bin/python3: Python 3.11.2, torch 2.4.0, CUDA 12.1" of each interpreter found."""
    lines = []
    for found in host.get("interpreters") or []:
        torch = f", torch {found['torch']}" if found.get("torch") else ", no torch"
        cuda = f", CUDA {found['cuda']}" if found.get("cuda") else ""
        lines.append(clean(f"{found['path']}: Python {found.get('version')}{torch}{cuda}"))
    return lines


def show_host(host: Json, measured: List[Json]) -> None:
    """All about one host; `measured` are the series of its last minutes."""
    output.show_one(host, DETAILS, "table")
    for line in interpreter_lines(host):
        print(f"  {line}")
    found = _newest(measured)
    if host.get("slots"):
        print()
        in_use = Column("In Use", lambda row: of_gpu(found.get(row.get("uuid") or "-", {})))
        has_gpus = any(slot.get("uuid") for slot in host["slots"])
        output.show(host["slots"], [*SLOTS[:-1], in_use, SLOTS[-1]] if has_gpus else SLOTS, "table")
    print(_of_host(measured, found))
    if host.get("doctor"):
        print()
        show_doctor(host)


# --- what a host measured last --------------------------------------------------------------------------------

#: older samples say nothing about now
MEASURED_SECONDS = 120.0
MEASURED = (
    "gpu_util",
    "gpu_memory_used",
    "gpu_memory_free",
    "gpu_temperature",
    "cpu_util_simple",
    "memory_free",
)
_GIB = 1024**3


def _newest(series: List[Json]) -> Dict[str, Dict[str, float]]:
    """Part (a GPU's UUID, empty for the host) -> name -> its _newest value, of the series that the server gives."""
    found: Dict[str, Dict[str, float]] = {}
    for each in series:
        if each.get("mean"):
            found.setdefault(each.get("part") or "", {})[each["name"]] = each["mean"][-1]
    return found


def of_gpu(values: Dict[str, float]) -> str:
    """`97 %, 61.2 of 79.6 GiB, 64 °C`; what the GPU does not tell is left out."""
    said = []
    if "gpu_util" in values:
        said.append(f"{values['gpu_util']:.0f} %")
    if "gpu_memory_used" in values and "gpu_memory_free" in values:
        used, free = values["gpu_memory_used"], values["gpu_memory_free"]
        said.append(f"{used / _GIB:.1f} of {(used + free) / _GIB:.1f} GiB")
    if "gpu_temperature" in values:
        said.append(f"{values['gpu_temperature']:.0f} °C")
    return ", ".join(said)


def _of_host(series: List[Json], found: Dict[str, Dict[str, float]]) -> str:
    """`Measured 12 s ago: CPU 12 %, 1544.0 GiB of memory available`; a sentence where nothing was."""
    last = max((each["times"][-1] for each in series if each.get("times")), default=None)
    if last is None:
        return f"No measurements in the last {MEASURED_SECONDS:.0f} s."
    values, said = found.get("", {}), []
    if "cpu_util_simple" in values:
        said.append(f"CPU {values['cpu_util_simple']:.0f} %")
    if "memory_free" in values:
        said.append(f"{values['memory_free'] / _GIB:.1f} GiB of memory available")
    ago = max(0.0, time.time() - last)
    return f"Measured {ago:.0f} s ago" + (f": {', '.join(said)}" if said else "")
