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
