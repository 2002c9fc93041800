"""Ports of RDMA devices (InfiniBand, RoCE) and network cards as the kernel shows them in /sys."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Dict, List, Optional

from trainmaster.host.asking import text_of

_MOST = 64
Json = Dict[str, Any]


def ports(sys: Path = Path("/sys")) -> Dict[str, Json]:
    """{"mlx5_0/1": {"state", "layer", "rate" in Gbit/s, "link_downed", "symbol_error"}} of real devices.

    `layer` is `InfiniBand`, or `Ethernet` with RoCE. What is not told is left out.
    """
    found: Dict[str, Json] = {}
    for device in filter(_is_real, _entries(sys / "class/infiniband")):
        for port in _entries(device / "ports"):
            counters = {
                name: _number(text_of(port / "counters" / name)) for name in ("link_downed", "symbol_error")
            }
            told = {
                "state": state_of(text_of(port / "state")),
                "layer": text_of(port / "link_layer").strip(),
                "rate": _rate(text_of(port / "rate")),
                **counters,
            }
            found[f"{device.name}/{port.name}"] = _told(told)
    return dict(list(found.items())[:_MOST])


def cards(sys: Path = Path("/sys")) -> Dict[str, Json]:
    """{"eth0": {"state", "rate" in Mbit/s, "carrier_changes"}} of real cards."""
    found: Dict[str, Json] = {}
    for card in filter(_is_real, _entries(sys / "class/net")):
        told = {
            "state": text_of(card / "operstate").strip(),
            "rate": _number(text_of(card / "speed")),
            "carrier_changes": _number(text_of(card / "carrier_changes")),
        }
        found[card.name] = _told(told)
    return dict(list(found.items())[:_MOST])


def _is_real(entry: Path) -> bool:
    """Neither made by software nor a virtual function of a card."""
    return (entry / "device").exists() and not (entry / "device/physfn").exists()


def state_of(text: str) -> str:
    """`4: ACTIVE` as `ACTIVE`."""
    return text.rpartition(":")[2].strip()


def _rate(text: str) -> Optional[float]:
    """`200 Gb/sec (4X HDR)` as 200.0."""
    found = re.match(r"\s*(\d+(?:\.\d+)?)\s*Gb/sec", text)
    return float(found.group(1)) if found else None


def _number(text: str) -> Optional[int]:
    """The number in a text; None if there is none, or -1, which the kernel writes for a speed that it does not know."""
    word = text.strip()
    return int(word) if word.isdecimal() else None


def _told(values: Json) -> Json:
    return {name: value for name, value in values.items() if value not in (None, "")}


def _entries(folder: Path) -> List[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []
