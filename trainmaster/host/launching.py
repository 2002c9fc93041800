"""`launch`: make the run folder and start its launcher, once, however often it is asked and wherever it is killed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import time
from pathlib import Path
from typing import IO, Any, Dict, Optional, cast

from trainmaster.host.accounts import account, by_sudo, in_account, is_other
from trainmaster.host.errors import VerbError
from trainmaster.host.unpack import Limited, unpack
from trainmaster.jsonfile import write_json
from trainmaster.paths import RunPaths, Workdir
from trainmaster.protocol import ProtocolError, ServerAddress, Spec, check_spec
from trainmaster.runner.detached import start_detached
from trainmaster.runner.state import read_state

_START_SECONDS = 60.0
_POLL_SECONDS = 0.003


def launch(request: Dict[str, Any], stream: IO[bytes], workdir: Workdir) -> Dict[str, Any]:
    """Answer {"run_key", "state": "launched" or "already", …state.json}; VerbError says why nothing was started."""
    try:
        spec = check_spec(request.get("spec"))
    except ProtocolError as error:
        raise VerbError("bad_spec", str(error)) from error
    server = cast(ServerAddress, request.get("server") or {"urls": [], "cert_sha256": None})
    code = Limited(stream, int(request.get("code_bytes") or 0))
    user = spec["unix_user"]
    _make_workdir(workdir)
    if user is not None and is_other(user) and os.getuid() != 0:
        workdir.runs.chmod(
            0o1733
        )  # the account makes its own run folder here; sticky, so nobody else removes it
        return by_sudo(account(user), "launch", request, workdir, more=cast("IO[bytes]", code))
    lock = _lock(workdir.lock(spec["run_key"]))
    try:
        return _launch_locked(spec, server, code, workdir, lock)
    finally:
        code.drain()


def _launch_locked(
    spec: Spec, server: ServerAddress, code: Limited, workdir: Workdir, lock: int
) -> Dict[str, Any]:
    key, user = spec["run_key"], spec["unix_user"]
    paths, unfinished = workdir.run(key), RunPaths(workdir.unfinished(key))
    if not paths.root.exists():
        shutil.rmtree(unfinished.root, ignore_errors=True)  # of a launch that was killed
        unfinished.root.mkdir(mode=0o700)
        try:
            if user is not None and is_other(user):
                entry = account(user)
                os.chown(unfinished.root, entry.pw_uid, entry.pw_gid)
            try:
                _under(user, lambda: _prepare(unfinished, spec, server, code))
            finally:
                code.left = 0  # read there, perhaps by a child whose count this process does not see
            unfinished.root.rename(paths.root)
        except BaseException:
            shutil.rmtree(unfinished.root, ignore_errors=True)
            workdir.lock(key).unlink(missing_ok=True)
            raise
    started = _under(user, lambda: _start(paths, lock))["started"]
    os.close(lock)
    if started:
        _wait_until_started(paths, workdir.lock(key), user)
    answer = _under(user, lambda: dict(read_state(paths)))
    if not answer:
        raise VerbError(
            "launcher",
            f"The launcher of {key} ended before it began: {_under(user, lambda: _log(paths))['log']}",
        )
    return {"run_key": key, "state": "launched" if started else "already", **answer}


def _under(user: Optional[str], work: Any) -> Dict[str, Any]:
    """Do `work` as the account `user`, forking where root has to become it."""
    if user is not None and is_other(user):
        return in_account(account(user), work)
    result: Dict[str, Any] = work()
    return result


def _make_workdir(workdir: Workdir) -> None:
    workdir.root.mkdir(mode=0o755, parents=True, exist_ok=True)
    if not workdir.runs.exists():
        workdir.runs.mkdir(mode=0o711, exist_ok=True)
        workdir.runs.chmod(0o711)


def _lock(path: Path) -> int:
    """A descriptor that holds the lock at `path`; whoever held it before may have removed the file."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_ino == os.fstat(descriptor).st_ino:
                return descriptor
        os.close(descriptor)


def _prepare(paths: RunPaths, spec: Spec, server: ServerAddress, code: Limited) -> Dict[str, Any]:
    """Fill the folder that will become the run's."""
    for folder in (paths.code, paths.control, paths.spool, paths.checkpoints):
        folder.mkdir(mode=0o700)
    try:
        if code.left:
            unpack(code, paths.code)
    finally:
        code.drain()
    write_json(paths.server, server)
    write_json(paths.spec, spec)
    return {}


def _start(paths: RunPaths, lock: int) -> Dict[str, Any]:
    """Start the launcher unless one was ever started: state.json is the first thing it writes."""
    status = paths.root.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise VerbError("taken", f"{paths.root} is not a folder of this run's account. Remove it by hand.")
    if paths.state.exists():
        return {"started": False}
    start_detached("keep", paths, str(lock), keep_open=(lock,))
    return {"started": True}


def _wait_until_started(paths: RunPaths, lock: Path, user: Optional[str]) -> None:
    """The launcher inherits the launch lock and lets go of it when state.json names the entrypoint."""
    until = time.monotonic() + _START_SECONDS
    descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    try:
        while time.monotonic() < until:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                time.sleep(_POLL_SECONDS)
    finally:
        os.close(descriptor)
    log = _under(user, lambda: _log(paths))["log"]
    raise VerbError(
        "launcher",
        f"The launcher of {paths.key} did not start its entrypoint in {_START_SECONDS:.0f} s: {log}",
    )


def _log(paths: RunPaths) -> Dict[str, Any]:
    try:
        lines = paths.runner_log.read_text(errors="replace").strip().splitlines()
    except FileNotFoundError:
        lines = []
    return {"log": " / ".join(lines[-3:]) or "it said nothing."}
