"""Run a training off the cluster as it would run on it: with `determined` as a name of ours."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Dict, List, Mapping, NoReturn

_PACKAGE = Path(__file__).resolve().parent


def site_folder() -> Path:
    """A folder that is laid out like a host's bundle, and of nothing but links: our package and sitecustomize.py.

    The package's own parent would do, were it not `site-packages`, whose other contents belong to another Python.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "trainmaster" / f"site-{hashlib.sha256(str(_PACKAGE).encode()).hexdigest()[:12]}"
    folder.mkdir(parents=True, exist_ok=True)
    for name, target in (
        ("trainmaster", _PACKAGE),
        ("sitecustomize.py", _PACKAGE / "compat" / "sitecustomize.py"),
    ):
        try:
            (folder / name).symlink_to(target)
        except FileExistsError:
            continue
    return folder


def environment_for(inherited: Mapping[str, str]) -> Dict[str, str]:
    """`inherited`, with which every Python started from there finds `trainmaster` and `determined`."""
    folder = str(site_folder())
    others = [part for part in inherited.get("PYTHONPATH", "").split(os.pathsep) if part and part != folder]
    return {**inherited, "PYTHONPATH": os.pathsep.join([folder, *others])}


def run(command: List[str]) -> NoReturn:
    """Become `command`. OSError when it cannot be started."""
    os.execvpe(command[0], command, environment_for(os.environ))
