"""Work under the account that owns a run: a run's files and processes are touched by nobody else, root included.

Root becomes the account in a forked child. Any other account asks `sudo -n -u`, which runs the same verb anew.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import time
import traceback
from functools import partial
from pathlib import Path
from typing import IO, Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple, Union

from trainmaster import bounded_json
from trainmaster.host import pipes
from trainmaster.host.errors import VerbError, of_system
from trainmaster.paths import Workdir
from trainmaster.protocol import UnixIds
from trainmaster.runner import warm

HOST_PROGRAM = Path(__file__).resolve().parent
#: for a verb under another account, which may stop what runs under it: less than the server waits for the verb, so
#: that the host is not taken for silent
_SUDO_SECONDS = 25.0
_LONG_SECONDS = {"launch": 80.0, "discard": 110.0}
#: within which all who own runs have to answer, also less than that
_OWNERS_SECONDS = 25.0
_SHORT_SECONDS = {"stack": 16.0}

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


class _Child(NamedTuple):
    """A process that does work for this one, and the pipe by which it answers."""

    pid: int
    pipe: int


def _begin(work: Callable[[], Dict[str, Any]]) -> _Child:
    """Do `work`, which may become another account, in a child; its answer is for `_heard`."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reader)
            with os.fdopen(writer, "w") as answer:
                json.dump(_outcome(work), answer)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)  # whatever was raised: what called this continues in the parent alone
    os.close(writer)
    return _Child(child, reader)


def _heard(
    children: Sequence[_Child], until: Optional[float] = None
) -> List[Union[Dict[str, Any], VerbError]]:
    """What each child answers, or its VerbError. `until`: on the monotonic clock, when they have to have answered."""
    said = pipes.read([child.pipe for child in children], until)
    heard: List[Union[Dict[str, Any], VerbError]] = []
    for child in children:
        text, whole = said[child.pipe]
        os.close(child.pipe)
        # also one that has said all: the account may have stopped it since
        os.kill(child.pid, signal.SIGKILL)
        os.waitpid(child.pid, 0)
        try:
            heard.append(_answer(bounded_json.loads(text)))
        except ValueError:
            late = "" if whole else " in time"
            sentence = f"The work under another account ended without an answer{late}."
            heard.append(VerbError("account", sentence))
        except VerbError as error:
            heard.append(error)
    return heard


def in_account(
    entry: pwd.struct_passwd, work: Callable[[], Dict[str, Any]], seconds: Optional[float] = None
) -> Dict[str, Any]:
    """Run `work` in a child that has become `entry` (for root) and return its answer, or raise its VerbError."""
    child = _begin(lambda: _as(entry, work))
    [answer] = _heard([child], None if seconds is None else time.monotonic() + seconds)
    if isinstance(answer, VerbError):
        raise answer
    return answer


def _as(entry: pwd.struct_passwd, work: Callable[[], Dict[str, Any]]) -> Dict[str, Any]:
    _become(entry)
    return work()


