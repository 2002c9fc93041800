"""Ids may be given by any unique beginning."""

from __future__ import annotations

from typing import Iterable

from trainmaster.cli.errors import CliError

SHOWN = 8  # characters of an id in a table


def the_one(prefix: str, ids: Iterable[str], what: str) -> str:
    """The id that is `prefix` or alone begins with it. Raises CliError."""
    known = list(ids)
    if prefix in known:
        return prefix
    found = [one for one in known if prefix and one.startswith(prefix)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise CliError(f"{what} {prefix} not found.")
    raise CliError(f"{what} {prefix} is not unique, it may be {', '.join(sorted(found)[:5])}.")
