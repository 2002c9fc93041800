"""What a job will not find on the hosts of its pool, said at submission: by what the doctor knows of them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from hosts.login_accounts import unix_user
from hosts.models import Host, ResourcePool
from hosts.states import Admission
from scheduling.reasons import listed
from submissions import contexts
from submissions.config.containers import image_of
from submissions.models import Context
from trainmaster.runner.own_view import SHARED_FS, WORKDIR, binds_of

#: more than this is not looked through while somebody waits for the answer
CODE_BYTES = 32 * 1024 * 1024
FILE_BYTES = 1024 * 1024
_CODE = "the working directory"
_SLOT_KINDS = ("cpu", "cuda", "rocm")


def remarks(config: dict[str, Any], context: Context | None, pool: ResourcePool, linked: str) -> list[str]:
    """Sentences about an effective config and its code; `linked` is the account of its owner, empty without one."""
    environment = config.get("environment") or {}
    if any(image_of(environment, kind) for kind in _SLOT_KINDS):
        return []  # the container has all of it
    hosts = Host.objects.filter(pool=pool).exclude(admission=Admission.REMOVED).order_by("name")
    rows = list(hosts.values_list("name", "facts__view", "facts__account"))
    return list(_without_view(config, _texts(config, context), rows, unix_user(pool, linked)))


def _without_view(
    config: dict[str, Any], texts: list[bytes], hosts: list[tuple[str, Any, Any]], account: str | None
) -> Iterator[str]:
    lacking: dict[str, list[str]] = defaultdict(list)
    for name, view, login in hosts:
        is_other = account is not None and account != (login or {}).get("name")
        if reason := (view or {}).get("account" if is_other else "login"):
            lacking[reason].append(name)
    places = [f"{target} (use {source})" for target, source in _mounted(config, texts).items()]
    for reason, names in lacking.items() if places else ():
        yield (
            f"No mount namespace for runs on {listed(names)}: {reason}. So these paths are not there: "
            f"{listed(places, len(places))}. The host doctor (view) says what to allow."
        )


def _mounted(config: dict[str, Any], texts: list[bytes]) -> dict[str, str]:
    """What the run expects where, and what it is on the host; the rest of a view nobody would miss."""
    storage = config.get("checkpoint_storage") or {"type": "server"}
    spec: Any = {"checkpoint_storage": storage, "mounts": config.get("bind_mounts")}
    found = {bind.target.replace(_CODE, WORKDIR): bind.source for bind in binds_of(spec, _CODE)}
    return {
        target: source
        for target, source in found.items()
        if target not in (WORKDIR, SHARED_FS) or any(target.encode() in text for text in texts)
    }


def _texts(config: dict[str, Any], context: Context | None) -> list[bytes]:
    """The config and the files of the code, as far as they are looked through."""
    found = [json.dumps(config).encode()]
    if context is not None and context.size_bytes <= CODE_BYTES:
        found += [content for _, content in contexts.files_of(context) if len(content) <= FILE_BYTES]
    return found
