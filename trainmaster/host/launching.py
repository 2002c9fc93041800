"""`launch`: make the run folder and start its launcher, once, however often it is asked and wherever it is killed."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from pathlib import Path
from typing import IO, Any, Dict, Iterator, Optional, cast

from trainmaster import own_folders
from trainmaster.host import launch_lock
from trainmaster.host.accounts import account, by_sudo, check_ids, is_other, under
from trainmaster.host.errors import VerbError
from trainmaster.host.unpack import Limited, unpack
from trainmaster.jsonfile import write_json
from trainmaster.paths import RunPaths, Workdir
from trainmaster.processes import boot_id, marked, of_account
from trainmaster.protocol import ProtocolError, ServerAddress, Spec, check_spec
from trainmaster.runner.detached import RUNNER_PROGRAM, start_detached
from trainmaster.runner.full_disk import FULL, place_of
from trainmaster.runner.state import read_state

_START_SECONDS = 60.0
#: of a folder where other accounts make their own; sticky, so that nobody else removes them
SHARED_MODE = 0o1733
#: beside it in a Slurm cluster: a node whose file server is late finds a new run only by listing the folder
_LISTED = 0o044


def launch(request: Dict[str, Any], stream: IO[bytes], workdir: Workdir) -> Dict[str, Any]:
    """Answer {"run_key", "state": "launched" or "already", …state.json}; VerbError says why nothing was started.

    With {"ticket": {"job_id", "own_folder"}} nothing is started here: that Slurm job does it (runner/attending.py).

    The state is "starting" while another launch of the run, or its launcher, has not come so far after _START_SECONDS:
    `status` says what becomes of it, and `revoke` ends it.
    """
    try:
        spec = check_spec(request.get("spec"))
    except ProtocolError as error:
        raise VerbError("bad_spec", str(error)) from error
    server = cast(ServerAddress, request.get("server") or {"urls": [], "cert_sha256": None})
    code = Limited(stream, int(request.get("code_bytes") or 0))
    user = spec["unix_user"]
    try:
        check_mounted(request, workdir)
    except VerbError:
        code.drain()
        raise
    make_workdir(workdir)
    if user is not None and is_other(user):
        let_others_in(workdir, elsewhere=bool(request.get("ticket")))
    if user is not None and is_other(user) and os.getuid() != 0:
        return by_sudo(account(user), "launch", request, workdir, more=cast("IO[bytes]", code))
    try:
        with _naming_a_full_disk(workdir, spec):
            lock = launch_lock.take(workdir.lock(spec["run_key"]), _START_SECONDS)
            if lock is None:
                return {"run_key": spec["run_key"], "state": "starting"}
            return _launch_locked(spec, server, code, workdir, lock, request.get("ticket"))
    finally:
        code.drain()


def _launch_locked(
    spec: Spec,
    server: ServerAddress,
    code: Limited,
    workdir: Workdir,
    lock: int,
    ticket: Optional[Dict[str, Any]],
) -> Dict[str, Any]:
    key, user = spec["run_key"], spec["unix_user"]
    paths, unfinished = workdir.run(key), RunPaths(workdir.unfinished(key))
    uid = None if user is None else account(user).pw_uid
    if of_account(marked().get(key, []), uid):  # it has begun, whatever has become of its folder since
        os.close(lock)
        return {"boot_id": boot_id(), **_state_of(paths, user), "run_key": key, "state": "already"}
    if not paths.root.exists():
        _refuse_revoked(paths)
        if user is not None:
            check_ids(account(user), spec["unix_ids"])
        code.moved = lambda: launch_lock.goes_on(lock)
        shutil.rmtree(unfinished.root, ignore_errors=True)  # of a launch that was killed
        unfinished.root.mkdir(mode=0o700)
        try:
            if user is not None and is_other(user):
                entry = account(user)
                for made in (unfinished.root, workdir.lock(key)):
                    os.chown(made, entry.pw_uid, entry.pw_gid)
            try:
                under(user, lambda: _prepare(workdir, unfinished, spec, server, code, ticket))
            finally:
                code.left = 0  # read there, perhaps by a child whose count this process does not see
            _refuse_revoked(paths)
            _put_in_place(unfinished, paths)
        except BaseException:
            shutil.rmtree(unfinished.root, ignore_errors=True)
            workdir.lock(key).unlink(missing_ok=True)
            raise
    if ticket is not None:
        os.close(lock)
        under(user, lambda: _check_owner(paths))
        return {"run_key": key, "state": "launched"}
    started = under(user, lambda: _start(paths, lock))["started"]
    os.close(lock)
    return _outcome(spec, workdir, started)


def _put_in_place(unfinished: RunPaths, paths: RunPaths) -> None:
    try:
        unfinished.root.rename(paths.root)
    except FileNotFoundError:  # a file server was asked again that had done it, and whose answer was lost
        if not paths.root.exists():
            raise


def _outcome(spec: Spec, workdir: Workdir, started: bool) -> Dict[str, Any]:
    """What has become of the launcher. From here on a "no" would be a guess: it may live, and start the entrypoint."""
    key, user = spec["run_key"], spec["unix_user"]
    paths = workdir.run(key)
    try:
        over = not started or launch_lock.wait(workdir.lock(key), _START_SECONDS)
        state = _state_of(paths, user)
    except OSError:
        return {"run_key": key, "state": "starting"}
    if state:
        return {"run_key": key, "state": "launched" if started else "already", **state}
    if not over:
        return {"run_key": key, "state": "starting"}
    raise VerbError(
        "launcher",
        f"The launcher of {key} ended before it started the run: {under(user, lambda: _log(paths))['log']}",
    )


def _state_of(paths: RunPaths, user: Optional[str]) -> Dict[str, Any]:
    return under(user, lambda: dict(read_state(paths)))


def _refuse_revoked(paths: RunPaths) -> None:
    if paths.is_revoked():
        raise VerbError(
            "revoked", f"The server has abandoned the launch of {paths.key}; nothing was started."
        )


def let_others_in(workdir: Workdir, *, elsewhere: bool) -> None:
    """Have other accounts make their runs in the folder, unless root makes them. `elsewhere`: for Slurm jobs."""
    mode = 0o711 if os.getuid() == 0 else SHARED_MODE
    workdir.runs.chmod(mode | _LISTED if elsewhere else mode)


def check_mounted(request: Dict[str, Any], workdir: Workdir) -> None:
    """VerbError if runs of Slurm jobs are asked for and this is not the folder that the cluster shares.

    A login node that has not mounted it would have nothing of any run.
    """
    ticket = request.get("ticket") or {}
    needed = bool(ticket) and not ticket.get("own_folder")
    needed = needed or any(request.get(name) for name in ("elsewhere", "over"))
    if needed and not workdir.shared.exists():
        sentence = f"{workdir.root} is not the folder that the cluster shares. Mount it, or admit the login node again."
        raise VerbError("not_mounted", sentence)


def make_workdir(workdir: Workdir) -> None:
    """Raises VerbError if a folder there is another account's, which could put its own work in the place of a run's.

    Trusted are the owner of this very program and whoever called it by sudo: such a login has other accounts do verbs
    in its workdir.
    """
    workdir.root.mkdir(mode=0o755, parents=True, exist_ok=True)
    if not workdir.runs.exists():
        workdir.runs.mkdir(mode=0o711, exist_ok=True)
        workdir.runs.chmod(0o711)
    trusted = [Path(__file__).stat().st_uid]
    if os.environ.get(
        "SUDO_UID", ""
    ).isdecimal():  # sudo sets it; whoever else sets it is this account itself
        trusted.append(int(os.environ["SUDO_UID"]))
    for place in (workdir.root, workdir.bundles, workdir.runs):
        sentence = own_folders.refusal(str(place), trusted)
        if sentence:
            raise VerbError("taken", sentence)


def _prepare(
    workdir: Workdir,
    paths: RunPaths,
    spec: Spec,
    server: ServerAddress,
    code: Limited,
    ticket: Optional[Dict[str, Any]],
) -> Dict[str, Any]:
    """Fill the folder that will become the run's."""
    with _naming_a_full_disk(workdir, spec):
        for folder in (paths.code, paths.control, paths.spool, paths.checkpoints):
            folder.mkdir(mode=0o700)
        try:
            if code.left:
                unpack(code, paths.code)
        finally:
            code.drain()
        write_json(paths.server, server)
        write_json(paths.spec, spec)
        if ticket is not None:
            if ticket.get("own_folder"):
                paths.program.symlink_to(RUNNER_PROGRAM)
            write_json(paths.ticket, ticket)
    return {}


