"""JSON that a job may have written: read without trust in how deep it is nested.

Python's own reader raises RecursionError at a depth that depends on its version and on who calls it, so that a
record which one process can read may break the next one. Here there is one limit, far below all of those.
"""

from __future__ import annotations

import json
from typing import Any, Callable, Optional, Union

#: Objects and lists inside each other. Honest records have fewer than ten.
NESTING_MAX = 100


class TooDeep(ValueError):
    """It is nested deeper than NESTING_MAX."""

    def __init__(self) -> None:
        super().__init__(f"objects and lists are nested deeper than {NESTING_MAX} levels")


def loads(text: Union[str, bytes], parse_constant: Optional[Callable[[str], Any]] = None) -> Any:
    """The value, as json.loads reads it. Raises ValueError, of which TooDeep is one, and nothing else."""
    try:
        value = json.loads(text, parse_constant=parse_constant)
    except RecursionError:
        raise TooDeep() from None
    if is_deep(value):
        raise TooDeep()
    return value


def is_deep(value: Any) -> bool:
    """Whether a value is nested deeper than NESTING_MAX."""
    level = [value]
    for _ in range(NESTING_MAX + 1):
        level = [
            part
            for whole in level
            if isinstance(whole, (dict, list))
            for part in (whole.values() if isinstance(whole, dict) else whole)
            if isinstance(part, (dict, list))
        ]
        if not level:
            return False
    return True
