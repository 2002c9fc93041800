"""Fields that Determined knows and that have no effect on hosts without containers."""

from __future__ import annotations

from typing import Any

_PATHS = (
    "environment.image", "environment.pod_spec", "bind_mounts", "resources.devices", "resources.shm_size",
    "resources.agent_label",
)  # fmt: skip


def remarks(config: Any, ignored: tuple[str, ...]) -> list[str]:
    """A sentence for each that is set: those that every kind of job has, and the kind's own `ignored` ones."""
    return [
        f"{path} has no effect: runs use the host directly, without a container."
        for path in (*_PATHS, *ignored)
        if _value(config, path)
    ]


def _value(config: Any, path: str) -> Any:
    for name in path.split("."):
        config = getattr(config, name)
    return config
