"""Regular expressions that users write: a limit on what compiling one may cost.

Matching has time limits (logs.filters, experiments.log_policies). Compiling has none: it copies what an exact count
repeats, so `((a{60000}){60000}){60000}` would need more memory than there is, with every other thread waiting.
"""

from __future__ import annotations

import re

import regex

PARTS_MAX = 50_000
#: Larger expressions are not kept in the cache of `regex`, which has 500 entries.
_CACHED_PARTS = 5_000
_COUNT = re.compile(r"(.?)\{\s*(\d+)\s*(?:,\s*(\d+)\s*)?\}", re.DOTALL)
#: what verbose expressions may contain within and before a count
_IGNORED = re.compile(r"\s+|#[^\n]*")


def compiled(pattern: str, flags: int) -> regex.Pattern[str]:
    """Return the compiled expression. Raises ValueError with the reason; time limits for matching are up to callers."""
    parts = max(_parts(pattern), _parts(_IGNORED.sub("", pattern)))
    if parts > PARTS_MAX:
        raise ValueError(f"its counts make up to {parts:,} parts of it; allowed: at most {PARTS_MAX:,}")
    try:
        return regex.compile(pattern, flags, cache_pattern=parts <= _CACHED_PARTS)
    except (regex.error, OverflowError, RecursionError) as error:
        raise ValueError(str(error)) from error


def _parts(pattern: str) -> int:
    """Return how many parts a pattern has at most once its exact counts have copied what they repeat.

    Counts behind a group or another count multiply everything, wherever they are. That is more than they really do,
    but it does not depend on reading groups and character classes exactly as `regex` does.
    """
    single, factor = len(pattern), 1
    for before, least, most in _COUNT.findall(pattern):
        if most and int(most) != int(least):
            continue
        if before in {"", ")", "}", "+", "*", "?"}:
            factor *= max(1, int(least))
        else:
            single += int(least)
    return factor * single
