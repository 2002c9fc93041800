"""Which program an exit code 127 is about: read from what the shell, `env` or the runner printed. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

_SHELL = r"^(?:\S*sh: (?:line )?(?:\d+: )?|\S+: (?:line )?\d+: )(?:exec: )?"
_COMPLAINTS = [
    re.compile(_SHELL + r"([^\s:]+): (?:command )?not found$"),
    re.compile(_SHELL + r"([^\s:]+): No such file or directory$"),
    re.compile(r"\benv: \W?([\w./+-]+)\W?: No such file or directory$"),
    re.compile(r"^ERROR: trainmaster: command not found: '([^']+)'"),  # trainmaster/runner/keeper.py
    re.compile(r"^ERROR: trainmaster: command not found: .* first line of '([^']+)'"),
]


def named(lines: Iterable[str]) -> str:
    """The program that the last of these lines says is missing; empty if none says so."""
    found = (
        match[1] for text in reversed(list(lines)) for each in _COMPLAINTS if (match := each.search(text))
    )
    return next(found, "")


def advice(program: str, host: str) -> str:
    """What to check about it on that host."""
    if "/" in program:
        return f"Check on {host} that {program} exists, and the interpreter that its first line names."
    return (
        f"{program} is not on the PATH of jobs on {host}: check its spelling, install it there, or set the Python "
        "environment that has it (environment.python or environment.activate)."
    )
