"""Whether a host can run images, by what the doctor found there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def usable_runtimes(facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Those of podman, docker and apptainer that the host can run images by; none of a host not asked yet."""
    runtimes = (facts.get("containers") or {}).get("runtimes") or []
    return [runtime for runtime in runtimes if runtime["problem"] is None]
