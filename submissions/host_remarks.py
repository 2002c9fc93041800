"""What a job will not find on the hosts of its pool, said at submission: by what the doctor knows of them."""

from __future__ import annotations

import json
import posixpath
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from django.conf import settings

import trainmaster
from hosts.login_accounts import unix_user
from hosts.models import Host, ResourcePool
from hosts.runtimes import usable_runtimes
from hosts.states import Admission
from scheduling.reasons import listed
from submissions import contexts
from submissions.config.containers import image_of
from submissions.imports import imported
from submissions.models import Context
from trainmaster.compat import ALIAS, absent
from trainmaster.image_packages import PACKAGES
from trainmaster.runner.keeper import STARTUP_HOOK
from trainmaster.runner.own_view import SHARED_FS, WORKDIR, binds_of

Files = dict[str, bytes]
#: more than this is not looked through while somebody waits for the answer
CODE_BYTES = 8 * 1024 * 1024
FILE_BYTES = 1024 * 1024
_CODE = "the working directory"
#: our modules, which runs import as Determined's
_OWN = Path(trainmaster.__file__).parent
_INSTALLS = re.compile(r"\b(pip3?|uv|conda|mamba|micromamba|poetry)\b[^\n;&|]*?\b(install|sync|add)\b")
#: an environment or a folder of the run's own
_OWN_PLACE = re.compile(
    r"\b(venv|virtualenv)\b|\b(conda|mamba|micromamba) create\b|--target\b|--prefix\b|--user\b| -t "
)
_SLOT_KINDS = ("cpu", "cuda", "rocm")


def remarks(config: dict[str, Any], context: Context | None, pool: ResourcePool, linked: str) -> list[str]:
    """Sentences about an effective config and its code; `linked` is the account of its owner, empty without one."""
    environment, files = config.get("environment") or {}, _files(context)
    lacking = [] if environment.get("sdk") == "installed" else list(_absent_names(files))
    if config.get("slurm") and not pool.slurm:
        lacking.append(f"slurm has no effect: resource pool {pool.name} is not a Slurm cluster.")
    if fault := _refused_there(pool, linked):
        lacking.append(fault)
    hosts = list(
        Host.objects.filter(pool=pool)
        .exclude(admission=Admission.REMOVED)
        .order_by("name")
        .values(
            "name",
            "python",
            "activate",
            "facts__view",
            "facts__account",
            "facts__interpreters",
            "facts__containers",
        )
    )
    if any(image_of(environment, kind) for kind in _SLOT_KINDS):
        hosts = [host for host in hosts if not _runs_images(host)]
        if not hosts:
            return lacking  # the container has all of the rest
    return [
        *lacking,
        *_without_view(config, files, hosts, unix_user(pool, linked)),
        *_without_packages(environment, files, hosts),
        *_shared_installs(environment, files),
    ]


def _refused_there(pool: ResourcePool, linked: str) -> str:
    """What the doctor of a Slurm pool found when it tried the account of the owner, as a sentence; empty: nothing."""
    if not pool.slurm or (account := unix_user(pool, linked)) is None:
        return ""
    logins = Host.objects.filter(pool=pool, transport=Host.Transport.LOGIN).exclude(
        admission=Admission.REMOVED
    )
    for name, people in logins.values_list("name", "facts__people"):
        if fault := (people or {}).get(account):
            return (
                f"The account {account} could not hand jobs to Slurm when the doctor of {name} last looked. "
                f"This one waits until it can: {fault}"
            )
    return ""


def _runs_images(host: Mapping[str, Any]) -> bool:
    return settings.RUN_IMAGES and bool(usable_runtimes({"containers": host["facts__containers"]}))


def _absent_names(files: Files) -> Iterator[str]:
    """Say what is imported of Determined's package that runs have only of the published one."""
    found: dict[str, list[str]] = defaultdict(list)
    for name in sorted(imported(files, never_own=ALIAS)):
        if (missing := _first_missing(name)) and (said := absent.sentence(missing)):
            names = found[said]
            names += [missing] if missing not in names else []
    for said, names in found.items():
        yield f"The code imports {listed(names, len(names))}, which runs do not have here. {said}"


