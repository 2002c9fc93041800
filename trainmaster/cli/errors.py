"""What ends a command early, and what an error of the server or of the way to it means for a person."""

from __future__ import annotations

import os
import re

from trainmaster.http import Answered, Unreachable

OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 3


class CliError(Exception):
    """The command failed; the message is a sentence for the user."""


class Declined(Exception):
    """The person at the terminal said no; the message is a sentence about what was not done."""


class UsageError(CliError):
    """The command line itself is wrong."""


#: what is not found -> the command that lists those there are
_LISTED = {
    "experiment": "experiment list --all",
    "trial": "experiment list-trials EXPERIMENT_ID",
    "checkpoint": "experiment list-checkpoints EXPERIMENT_ID",
    "template": "template list",
    "task": "task list",
    "command": "command list --all",
    "shell": "shell list --all",
    "notebook": "notebook list --all",
    "tensorboard": "tensorboard list --all",
    "job": "job list",
    "host": "host list",
    "project": "project list WORKSPACE",
    "workspace": "workspace list",
}
_NOT_FOUND = re.compile(r"(\w+) \S+ not found\.?")
_TOKENS = ("TRAINMASTER_TOKEN", "DET_USER_TOKEN")
_CONFIG = "<config>."


def answered(error: Answered) -> str:
    """The server's sentence, with what to do next; several faults of a config one below the other."""
    text = _said(error)
    if error.body is None and error.text.lstrip().startswith("<"):
        return _page_instead(error.status)
    if error.status == 401:
        return _ended_login(text)
    if error.status == 404:
        found = _NOT_FOUND.fullmatch(text)
        if found and found[1] in _LISTED:
            return f"{text.rstrip('.')}. To list what exists, run: trainmaster {_LISTED[found[1]]}"
    return _faults(text)


def unreachable(error: Unreachable) -> str:
    """Why no answer came, and what may be wrong with the address."""
    text = without_number(str(error))
    if "WRONG_VERSION_NUMBER" in text:
        return "the server speaks plain HTTP; use http://host:port as its address (-m, TRAINMASTER_MASTER)."
    if text.startswith("http://") and ("reset" in text or "without response" in text):
        return f"{text} If it uses TLS, use https://host:port as its address (-m, TRAINMASTER_MASTER)."
    return f"{text} Is the server running, and is the address correct (-m, TRAINMASTER_MASTER)?"


def _page_instead(status: int) -> str:
    why = (
        "see the server's log for the reason (log/web.log in its data folder)"
        if status >= 500
        else "something other than a Trainmaster server may be answering there (-m, TRAINMASTER_MASTER)"
    )
    return f"the server answered {status} with an HTML page instead of data; {why}."


def without_number(text: str) -> str:
    """`[Errno 111] Connection refused` as people read it."""
    return re.sub(r"\[Errno -?\d+\] ", "", text)


def _said(error: Answered) -> str:
    body = error.body if isinstance(error.body, dict) else {}
    inner = body.get("error")
    if not body.get("message") and isinstance(inner, dict) and isinstance(inner.get("error"), str):
        return str(inner["error"])
    return str(error)


def _ended_login(text: str) -> str:
    named = next((name for name in _TOKENS if os.environ.get(name)), None)
    if named is None:
        return f"{text} To log in, run: trainmaster user login NAME"
    return (
        f"{text.split(';')[0].rstrip('.')}. It was read from {named}: set another token there "
        "(create one with trainmaster token create), or unset it and run: trainmaster user login NAME"
    )


def _faults(text: str) -> str:
    begin, *faults = re.split(rf"(?:: |; )(?={re.escape(_CONFIG)})", text)
    if len(faults) < 2:
        return text
    return "\n".join([f"{begin}, {len(faults)} errors:", *(f"  {fault[len(_CONFIG) :]}" for fault in faults)])
