"""`resources` and `bind_mounts`: what a job asks for."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from submissions.config.section import AbsolutePath, MemorySize, Section, refuse

PRIORITY_ALLOWED = "1 to 99, a whole number; 1 is the highest"
WEIGHT_ALLOWED = "a number above 0"


def _priority(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 99:
        raise refuse(PRIORITY_ALLOWED)
    return value


def _weight(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0:
        raise refuse(WEIGHT_ALLOWED)
    return value


_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"(?:(\d{1,9})d)?(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,9})s)?")
DURATION_ALLOWED = "seconds as a whole number above 0, or text such as 90s, 45m, 1h30m, 2d"


def _duration(value: Any) -> Any:
    """Text with units becomes seconds."""
    if isinstance(value, str) and (found := _DURATION.fullmatch(value.strip())):
        value = sum(int(count) * _UNITS[unit] for count, unit in zip(found.groups("0"), "dhms", strict=True))
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 2**31:
        raise refuse(DURATION_ALLOWED)
    return value


Duration = Annotated[int, BeforeValidator(_duration), Field(ge=1)]
Priority = Annotated[int, BeforeValidator(_priority), Field(ge=1, le=99)]
Weight = Annotated[float, BeforeValidator(_weight), Field(gt=0)]


def _device(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    parts = value.split(":")
    if not 2 <= len(parts) <= 3 or not all(parts):
        raise refuse("host_path:container_path[:mode], or a map of the three")
    return dict(zip(("host_path", "container_path", "mode"), parts, strict=False))


def _mount(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    parts = value.split(":")
    if not 2 <= len(parts) <= 3 or not all(parts) or (len(parts) == 3 and parts[2] not in ("ro", "rw")):
        raise refuse("host_path:container_path[:ro|rw], or a map with host_path and container_path")
    return {"host_path": parts[0], "container_path": parts[1], "read_only": parts[2:] == ["ro"]}


def _not_dot(value: Any) -> Any:
    if value in (".", ""):
        raise refuse("a path other than the working directory itself")
    return value


class Device(Section):
    host_path: AbsolutePath
    container_path: AbsolutePath
    mode: str = "mrw"


class BindMount(Section):
    host_path: AbsolutePath
    container_path: Annotated[str, BeforeValidator(_not_dot)]
    read_only: bool = False
    propagation: str = "rprivate"


BindMounts = list[Annotated[BindMount, BeforeValidator(_mount)]]


class Resources(Section):
    """What every kind of job may ask for, beside its number of slots."""

    weight: Weight = 1
    """Share in a fair-share pool, relative to the other jobs."""
    priority: Priority | None = None
    """1 (first) to 99; null takes the pool's default."""
    resource_pool: str = ""
    """Name of the pool; empty takes the default pool."""
    is_single_node: bool | None = None
    """True keeps the job on one host."""
    max_time: Duration | None = None
    """Trainmaster's own: seconds, or text such as 1h30m, that a trial or command may run, all its attempts together;
    null takes the pool's default."""
    shm_size: MemorySize | None = None
    devices: list[Annotated[Device, BeforeValidator(_device)]] = []
    native_parallel: bool = False
    agent_label: str = ""