def _first_missing(name: str) -> str | None:
    """The first part of a dotted name of Determined that none of our modules has; None where one may define it."""
    parts = name.split(".")
    place = _OWN if parts[0] == ALIAS else None
    for count, part in enumerate(parts[1:], 2):
        if place is None or not place.is_dir():
            return None
        below = place / part
        place = below if below.is_dir() else below.with_suffix(".py")
        if not place.exists():
            return ".".join(parts[:count])
    return None


def _without_view(
    config: dict[str, Any], files: Files, hosts: Sequence[Mapping[str, Any]], account: str | None
) -> Iterator[str]:
    lacking: dict[str, list[str]] = defaultdict(list)
    for host in hosts:
        login, view = host["facts__account"] or {}, host["facts__view"] or {}
        is_other = account is not None and account != login.get("name")
        if reason := view.get("account" if is_other else "login"):
            lacking[reason].append(host["name"])
    if not lacking:
        return
    mounted = _mounted(config, [json.dumps(config).encode(), *files.values()])
    places = [f"{target} (use {source})" for target, source in mounted.items()]
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


def _without_packages(
    environment: dict[str, Any], files: Files, hosts: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    """Say what is imported of Determined's images and lacking, where the Python is known and nothing is installed."""
    if environment.get("activate") or _installs(environment, files):
        return
    wanted = [name for name in PACKAGES if any(_is_of(each, name) for each in imported(files))]
    lacking: dict[tuple[str, str], list[str]] = defaultdict(list)
    for host in hosts:
        python = environment.get("python") or ("" if host["activate"] else host["python"])
        lacks = {
            PACKAGES[name] for name in wanted if name in _lacks(python, host["facts__interpreters"] or [])
        }
        if lacks:
            lacking[python, " ".join(sorted(lacks, key=str.lower))].append(host["name"])
    for (python, packages), names in lacking.items():
        yield (
            f"The code imports packages that {python} on {listed(names)} lacks: "
            f"{listed(packages.split(' '), len(PACKAGES))}. Determined's images had them. Run `{python} -m pip install "
            f"{packages}` there, or choose another Python with environment.python or environment.activate."
        )


def _lacks(python: str, interpreters: Sequence[Mapping[str, Any]]) -> Sequence[str]:
    """What the doctor found to be lacking; an environment has its one interpreter under several names."""
    for found in ([one for one in interpreters if one["path"] == python], _beside(python, interpreters)):
        if len(found) == 1:
            return found[0].get("lacks") or []
    return []


def _beside(python: str, interpreters: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    folder = posixpath.dirname(python)
    return [one for one in interpreters if posixpath.dirname(one["path"]) == folder]


def _is_of(imported_name: str, module: str) -> bool:
    return f"{imported_name}.".startswith(f"{module}.")


def _hooks(environment: dict[str, Any], files: Files) -> dict[str, str]:
    """What runs before the entrypoint, by what people call it."""
    pre = (environment.get("hooks") or {}).get("pre") or ""
    own = pre if isinstance(pre, str) else " ".join(map(str, pre))
    return {STARTUP_HOOK: files.get(STARTUP_HOOK, b"").decode(errors="replace"), "The pre hook": own}


def _installs(environment: dict[str, Any], files: Files) -> bool:
    """Whether a hook may bring packages, of which nothing is known here."""
    return any("install" in text for text in _hooks(environment, files).values())


def _shared_installs(environment: dict[str, Any], files: Files) -> Iterator[str]:
    """In a container, which is the run's own, a hook that installs harms nobody; here others use the same Python."""
    for name, text in _hooks(environment, files).items():
        if _INSTALLS.search(text) and not _OWN_PLACE.search(text):
            yield (
                f"{name} installs packages into a Python that other jobs on the host use as well: two that install at "
                "once, or need different versions, break each other. Prepare an environment once and select it with "
                "environment.activate, or install into a folder of the run: `pip install --target packages …`, and put "
                "that folder on PYTHONPATH."
            )


def _files(context: Context | None) -> Files:
    """The files of the code, as far as they are looked through."""
    if context is None or context.size_bytes > CODE_BYTES:
        return {}
    return {path: content for path, content in contexts.files_of(context) if len(content) <= FILE_BYTES}
