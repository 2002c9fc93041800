"""`resources` and `bind_mounts`: what a job asks for."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

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


_DURATION_TEXT = r"^\s*(?=\d)(\d{1,9}d)?(\d{1,9}h)?(\d{1,9}m)?(\d{1,9}s)?\s*$"
Duration = Annotated[
    int,
    BeforeValidator(
        _duration,
        json_schema_input_type=Annotated[int, Field(ge=1, lt=2**31)]
        | Annotated[str, WithJsonSchema({"type": "string", "pattern": _DURATION_TEXT})],
    ),
    Field(ge=1),
]
Priority = Annotated[int, Field(ge=1, le=99), BeforeValidator(_priority)]
Weight = Annotated[float, Field(gt=0), BeforeValidator(_weight)]


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
    """A device of the host inside a container; the text host_path:container_path[:mode] says the same."""

    host_path: AbsolutePath
    """The device on the host."""
    container_path: AbsolutePath
    """Where it is inside the container."""
    mode: str = "mrw"
    """What may be done with it: m (make nodes), r (read), w (write)."""


class BindMount(Section):
    """A path of the host inside a container; the text host_path:container_path[:ro|rw] says the same."""

    host_path: AbsolutePath
    """The path on the host."""
    container_path: Annotated[
        str,
        BeforeValidator(_not_dot, json_schema_input_type=Annotated[str, Field(pattern=r"^([^.]|\..)")]),
    ]
    """Where it is inside the container; a relative path is below the working directory."""
    read_only: bool = False
    """True forbids writing to it."""
    propagation: str = "rprivate"
    """How mounts below it pass between host and container, as mount(8) calls it."""


Mount = Annotated[
    BindMount,
    BeforeValidator(
        _mount, json_schema_input_type=Annotated[str, Field(pattern=r"^/[^:]*:[^:]+(:ro|:rw)?$")] | BindMount
    ),
]
BindMounts = list[Mount]


class Resources(Section):
    """What every kind of job may ask for, beside its number of slots."""

    weight: Weight = 1
    """Share of a fair-share pool, relative to the other jobs; above 0."""
    priority: Priority | None = None
    """1 (first) to 99; null takes the pool's default."""
    resource_pool: str = ""
    """Name of the pool; empty takes the default pool."""
    is_single_node: bool | None = None
    """True keeps a trial on one host, and it waits until one is free enough."""
    max_time: Duration | None = None
    """Trainmaster's own: seconds, or text such as 1h30m, that a trial or command may run, all its attempts together;
    null takes the pool's default."""
    shm_size: MemorySize | None = None
    """Shared memory of a container: bytes, or text such as 4g or 512m."""
    devices: list[
        Annotated[
            Device,
            BeforeValidator(
                _device,
                json_schema_input_type=Annotated[str, Field(pattern=r"^/[^:]*:/[^:]*(:[^:]+)?$")] | Device,
            ),
        ]
    ] = []
    """Devices of the host inside a container."""
    native_parallel: bool = False
    """Of older configs, without effect."""
    agent_label: str = ""
    """Of older configs, without effect: pools and their hosts took its place."""
