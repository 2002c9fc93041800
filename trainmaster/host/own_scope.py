"""Runs leave the systemd unit that started them, where its end would be their end and systemd allows it.

That is a service whose KillMode ends all processes in it, such as one of `up` that has a host named local, or a login
session of which logind kills what is left. The verb moves itself into a scope; what it starts is born there.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from pathlib import Path
from typing import Any, Dict, NamedTuple, Optional

from trainmaster.host.asking import output_of, text_of

CGROUP = Path("/proc/self/cgroup")
SYSTEMD = Path("/run/systemd/system")
_SPARING = ("process", "none")  # KillMode that ends the main process alone
_SECONDS = 5.0
_MANAGER = ("org.freedesktop.systemd1", "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager")


class Unit(NamedTuple):
    """A unit, and whether the user's own systemd has it rather than the machine's."""

    name: str
    of_user: bool


def unit_of(cgroup: str) -> Optional[Unit]:
    """The innermost service or scope in what /proc/<pid>/cgroup says; None where systemd has placed nothing."""
    for line in cgroup.splitlines():
        controllers, _, path = line.partition(":")[2].partition(":")
        names = re.findall(r"[^/]+\.(?:service|scope)(?=/|$)", path)
        if controllers in ("", "name=systemd") and names:
            return Unit(names[-1], of_user=len(names) > 1 and names[0].startswith("user@"))
    return None


def facts(logind_spares: bool) -> Dict[str, Any]:
    """{"unit", "kill_mode", "ends_runs", "leaves"}: whose end would end runs, and whether they leave it.

    `logind_spares`: processes outlive their login session here. `unit` is null where systemd placed nothing.
    """
    unit = _unit()
    mode = _kill_mode(unit) if unit is not None and unit.name.endswith(".service") else None
    ends = mode is not None and mode not in _SPARING
    ends = ends or (unit is not None and _is_session(unit) and not logind_spares)
    return {
        "unit": unit.name if unit else None,
        "kill_mode": mode,
        "ends_runs": ends,
        "leaves": unit is not None and ends and _may_leave(unit),
    }


def leave(logind_spares: bool) -> bool:
    """Move this process into a scope of its own if runs would end with its unit; whether that was done."""
    unit = _unit()
    if unit is None or not facts(logind_spares)["leaves"]:
        return False
    scope = f"trainmaster-runs-{os.getpid()}-{int(time.time())}.scope"
    properties = ["3", "Description", "s", "Runs of Trainmaster", "PIDs", "au", "1", str(os.getpid())]
    properties += ["CollectMode", "s", "inactive-or-failed"]
    call = ["call", *_MANAGER, "StartTransientUnit", "ssa(sv)a(sa(sv))", scope, "fail", *properties, "0"]
    if _ask("busctl", unit, *call) is None:
        return False
    deadline = time.monotonic() + _SECONDS
    while _unit() == unit and time.monotonic() < deadline:  # systemd does it after it has answered
        time.sleep(0.01)
    return _unit() != unit


def _unit() -> Optional[Unit]:
    return unit_of(text_of(CGROUP)) if SYSTEMD.is_dir() else None


def _is_session(unit: Unit) -> bool:
    return unit.name.startswith("session-") and unit.name.endswith(".scope")


def _may_leave(unit: Unit) -> bool:
    return (unit.of_user or os.getuid() == 0) and shutil.which("busctl") is not None


def _kill_mode(unit: Unit) -> str:
    """What systemd kills at the end of the unit; its default where it does not tell."""
    said = _ask("systemctl", unit, "show", "--property=KillMode", "--value", unit.name) or b""
    return said.decode(errors="replace").strip() or "control-group"


def _ask(program: str, unit: Unit, *arguments: str) -> Optional[bytes]:
    """What the program of systemd prints, None if it fails."""
    environment = {**os.environ, "XDG_RUNTIME_DIR": f"/run/user/{os.getuid()}"} if unit.of_user else None
    return output_of([program, *(["--user"] if unit.of_user else []), *arguments], _SECONDS, environment)
