"""Fields that Determined knows and that have no effect here, with the reason that is said at submission."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scheduling.reasons import listed
from submissions.config.containers import is_of_determined
from submissions.config.section import IGNORED

NOTHING_LIKE_IT = "Trainmaster has no equivalent"
_REASONS = {
    "environment.ports": "runs use their host's network and all of its ports",
    "environment.pod_spec": "there is no Kubernetes here",
    "resources.agent_label": "use pools instead; see resources.resource_pool",
    "resources.native_parallel": "the entrypoint determines how ranks are started",
}
#: what only the container of an image has
_OF_CONTAINERS = {
    "environment.force_pull_image": "no image is pulled",
    "environment.registry_auth": "no image is pulled",
    "environment.add_capabilities": "runs have their account's capabilities",
    "environment.drop_capabilities": "runs have their account's capabilities",
    "resources.devices": "runs use their host directly and see each device at its host_path",
    "resources.shm_size": "runs can use all of their host's shared memory",
}


def remarks(config: Any, own: Mapping[str, str]) -> list[str]:
    """A sentence for each that is set: those of every kind of job, the kind's `own`, and its `Ignored` fields."""
    ignored = [name for name, field in type(config).model_fields.items() if field.description == IGNORED]
    reasons = {**_REASONS, **own, **dict.fromkeys(ignored, NOTHING_LIKE_IT)}
    found = [f"{path} has no effect: {reason}." for path, reason in reasons.items() if _is_set(config, path)]
    return [*_of_image(config), *found]


def _of_image(config: Any) -> list[str]:
    """Name settings of the image, and of what only its container has."""
    image = config.environment.image
    images = [name for name in (image.model_dump().values() if image else ()) if name]
    if any(not is_of_determined(name) for name in images):
        also = [
            path for path in _OF_CONTAINERS if path != "environment.registry_auth" and _is_set(config, path)
        ]
        verb = "have" if also else "has"
        return [
            f"{listed(['environment.image', *also], len(also) + 1)} {verb} no effect on hosts without podman, docker "
            "or apptainer: runs there have no container."
        ]
    found = [
        f"environment.image has no effect: {name} is one of Determined's own environments. Runs use the environment of "
        "their host, set by environment.python or environment.activate."
        for name in images[:1]
    ]
    return found + [
        f"{path} has no effect unless environment.image names your own image: {reason}."
        for path, reason in _OF_CONTAINERS.items()
        if _is_set(config, path)
    ]


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
