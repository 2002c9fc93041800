"""Work under the account that owns a run: a run's files and processes are touched by nobody else, root included.

Root becomes the account in a forked child. Any other account asks `sudo -n -u`, which runs the same verb anew.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
import traceback
from pathlib import Path
from typing import IO, Any, Callable, Dict, Iterable, List, Optional

from trainmaster import bounded_json
from trainmaster.host.errors import VerbError, of_system
from trainmaster.paths import Workdir
from trainmaster.protocol import UnixIds
from trainmaster.runner import warm

HOST_PROGRAM = Path(__file__).resolve().parent
_SUDO_SECONDS = 120

Handler = Callable[[Dict[str, Any], Workdir], Dict[str, Any]]


def account(name: str) -> pwd.struct_passwd:
    """The account's line in passwd; VerbError `no_account` when this host has none of that name."""
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise VerbError(
            "no_account", f"This host has no account {name!r}. Link the user to an account that exists here."
        ) from None
    if entry.pw_uid == 0:
        raise VerbError(
            "no_account", f"The account {name!r} is root here. Link the user to an ordinary account."
        )
    return entry


def check_ids(entry: pwd.struct_passwd, wanted: Optional[UnixIds]) -> None:
    """VerbError `no_account` when the account has another UID or primary GID here than its user is linked with."""
    if wanted is None:
        return
    for what, found, linked in (("UID", entry.pw_uid, wanted["uid"]), ("GID", entry.pw_gid, wanted["gid"])):
        if linked is not None and found != linked:
            raise VerbError(
                "no_account",
                f"The account {entry.pw_name!r} has {what} {found} here, and the user is linked with {what} {linked}. "
                "Link the user with the number that the account has on the hosts, or without a number.",
            )


def uid_of(name: str) -> Optional[int]:
    """The uid of an account; None when this host has none of that name."""
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        return None


def name_of(uid: int) -> str:
    """The account's name; the number when this host has no line for it."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def is_other(name: Optional[str]) -> bool:
    """True if work for the account `name` must leave the account of this process."""
    return name is not None and account(name).pw_uid != os.getuid()


def in_account(entry: pwd.struct_passwd, work: Callable[[], Dict[str, Any]]) -> Dict[str, Any]:
    """Run `work` in a child that has become `entry` (for root) and return its answer, or raise its VerbError."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reader)
            _become(entry)
            with os.fdopen(writer, "w") as answer:
                json.dump(_outcome(work), answer)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)  # whatever was raised: what called this continues in the parent alone
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    if not text:
        raise VerbError("account", f"The work under the account {entry.pw_name!r} ended without an answer.")
    return _answer(bounded_json.loads(text))


def under(user: Optional[str], work: Callable[[], Dict[str, Any]]) -> Dict[str, Any]:
    """Do `work` as the account `user`, forking where root has to become it; None: as this account."""
    if user is not None and is_other(user):
        return in_account(account(user), work)
    return work()


def _become(entry: pwd.struct_passwd) -> None:
    os.initgroups(entry.pw_name, entry.pw_gid)
    os.setgid(entry.pw_gid)
    os.setuid(entry.pw_uid)
    os.chdir("/")
    warm.cool_down()  # a fork would show the account what this process still holds of other accounts' requests
    os.environ.update(HOME=entry.pw_dir, USER=entry.pw_name, LOGNAME=entry.pw_name, SHELL=entry.pw_shell)


def _outcome(work: Callable[[], Dict[str, Any]]) -> Dict[str, Any]:
    try:
        return work()
    except VerbError as error:
        return {"error": error.code, "message": str(error)}
    except OSError as error:
        return of_system(error, f"{error}.")


