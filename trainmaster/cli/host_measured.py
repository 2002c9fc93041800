"""What a host measured last, in words: beside each slot, and a line of the host itself."""

from __future__ import annotations

import time
from typing import Dict, List

from trainmaster.client import Json

#: older samples say nothing about now
SECONDS = 120.0
NAMES = (
    "gpu_util",
    "gpu_memory_used",
    "gpu_memory_free",
    "gpu_temperature",
    "cpu_util_simple",
    "memory_free",
)
_GIB = 1024**3


def newest(series: List[Json]) -> Dict[str, Dict[str, float]]:
    """Part (a GPU's UUID, empty for the host) -> name -> its newest value, of the series that the server gives."""
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


def of_host(series: List[Json], found: Dict[str, Dict[str, float]]) -> str:
    """`Measured 12 s ago: CPU 12 %, 1544.0 GiB of memory available`; a sentence where nothing was."""
    last = max((each["times"][-1] for each in series if each.get("times")), default=None)
    if last is None:
        return f"No measurements in the last {SECONDS:.0f} s."
    values, said = found.get("", {}), []
    if "cpu_util_simple" in values:
        said.append(f"CPU {values['cpu_util_simple']:.0f} %")
    if "memory_free" in values:
        said.append(f"{values['memory_free'] / _GIB:.1f} GiB of memory available")
    ago = max(0.0, time.time() - last)
    return f"Measured {ago:.0f} s ago" + (f": {', '.join(said)}" if said else "")
