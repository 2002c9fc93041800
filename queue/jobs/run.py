"""What an attempt has to run: the part of a run spec that comes from the job's own room."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class RunSpec:
    """The parts of spec.json that depend on the kind of job, and the code. `trial` is None for other tasks."""

    entrypoint: str | list[str]
    environment: dict[str, str]
    python: str
    activate: str
    user_data: dict[str, Any]
    checkpoint_storage: dict[str, Any]
    trial: dict[str, Any] | None
    code: bytes
    #: from one sample of its hosts to the next; None takes the server's setting
    sample_seconds: float | None = None
    #: who submitted the job
    user: str = ""
    #: commands before and after the entrypoint: {"pre", "post", "timeout_seconds"}
    hooks: dict[str, Any] | None = None
    #: the image to run in and what its container has (docs/protocol.md); None runs on the host directly
    container: dict[str, Any] | None = None
    #: what is to be seen of a host where there is no container: {"host_path", "container_path", "read_only", …}
    mounts: Sequence[dict[str, Any]] = ()
    #: sentences with which its log begins
    remarks: Sequence[str] = ()
    #: the network interface between its hosts; empty takes the pool's
    interface: str = ""
