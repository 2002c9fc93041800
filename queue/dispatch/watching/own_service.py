"""Whether systemd ends the runs of host `local` together with the server; needs no models, for `up` asks it too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def service(facts: Mapping[str, Any]) -> tuple[str, str] | None:
    """Nothing of hosts that a login reaches; of `local`, whether runs outlive the server's own service."""
    service = facts.get("service") or {}
    unit = service.get("unit") or ""
    if not unit.endswith(".service"):
        return None
    if not service["ends_runs"]:
        return "ok", f"Runs survive a restart of {unit}."
    if service["leaves"]:
        return "ok", f"Runs move from {unit} to their own scope, so they survive its restart."
    return "fail", (
        f"systemd ends all processes of {unit} when it stops or restarts (KillMode={service['kill_mode']}), "
        "including runs. Set KillMode=process in the unit and run `systemctl daemon-reload`."
    )
