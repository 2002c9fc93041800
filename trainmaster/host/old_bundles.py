"""Removes the bundles that upgrades have left behind: those that no run and no process uses any more.

The newest two stay in any case, and every one for a day. One that a server still wants is pushed again.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any, Dict, List, Optional, Set

from trainmaster.paths import Workdir

KEPT = 2
KEPT_SECONDS = 24 * 3600.0
#: by which the clock of the server may be ahead of the file server's
_CLOCKS_SECONDS = 3600.0
_OWN = Path(__file__).resolve().parents[2].name


def candidates(workdir: Workdir, jobs_since: Optional[float] = None) -> List[Path]:
    """Bundles that are old enough to go, and what was left of unpacking one, newest first.

    None while there is a job in Slurm that was made (`jobs_since`) before this bundle came: its script has another.
    """
    if not workdir.bundles.is_dir():
        return []
    if jobs_since is not None and workdir.bundle(_OWN).stat().st_mtime > jobs_since - _CLOCKS_SECONDS:
        return []
    made = {entry: entry.stat().st_mtime for entry in workdir.bundles.iterdir() if entry.is_dir()}
    whole = sorted((entry for entry in made if not entry.name.startswith(".")), key=lambda one: -made[one])
    torn = [entry for entry in made if entry.name.startswith(".")]
    oldest = time.time() - KEPT_SECONDS
    return [entry for entry in [*whole[KEPT:], *torn] if made[entry] < oldest and entry.name != _OWN]


def remove(workdir: Workdir, old: List[Path], runs: Dict[str, Any]) -> List[str]:
    """Names of those that were removed. `runs`: what `status` says of all runs here.

    A run that does not say which bundle it uses, since an older one started it or nobody could look, keeps all of them.
    """
    known = [run for run in runs.values() if run.get("state") in ("running", "ended")]
    if len(known) < len(runs) - _not_begun(runs) or any(not run.get("bundle") for run in known):
        return []
    used = {run["bundle"] for run in known} | _of_processes(workdir)
    return [entry.name for entry in old if entry.name not in used and _delete(entry)]


def _not_begun(runs: Dict[str, Any]) -> int:
    return sum(run.get("state") in ("absent", "incomplete") for run in runs.values())


def _of_processes(workdir: Workdir) -> Set[str]:
    """Names of bundles that stand in the command line of any process."""
    begin, found = os.fsencode(workdir.bundles) + b"/", set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            command = (entry / "cmdline").read_bytes()
        except OSError:  # it has ended meanwhile
            continue
        parts = command.split(begin)[1:]
        found |= {os.fsdecode(part.split(b"/")[0].split(b"\0")[0]) for part in parts}
    return found


def _delete(bundle: Path) -> bool:
    """The rename comes first: half a bundle never has the name of a whole one."""
    gone = bundle if bundle.name.startswith(".") else bundle.with_name(f".{bundle.name}.gone")
    try:
        if gone != bundle:
            shutil.rmtree(gone, ignore_errors=True)
            bundle.rename(gone)
        shutil.rmtree(gone)
    except OSError:
        return False
    return True
