"""Fetching an image: how far it is, how to log in, and why it was refused."""

from __future__ import annotations

import base64
import json
import os
import re
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Set

_HUB = "https://index.docker.io/v1/"
_DOCKER_LINE = re.compile(r"^([0-9a-f]{6,64}): (.+)$")
_PODMAN_LINE = re.compile(r"^Copying (?:blob|config) (?:sha256:)?([0-9a-f]{6,64})(.*)$")
_WORDS_KEPT = 3


class Progress:
    """Reads what `podman pull` or `docker pull` prints without a terminal, line by line."""

    def __init__(self, image: str) -> None:
        self.image = image
        self._layers: Set[str] = set()
        self._done: Set[str] = set()
        self._last: List[str] = []

    def take(self, line: str) -> Optional[str]:
        """A sentence where the line is a step on, None otherwise."""
        text = line.strip()
        if not text:
            return None
        self._last = [*self._last, text][-_WORDS_KEPT:]
        docker, podman = _DOCKER_LINE.match(text), _PODMAN_LINE.match(text)
        if docker:
            return self._docker(docker.group(1), docker.group(2))
        if podman:
            return self._podman(podman.group(1))
        return None

    def fault(self) -> str:
        """The last words, for a pull that failed."""
        return " / ".join(self._last) or "it printed nothing"

    def _docker(self, layer: str, what: str) -> Optional[str]:
        self._layers.add(layer)
        if what not in ("Pull complete", "Already exists") or layer in self._done:
            return None
        self._done.add(layer)
        return f"pulling image {self.image}: {len(self._done)} of {len(self._layers)} layers"

    def _podman(self, blob: str) -> Optional[str]:
        """podman names a blob when it begins with it, and never says how many there will be."""
        if blob in self._layers:
            return None
        self._layers.add(blob)
        return f"pulling image {self.image}: at part {len(self._layers)}"


def registry_of(image: str) -> str:
    """The registry in an image's name as login files have it; Docker Hub's without one."""
    name = re.sub(r"^\w+://", "", image)
    first, slash, _ = name.partition("/")
    named = bool(slash) and ("." in first or ":" in first or first == "localhost")
    return first if named and first not in ("docker.io", "index.docker.io") else _HUB


def auth_file(image: str, login: Mapping[str, Any]) -> Dict[str, Any]:
    """The content of a login file, as docker and podman read it, of a config's registry_auth."""
    auth = login.get("auth") or base64.b64encode(
        f"{login.get('username') or ''}:{login.get('password') or ''}".encode()
    ).decode("ascii")
    entry: Dict[str, Any] = {"auth": auth}
    if login.get("identitytoken"):
        entry["identitytoken"] = login["identitytoken"]
    if login.get("registrytoken"):
        entry = {"registrytoken": login["registrytoken"]}
    registry = registry_of(image) if not login.get("serveraddress") else _bare(str(login["serveraddress"]))
    names = {registry, "docker.io"} if registry == _HUB else {registry}
    return {"auths": dict.fromkeys(sorted(names), entry)}


def write_auth(folder: Path, image: str, login: Mapping[str, Any]) -> Path:
    """config.json in `folder`, readable by the job's account alone; whoever wrote it removes it."""
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / "config.json"
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(auth_file(image, login), file)
    return path


def apptainer_login(login: Mapping[str, Any]) -> Dict[str, str]:
    """Variables for the pull alone."""
    if not login.get("username"):
        return {}
    return {
        "APPTAINER_DOCKER_USERNAME": str(login["username"]),
        "APPTAINER_DOCKER_PASSWORD": str(login.get("password") or ""),
    }


def _bare(address: str) -> str:
    """Docker's own configs have an address with a scheme for Docker Hub only."""
    if "docker.io" in address:
        return _HUB
    return re.sub(r"^https?://", "", address).rstrip("/").partition("/")[0]
