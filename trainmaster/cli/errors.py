"""What ends a command early."""

from __future__ import annotations

OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 3


class CliError(Exception):
    """The command failed; the message is a sentence for the user."""


class UsageError(CliError):
    """The command line itself is wrong."""
