"""What a run without a container sees of its host, as a container of Determined's would show it.

`bind_mounts` at their `container_path`, the code at /run/determined/workdir, a shared checkpoint storage at
/determined_shared_fs: mounts in a namespace of the run, of which nothing is seen or left outside. Where the host allows
none, the run does without, and its log says what is not there.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import List, NamedTuple, Optional, Set

from trainmaster.paths import RunPaths
from trainmaster.protocol import Spec
from trainmaster.runner import mount_namespace

WORKDIR = "/run/determined/workdir"
SHARED_FS = "/determined_shared_fs"
_RUN = "/run"
#: what the host may have of this name in /run belongs to an agent of Determined's
_DETERMINED = "determined"
_NAMES = (b"/run/determined", SHARED_FS.encode())
_TEXT_BYTES = 1024 * 1024
_FILES = 10_000


class Bind(NamedTuple):
    """`source` of the host is shown at `target`."""

    source: str
    target: str
    read_only: bool = False


class View(NamedTuple):
    """What one run is to see; its launcher plans it, its entrypoint takes it between fork and exec."""

    paths: RunPaths
    spec: Spec
    binds: List[Bind]
    #: folders without which nothing of the run could start
    kept: List[str]

    def take(self) -> None:
        """Whatever goes wrong is said on stderr, which is the run's log."""
        try:
            mount_namespace.enter()
            self._mount()
        except OSError as error:
            if _is_needed(self.paths, self.spec, self.binds):
                targets = ", ".join(sorted(bind.target for bind in self.binds))
                self._warn(f"has no view of its own ({error.strerror}), so {targets} cannot be mounted there")

    def _mount(self) -> None:
        above = {bind.target: _above(bind.target) for bind in self.binds}
        if "/" in above.values():
            mount_namespace.cover_root(str(self.paths.view))
        mount_namespace.cover(_RUN, without=[_DETERMINED])
        os.chdir(self.paths.code)
        covered = {"/", _RUN}
        for bind in self.binds:
            try:
                self._show(bind, covered)
            except OSError as error:
                self._warn(f"cannot show {bind.source} at {bind.target}: {error.strerror}")
        os.chdir(self.paths.code)  # again: it may have got mounts

    def _show(self, bind: Bind, covered: Set[str]) -> None:
        if not os.path.lexists(bind.source):
            self._warn(f"has no {bind.source}, so {self._as_configured(bind.target)} is not there")
            return
        hidden = [kept for kept in self.kept if f"{kept}/".startswith(f"{bind.target}/")]
        if hidden:
            self._warn(
                f"does not show {bind.source} at {bind.target}: that would hide {hidden[0]} from the run"
            )
            return
        above, target = _above(bind.target), Path(bind.target)
        if above != bind.target and above not in covered and not os.access(above, os.W_OK):
            mount_namespace.cover(above)
            covered.add(above)
        if Path(bind.source).is_dir():
            target.mkdir(parents=True, exist_ok=True)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.touch()
        mount_namespace.bind(bind.source, bind.target, bind.read_only)

    def _as_configured(self, target: str) -> str:
        """What is in the code, as configs name it."""
        code = str(self.paths.code)
        return WORKDIR + target[len(code) :] if f"{target}/".startswith(f"{code}/") else target

    def _warn(self, text: str) -> None:
        line = f"WARNING: trainmaster: host {self.spec['host']['name']} {text}.\n"
        os.write(2, line.encode("utf-8", "surrogateescape"))


def planned(paths: RunPaths, spec: Spec, bundle: str) -> Optional[View]:
    """The view of a run; None where it has a container, or does as well without one.

    In a user namespace sudo does not work, and files of others belong to nobody: so only root always has a view.
    """
    binds = binds_of(spec, str(paths.code))
    if spec.get("container") is not None or not (os.geteuid() == 0 or _is_needed(paths, spec, binds)):
        return None
    with contextlib.suppress(OSError):
        paths.view.mkdir(exist_ok=True)
    python = os.path.dirname(spec["python"] or "")  # noqa: PTH120
    return View(paths, spec, binds, [str(paths.root), bundle, *([python] if python else [])])


def binds_of(spec: Spec, code: str) -> List[Bind]:
    """What is shown where, in the order in which it is mounted: what is in the code before the code."""
    storage = spec["checkpoint_storage"]
    found = [
        Bind(mount["host_path"], _placed(mount["container_path"], code), mount["read_only"])
        for mount in spec.get("mounts") or []
    ]
    if storage.get("type") == "shared_fs":
        found.append(Bind(str(storage["host_path"]), SHARED_FS))
    found = [bind for bind in found if bind.read_only or os.path.normpath(bind.source) != bind.target]
    return [*sorted(found, key=lambda bind: bind.target.count("/")), Bind(code, WORKDIR)]


def is_taken(code: Path) -> bool:
    """Whether this process is in the view of the run with this code."""
    try:
        return os.path.samefile(WORKDIR, code)  # noqa: PTH121
    except OSError:
        return False


def _placed(container_path: str, code: str) -> str:
    """Where a mount goes: a relative path, and one in the working directory, is in the code."""
    path = os.path.normpath(os.path.join(WORKDIR, container_path))  # noqa: PTH118
    return code + path[len(WORKDIR) :] if f"{path}/".startswith(f"{WORKDIR}/") else path


def _is_needed(paths: RunPaths, spec: Spec, binds: List[Bind]) -> bool:
    """Whether it has mounts of its config, or names one of the folders that only a view has."""
    if spec["environment"].get("TRAINMASTER_SDK") == "installed":
        return True
    if any(bind.target not in (WORKDIR, SHARED_FS) for bind in binds):
        return True
    return _names_one(json.dumps(spec).encode()) or any(
        _names_one(_text(path)) for path in _files(paths.code)
    )


def _names_one(text: bytes) -> bool:
    return any(name in text for name in _NAMES)


def _files(code: Path) -> List[Path]:
    found: List[Path] = []
    for folder, _, names in os.walk(code):
        found += [Path(folder, name) for name in names]
        if len(found) >= _FILES:
            break
    return found[:_FILES]


def _text(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_TEXT_BYTES)
    except OSError:
        return b""


def _above(target: str) -> str:
    """The path itself, or the nearest one above it that is there."""
    while not os.path.lexists(target):
        target = os.path.dirname(target)  # noqa: PTH120
    return target
