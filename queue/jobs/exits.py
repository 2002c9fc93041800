"""Exit codes and signals in words, the same in logs, pages and API. A guess is never stated as a fact (ux.md)."""

from __future__ import annotations

import signal as signals


def signal_name(number: int) -> str:
    """`SIGKILL`, or `signal 77` for one without a name."""
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"signal {number}"


def words(code: int | None, signal: int | None) -> str:
    """`exit code 3`, `exit code 137, killed by SIGKILL`, `exit code 127 (command not found)`."""
    if code is None and not signal:
        return "without an exit code"
    parts = []
    if code is not None:
        meaning = {126: " (not executable)", 127: " (command not found)"}.get(code, "")
        parts.append(f"exit code {code}{meaning}")
    if not signal and code is not None and code > 128:
        signal = code - 128
    if signal:
        parts.append(f"killed by {signal_name(signal)}")
    return ", ".join(parts)


#: what happened, for the story of an end; `words` is the short form
_MEANINGS = {
    126: "not executable",
    127: "command not found",
    130: "interrupted (SIGINT)",
    132: "an illegal instruction (SIGILL)",
    134: "aborted (SIGABRT)",
    135: "a bus error (SIGBUS)",
    136: "an arithmetic error (SIGFPE)",
    137: "killed by SIGKILL",
    139: "a segmentation fault (SIGSEGV)",
    143: "terminated by SIGTERM",
}


def meaning(code: int | None, signal: int | None) -> str:
    """`exit code 139: a segmentation fault (SIGSEGV)`, `exit code 3`, as much as the code alone says."""
    if code is None and signal:
        code = 128 + signal
    known = _MEANINGS.get(code) if code is not None else None
    return f"exit code {code}: {known}" if known else words(code, signal)