def by_sudo(
    entry: pwd.struct_passwd,
    verb: str,
    request: Dict[str, Any],
    workdir: Workdir,
    more: Optional[IO[bytes]] = None,
) -> Dict[str, Any]:
    """Run a verb as `entry` by `sudo -n`; `more` is what follows the request on stdin."""
    if shutil.which("sudo") is None:
        raise VerbError(
            "no_sudo",
            f"The run belongs to {entry.pw_name!r}, and this login cannot switch to that account: "
            "sudo is not installed. Log in as root, or install sudo with a rule for it.",
        )
    command = ["sudo", "-n", "-u", entry.pw_name, "--", sys.executable, str(HOST_PROGRAM), verb]
    child = subprocess.Popen(
        [*command, "--workdir", str(workdir.root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert child.stdin is not None
    try:
        child.stdin.write(json.dumps(request).encode() + b"\n")
        if more is not None:
            shutil.copyfileobj(more, child.stdin, 1024 * 1024)
    except BrokenPipeError:  # it has said no already
        pass
    try:
        output, errors = child.communicate(timeout=_SUDO_SECONDS)
    except subprocess.TimeoutExpired:
        raise VerbError(
            "broke",
            f"The verb {verb} under the account {entry.pw_name!r} took longer than {_SUDO_SECONDS} s.",
        ) from None
    lines = output.decode("utf-8", "replace").splitlines()
    if child.returncode != 0 or not lines:
        reason = errors.decode("utf-8", "replace").strip().splitlines()[-1:] or [f"exit {child.returncode}"]
        raise VerbError("sudo", f"This login cannot switch to {entry.pw_name!r}: {reason[0]}")
    return _answer(bounded_json.loads(lines[-1]))


def _answer(answer: Dict[str, Any]) -> Dict[str, Any]:
    if "error" in answer:
        raise VerbError(answer["error"], answer["message"])
    return answer


def for_each_owner(
    verb: str,
    handler: Handler,
    runs: Dict[str, Any],
    extra: Dict[str, Any],
    workdir: Workdir,
    accounts: Optional[Dict[str, str]] = None,
) -> Dict[str, Any]:
    """Answers per run key, each worked out under the account that owns its folder.

    `runs` maps run keys to what the verb wants to know of each; a failure of one account is the answer for its runs.
    `accounts` names the account of a run that has no folder; without one it is this process's own.
    """
    answers: Dict[str, Any] = {}
    for owner, keys in _owners(runs, workdir, accounts or {}).items():
        request = {"runs": {key: runs[key] for key in keys}, **extra}
        try:
            if owner is None or owner == os.getuid():
                answer = handler(request, workdir)
            else:
                answer = _elsewhere(owner, verb, handler, request, workdir)
        except VerbError as error:
            answer = {"runs": {key: {"error": error.code, "message": str(error)} for key in keys}}
        answers.update(answer["runs"])
    return answers


def _elsewhere(
    owner: int, verb: str, handler: Handler, request: Dict[str, Any], workdir: Workdir
) -> Dict[str, Any]:
    try:
        entry = pwd.getpwuid(owner)
    except KeyError:
        raise VerbError("no_account", f"The run belongs to uid {owner}, which has no account here.") from None
    if os.getuid() == 0:
        return in_account(entry, lambda: handler(request, workdir))
    return by_sudo(entry, verb, request, workdir)


def _owners(
    keys: Iterable[str], workdir: Workdir, accounts: Dict[str, str]
) -> Dict[Optional[int], List[str]]:
    owners: Dict[Optional[int], List[str]] = {}
    for key in keys:
        owner = _owner(workdir, key)
        owners.setdefault(_uid(accounts.get(key)) if owner is None else owner, []).append(key)
    return owners


def _owner(workdir: Workdir, key: str) -> Optional[int]:
    """Return the owner of the run's folder, or of its launch lock while it is being made; None if there is neither."""
    for path in (workdir.run(key).root, workdir.lock(key)):
        try:
            return path.lstat().st_uid
        except FileNotFoundError:
            continue
    return None


def _uid(name: Optional[str]) -> Optional[int]:
    """None for root, who sees every account's processes, and where there is no such account."""
    return uid_of(name) if name and os.getuid() != 0 else None
