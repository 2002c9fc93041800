"""`revoke`: a launch that the server gives up can never start, however late it comes; or it has begun already."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any, Dict, Optional

from trainmaster.host import launch_lock
from trainmaster.host.accounts import account, by_sudo, is_other, uid_of, under
from trainmaster.host.launching import check_mounted, let_others_in, make_workdir
from trainmaster.paths import Workdir
from trainmaster.processes import boot_id, kill, marked, of_account
from trainmaster.protocol import KEEPER_MARKER, check_run_key

_END_SECONDS = 10.0
_POLL_SECONDS = 0.02


def revoke(request: Dict[str, Any], workdir: Workdir) -> Dict[str, Any]:
    """Answer {"run_key", "boot_id", "state"} for {"run_key", "unix_user"}, with "elsewhere" for one of a Slurm job.

    `revoked`: no launch of the run starts anything from now on. `begun`: its launcher has written state.json, or
    processes of it live, so it goes the way of every run. `starting`: a process that launches it does not end although
    it was killed; ask again.
    """
    key = check_run_key(str(request.get("run_key")))
    user: Optional[str] = request.get("unix_user")
    owner = os.getuid() if user is None else uid_of(user)
    if owner is None:  # so none of its launches can have come far, nor can one
        user = None
    check_mounted(request, workdir)
    make_workdir(workdir)
    if user is not None and is_other(user) and os.getuid() != 0:
        let_others_in(workdir, elsewhere=bool(request.get("elsewhere")))
        return by_sudo(account(user), "revoke", request, workdir)
    _mark(workdir.run(key).revoked)
    return {"run_key": key, "boot_id": boot_id(), "state": _state(workdir, key, user, owner)}


def _mark(path: Path) -> None:
    """Seen by every launch that comes later, and by the launcher before it begins."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _state(workdir: Workdir, key: str, user: Optional[str], owner: Optional[int]) -> str:
    """`owner`: whose folder is the run's; None: its account is gone."""
    paths, until, ended = workdir.run(key), time.monotonic() + _END_SECONDS, False
    uid = None if user is None else owner

    def begun() -> Dict[str, Any]:
        return {"begun": paths.state.exists() and owner in (None, paths.root.lstat().st_uid)}

    while time.monotonic() < until:
        lock = launch_lock.take(workdir.lock(key), 0.0)
        try:
            ranks = of_account(marked().get(key, []), uid)
            if not ended and (ranks or under(user, begun)["begun"]):
                return "begun"
            keepers = of_account(marked(KEEPER_MARKER).get(key, []), uid)
            ours = keepers + ranks  # the launcher may have begun as it was killed
            if lock is not None and not ours:
                for folder in (workdir.unfinished(key), paths.root):
                    shutil.rmtree(folder, ignore_errors=True)
                workdir.lock(key).unlink()
                return "revoked"
            for process in ours:
                kill(process, boot_id())
                ended = True
        finally:
            if lock is not None:
                os.close(lock)
        time.sleep(_POLL_SECONDS)
    return "starting"
