"""What ends a command early."""

from __future__ import annotations

OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 3


class CliError(Exception):
    """The command failed; the message is a sentence for the user."""


class Declined(Exception):
    """The person at the terminal said no; the message is a sentence about what was not done."""


class UsageError(CliError):
    """The command line itself is wrong."""