@contextlib.contextmanager
def _naming_a_full_disk(workdir: Workdir, spec: Spec) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        where, free = place_of(workdir.runs, spec["host"]["name"]), "Free some space there, or"
        if error.errno == errno.EDQUOT:
            sentence = f"The quota is used up at {where}. {free} ask for a larger one."
            raise VerbError("quota", sentence) from error
        sentence = f"The disk is full at {where}. {free} move the workdir to a larger disk."
        raise VerbError("disk", sentence) from error


def _start(paths: RunPaths, lock: int) -> Dict[str, Any]:
    """Start the launcher unless one was ever started: state.json is the first thing it writes."""
    _check_owner(paths)
    if paths.state.exists():
        return {"started": False}
    _refuse_revoked(paths)
    start_detached("keep", paths, str(lock), keep_open=(lock,))
    return {"started": True}


def _check_owner(paths: RunPaths) -> Dict[str, Any]:
    status = paths.root.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise VerbError(
            "taken", f"{paths.root} is not a folder owned by this run's account. Remove it manually."
        )
    return {}


def _log(paths: RunPaths) -> Dict[str, Any]:
    try:
        lines = paths.runner_log.read_text(errors="replace").strip().splitlines()
    except FileNotFoundError:
        lines = []
    return {"log": " / ".join(lines[-3:]) or "it said nothing."}