def under(
    user: Optional[str], work: Callable[[], Dict[str, Any]], seconds: Optional[float] = None
) -> Dict[str, Any]:
    """Do `work` as the account `user`, forking where root has to become it; None: as this account."""
    if user is not None and is_other(user):
        return in_account(account(user), work, seconds)
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
    seconds: Optional[float] = None,
) -> Dict[str, Any]:
    """Run a verb as `entry` by `sudo -n`; `more` is what follows the request on stdin."""
    if shutil.which("sudo") is None:
        raise VerbError(
            "no_sudo",
            f"The run belongs to {entry.pw_name!r}, and this login cannot switch to that account: "
            "sudo is not installed. Log in as root, or install sudo with a rule for it.",
        )
    # -S and -E: nothing that the account has put into its home folder runs here
    command = ["sudo", "-n", "-u", entry.pw_name, "--", sys.executable, "-S", "-E", str(HOST_PROGRAM), verb]
    child = subprocess.Popen(
        [*command, "--workdir", str(workdir.root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    seconds = _LONG_SECONDS.get(verb, _SUDO_SECONDS) if seconds is None else seconds
    try:
        output, errors = pipes.talk(child, json.dumps(request).encode() + b"\n", more, seconds)
    except (TimeoutError, subprocess.TimeoutExpired):
        sentence = f"The verb {verb} under the account {entry.pw_name!r} took longer than {seconds:g} s."
        raise VerbError("broke", sentence) from None
    lines = output.decode("utf-8", "replace").splitlines()
    if b"can't open file" in errors:
        raise VerbError(
            "account",
            f"The account {entry.pw_name!r} cannot read {HOST_PROGRAM}. Let all accounts enter the folders above it.",
        )
    if child.returncode != 0 or not lines:
        reason = errors.decode("utf-8", "replace").strip().splitlines()[-1:] or [f"exit {child.returncode}"]
        raise VerbError("sudo", f"This login cannot switch to {entry.pw_name!r}: {reason[0]}")
    try:
        return _answer(bounded_json.loads(lines[-1]))
    except ValueError:
        sentence = f"The verb {verb} under the account {entry.pw_name!r} gave no answer that can be read."
        raise VerbError("account", sentence) from None


def _answer(answer: object) -> Dict[str, Any]:
    if not isinstance(answer, dict):
        raise ValueError("an answer is an object")
    if "error" in answer:
        raise VerbError(str(answer["error"]), str(answer.get("message")))
    return answer


def for_each_owner(
    verb: str,
    handler: Handler,
    runs: Dict[str, Any],
    extra: Dict[str, Any],
    workdir: Workdir,
    accounts: Optional[Dict[str, Optional[str]]] = None,
) -> Dict[str, Any]:
    """Answers per run key, each worked out under the account that owns its folder.

    `runs` maps run keys to what the verb wants to know of each; a failure of one account is the answer for its runs.
    `accounts` names the accounts of runs, None for this process's own: a folder of another account is not the run's,
    and a run that has no folder is looked for under its account.
    All accounts are asked side by side, and believed in what concerns their own runs alone.
    """
    owners, answers = _owners(runs, workdir, accounts or {})
    asked: List[Asked] = []
    own: List[str] = []
    until = time.monotonic() + _SHORT_SECONDS.get(verb, _OWNERS_SECONDS)
    for owner, keys in owners.items():
        if owner is None or owner == os.getuid():
            own += keys
            continue
        request = {"runs": {key: runs[key] for key in keys}, **extra}
        asked.append(Asked(_begin(partial(_elsewhere, owner, verb, handler, request, workdir)), keys))
    if own:
        try:
            answers.update(handler({"runs": {key: runs[key] for key in own}, **extra}, workdir)["runs"])
        except VerbError as error:
            answers.update(_failed(own, error))
    answers.update(answers_of(asked, until))
    return answers


class Asked(NamedTuple):
    """An account that is asked of some of its runs."""

    child: _Child
    keys: List[str]


def ask_by_sudo(user: str, verb: str, runs: Dict[str, Any], workdir: Workdir) -> Asked:
    """Begin to ask the account of its runs; `answers_of` hears it."""
    return Asked(_begin(lambda: by_sudo(account(user), verb, {"runs": runs}, workdir)), list(runs))


def answers_of(asked: Sequence[Asked], until: Optional[float] = None) -> Dict[str, Any]:
    """Answers by run key; each account is believed in what concerns its own runs alone. `until`: as for `_heard`."""
    answers: Dict[str, Any] = {}
    until = time.monotonic() + _OWNERS_SECONDS if until is None else until
    heard_of = _heard([each.child for each in asked], until)
    for number, (_, keys) in enumerate(asked):
        heard = heard_of[number]
        if isinstance(heard, VerbError):
            answers.update(_failed(keys, heard))
            continue
        found = heard.get("runs")
        said = found if isinstance(found, dict) else {}
        missing = VerbError("account", "The account of this run did not say how it is.")
        answers.update(_failed([key for key in keys if not isinstance(said.get(key), dict)], missing))
        answers.update({key: said[key] for key in keys if isinstance(said.get(key), dict)})
    return answers


def _failed(keys: Iterable[str], error: VerbError) -> Dict[str, Any]:
    return {key: {"error": error.code, "message": str(error)} for key in keys}


def _elsewhere(
    owner: int, verb: str, handler: Handler, request: Dict[str, Any], workdir: Workdir
) -> Dict[str, Any]:
    """In a child: have the verb done under that account. Raises VerbError if it does not exist here."""
    try:
        entry = pwd.getpwuid(owner)
    except KeyError:
        raise VerbError("no_account", f"The run belongs to uid {owner}, which has no account here.") from None
    if os.getuid() == 0:
        return _as(entry, lambda: handler(request, workdir))
    # it is asked of its own runs: also what has no folder is looked for under it
    return by_sudo(entry, verb, {**request, "accounts": dict.fromkeys(request["runs"])}, workdir)


def _owners(
    keys: Iterable[str], workdir: Workdir, accounts: Dict[str, Optional[str]]
) -> Tuple[Dict[Optional[int], List[str]], Dict[str, Any]]:
    """(uid -> the runs that it is asked about, the answers for runs whose place another account has taken)."""
    owners: Dict[Optional[int], List[str]] = {}
    taken: Dict[str, Any] = {}
    for key in keys:
        paths = workdir.run(key)
        owner = _owner(paths.root)
        known = key in accounts
        name = accounts.get(key)
        wanted = (os.getuid() if name is None else uid_of(name)) if known else None
        if owner is not None and wanted is not None and owner != wanted:
            sentence = (
                f"{paths.root} belongs to uid {owner}, not to the account of this run. Remove it manually."
            )
            taken.update(_failed([key], VerbError("taken", sentence)))
            continue
        if owner is None:
            # root sees every account's processes
            owner = (None if os.getuid() == 0 else wanted) if known else _owner(workdir.lock(key))
        owners.setdefault(owner, []).append(key)
    return owners, taken


def _owner(path: Path) -> Optional[int]:
    """Return the owner of the run's folder, or of its launch lock while it is being made; None if it is not there."""
    try:
        return path.lstat().st_uid
    except FileNotFoundError:
        return None
