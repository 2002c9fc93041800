"""`resources` and `bind_mounts`: what a job asks for."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

from scheduling.written_times import DEADLINE_ALLOWED, deadline_in, seconds_in
from submissions.config.section import AbsolutePath, MemorySize, Name, Section, refuse, whole

PRIORITY_ALLOWED = "a whole number from 1 (highest) to 99"
WEIGHT_ALLOWED = "a number greater than 0"


def _priority(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 99:
        raise refuse(PRIORITY_ALLOWED)
    return value


def _weight(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0:
        raise refuse(WEIGHT_ALLOWED)
    return value


DURATION_ALLOWED = "a whole number of seconds greater than 0, or text such as 90s, 45m, 1h30m, 2d"


def _duration(value: Any) -> Any:
    """Text with units becomes seconds."""
    if isinstance(value, str) and (seconds := seconds_in(value)) is not None:
        value = seconds
    value = whole(value)
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


def _deadline(value: Any) -> Any:
    """A duration becomes seconds; a time gets its zone, which is UTC if it has none."""
    try:
        return deadline_in(value)
    except ValueError:
        raise refuse(DEADLINE_ALLOWED) from None


_TIME_TEXT = r"^\s*\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?)?\s*$"
Deadline = Annotated[
    int | str,
    BeforeValidator(
        _deadline,
        json_schema_input_type=Annotated[int, Field(ge=1, lt=2**31)]
        | Annotated[str, WithJsonSchema({"type": "string", "pattern": f"{_DURATION_TEXT}|{_TIME_TEXT}"})],
    ),
]
Priority = Annotated[int, Field(ge=1, le=99), BeforeValidator(_priority)]
Weight = Annotated[float, Field(gt=0), BeforeValidator(_weight)]


def _one_or_more(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Hosts = Annotated[list[Name], BeforeValidator(_one_or_more, json_schema_input_type=Name | list[Name])]


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
    """A host device to expose in a container; can also be written host_path:container_path[:mode]."""

    host_path: AbsolutePath
    """The device on the host."""
    container_path: AbsolutePath
    """Its path in the container."""
    mode: str = "mrw"
    """Permissions: m (make nodes), r (read), w (write)."""


class BindMount(Section):
    """A host path to show elsewhere; can also be written host_path:container_path[:ro|rw]."""

    host_path: AbsolutePath
    """The path on the host."""
    container_path: Annotated[
        str,
        BeforeValidator(_not_dot, json_schema_input_type=Annotated[str, Field(pattern=r"^([^.]|\..)")]),
    ]
    """Where the run sees it; a relative path is below the working directory."""
    read_only: bool = False
    """True makes it read-only."""
    propagation: str = "rprivate"
    """Mount propagation between host and container, as in mount(8)."""


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
    """Share of a fair-share pool, relative to other jobs; greater than 0."""
    priority: Priority | None = None
    """1 (first) to 99; null uses the pool's default."""
    resource_pool: str = ""
    """Name of the pool; empty uses the default pool."""
    hosts: Hosts = []
    """Trainmaster extension: names of hosts of the pool, or one name; the job runs on these hosts only. Empty allows
    every host."""
    is_single_node: bool | None = None
    """True keeps a trial on one host: it waits until one has enough free slots; refused if none is that large."""
    max_time: Duration | None = None
    """Trainmaster extension: seconds, or text such as 1h30m, that a trial or command may run, all attempts together;
    null takes the pool's default."""
    deadline: Deadline | None = None
    """Trainmaster extension: when the job should have ended, a date and time (UTC unless it says otherwise) or a
    duration from the submission, such as 8h. It goes ahead in the queue as far as that needs."""
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
    """Host devices to expose in a container."""
    native_parallel: bool = False
    """Obsolete, no effect."""
    agent_label: str = ""
    """Obsolete, no effect: use pools instead."""
