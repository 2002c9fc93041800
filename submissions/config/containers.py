"""The image in which a job asks to run, and what its container is to have: one part of the run spec."""

from __future__ import annotations

import re
from typing import Any

#: the images that Determined names in configs that name none: its own environment, which nobody asked for here
_OF_DETERMINED = re.compile(r"(?:(?:index\.)?docker\.io/)?determinedai/.+")
_SIZE = re.compile(r"([0-9.]+) ?([kmgtp]?)(i?)b?", re.IGNORECASE)


def container_of(config: dict[str, Any], slot_kind: str) -> dict[str, Any] | None:
    """The `container` of docs/protocol.md for slots of `slot_kind`, of an effective config; None without an image."""
    environment, resources = config.get("environment") or {}, config.get("resources") or {}
    image = image_of(environment, slot_kind)
    if image is None:
        return None
    return {
        "image": image,
        "force_pull": bool(environment.get("force_pull_image")),
        "registry_auth": environment.get("registry_auth") or None,
        "mounts": config.get("bind_mounts") or [],
        "devices": resources.get("devices") or [],
        "add_capabilities": environment.get("add_capabilities") or [],
        "drop_capabilities": environment.get("drop_capabilities") or [],
        "shm_size": bytes_of(resources.get("shm_size")),
    }


def image_of(environment: dict[str, Any], slot_kind: str) -> str | None:
    """The image that somebody chose; None without one, and for Determined's own."""
    images = environment.get("image") or {}
    image = images.get(slot_kind if slot_kind in ("cuda", "rocm") else "cpu")
    return None if not image or is_of_determined(image) else str(image)


def is_of_determined(image: str) -> bool:
    """Whether it is one of the environments that Determined makes."""
    return bool(_OF_DETERMINED.fullmatch(image))


def bytes_of(size: int | str | None) -> int | None:
    """A memory size as configs write it, in bytes by powers of 1024 (as Docker reads it); None without one."""
    if size is None or isinstance(size, int):
        return size
    found = _SIZE.fullmatch(size)
    return int(float(found[1]) * 1024 ** " kmgtp".index(found[2].lower() or " ")) if found else None
