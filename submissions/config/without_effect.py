"""Fields that Determined knows and that have no effect here, with the reason that is said at submission."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_NO_CONTAINER = "on hosts without podman, docker or apptainer: runs use those directly, without a container"
_NOTHING_LIKE_IT = "Trainmaster has nothing of the kind"
_REASONS = {
    "environment.image": _NO_CONTAINER,
    "environment.force_pull_image": _NO_CONTAINER,
    "environment.registry_auth": _NO_CONTAINER,
    "environment.add_capabilities": _NO_CONTAINER,
    "environment.drop_capabilities": _NO_CONTAINER,
    "environment.ports": "runs use the network of their host, with all of its ports",
    "environment.pod_spec": "there is no Kubernetes here",
    "bind_mounts": _NO_CONTAINER,
    "resources.devices": _NO_CONTAINER,
    "resources.shm_size": _NO_CONTAINER,
    "resources.agent_label": "pools and their hosts took its place; see resources.resource_pool",
    "resources.native_parallel": "the entrypoint says how ranks are started",
}


def remarks(config: Any, own: Mapping[str, str] | tuple[str, ...] = ()) -> list[str]:
    """A sentence for each that is set: those that every kind of job has, and the kind's `own`, with their reasons."""
    reasons = {**_REASONS, **(own if isinstance(own, Mapping) else dict.fromkeys(own, _NOTHING_LIKE_IT))}
    return [_sentence(path, reason) for path, reason in reasons.items() if _is_set(config, path)]


def _sentence(path: str, reason: str) -> str:
    if reason is _NO_CONTAINER:
        return f"{path} has no effect {reason}."
    return f"{path} has no effect: {reason}."


def _is_set(config: Any, path: str) -> bool:
    """Whether there is something at `path` that differs from the default."""
    *sections, name = path.split(".")
    for section in sections:
        config = getattr(config, section, None)
    field = type(config).model_fields.get(name) if config is not None else None
    if field is None or field.is_required():
        return False
    value = getattr(config, name)
    return bool(value) and value != field.get_default()
