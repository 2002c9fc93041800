"""`command`: a command of Slurm on its login node, under the account of the person whose job it is about."""

from __future__ import annotations

import os
import pwd
import subprocess
from typing import Any, Dict

from trainmaster.host.accounts import account, by_sudo, check_ids, is_other, under
from trainmaster.host.errors import VerbError
from trainmaster.paths import Workdir

#: what the login's environment says of where programs are; sudo takes it out
_PASSED = ("PATH", "SLURM_CONF", "LD_LIBRARY_PATH", "MODULEPATH", "LANG")
_SAID_CHARACTERS = 64 * 1024
#: from the end of a command that took too long to the answer that says so
_ANSWERED_SECONDS = 1.0


def command(request: Dict[str, Any], workdir: Workdir) -> Dict[str, Any]:
    """Answer {"code", "stdout", "stderr"} of {"unix_user", "unix_ids", "script": for /bin/sh, "stdin", "seconds"}.

    No login shell of the account begins, so none of its start-up files are read, and no banner is printed.
    """
    user = str(request["unix_user"])
    entry = account(user)
    if entry.pw_name != user:  # a directory that ignores case: Slurm names the jobs of the other one
        sentence = f"This host knows the account {user!r} as {entry.pw_name!r}. Link the user with that name."
        raise VerbError("no_account", sentence)
    check_ids(entry, request.get("unix_ids"))
    told = {"environment": {name: os.environ[name] for name in _PASSED if name in os.environ}, **request}
    seconds = float(request["seconds"]) + _ANSWERED_SECONDS
    if is_other(user) and os.getuid() != 0:
        return by_sudo(entry, "command", told, workdir, seconds=seconds)
    return under(user, lambda: _run(told, entry), seconds)


def _run(request: Dict[str, Any], entry: pwd.struct_passwd) -> Dict[str, Any]:
    name = entry.pw_name
    own = {"HOME": entry.pw_dir, "USER": name, "LOGNAME": name, "SHELL": entry.pw_shell or "/bin/sh"}
    try:
        done = subprocess.run(
            ["/bin/sh", "-c", str(request["script"])],
            input=str(request.get("stdin") or "").encode(),
            capture_output=True,
            timeout=float(request["seconds"]),
            env={**request["environment"], **own},
            cwd="/",
        )
    except subprocess.TimeoutExpired:
        sentence = f"The command under the account {name!r} took longer than {request['seconds']} s."
        raise VerbError("broke", sentence) from None
    said = {"stdout": done.stdout, "stderr": done.stderr}
    shown = {each: text.decode("utf-8", "replace")[-_SAID_CHARACTERS:] for each, text in said.items()}
    return {"code": done.returncode, **shown}
