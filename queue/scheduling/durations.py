"""How long work runs: the range that holds its end with 80 % probability, from what is known of it.

What is known, best first: how far it says it is, how long similar work ran, its time limit. Seconds everywhere.
"""

from __future__ import annotations

import math

from scheduling.past_runs import Like

Span = tuple[float, float]

#: half of the middle 80 % of a normal distribution, in standard deviations
Z80 = 1.2816
#: the relative error of "time so far / progress" at its start and at its end
ERROR_AT_START, ERROR_AT_END = 0.6, 0.05
#: below this share done, the pace says little
LEAST_PROGRESS = 0.02
#: of a run of which only the limit is known: the part of the time left after which it may end
EARLIEST_OF_LIMIT = 0.1
#: a run that is longer than this part of its like is unlike them; it is then taken to go on for so much of its age
OVERDUE = 0.995
GOES_ON = (0.05, 1.0)


def lasts_of(max_time_seconds: float | None, like: Like | None) -> Span | None:
    """(shortest, longest) seconds that work of this kind runs, None when nothing is known.

    `like`: the logarithm of the seconds that similar work ran (`scheduling.past_runs`). `max_time_seconds`: the limit.
    """
    limit = math.inf if max_time_seconds is None else max_time_seconds
    if like is None:
        return None if limit == math.inf else (EARLIEST_OF_LIMIT * limit, limit)
    return (
        min(math.exp(like.inv_cdf(0.1)), limit),
        min(math.exp(like.inv_cdf(0.9)), limit),
    )


def tenths_of(max_time_seconds: float | None, like: Like | None) -> tuple[float, ...]:
    """Ten run times in seconds of which each is as likely as the others; empty if nothing similar has run."""
    if like is None or max_time_seconds is None:
        return like.tenths if like else ()
    return tuple(min(each, max_time_seconds) for each in like.tenths)


def ends_of(
    started_at: float,
    now: float,
    progress: float | None,
    max_time_seconds: float | None,
    like: Like | None,
    held_since: float | None = None,
) -> Span | None:
    """(earliest, latest) end of an attempt that runs, None when nothing is known; never before `now`.

    `progress`: the part done, 0 to 1, of this attempt. The other arguments are as for `lasts_of`. `held_since`: when
    it got its slots, which is what `like` counts from; None: when it started.
    """
    gone = max(0.0, now - started_at)
    limit = math.inf if max_time_seconds is None else max(0.0, started_at + max_time_seconds - now)
    left = _left_by_pace(gone, progress)
    if left is None:
        left = _left_by_history(gone if held_since is None else max(0.0, now - held_since), like)
    if left is None:
        if limit == math.inf:
            return None
        left = (EARLIEST_OF_LIMIT * limit, limit)
    return now + min(left[0], limit), now + min(left[1], limit)


def _left_by_pace(gone: float, progress: float | None) -> Span | None:
    if progress is None or not LEAST_PROGRESS <= progress <= 1 or gone <= 0:
        return None
    left = gone * (1 - progress) / progress
    error = ERROR_AT_START * (1 - progress) + ERROR_AT_END
    return left / (1 + error), left * (1 + error)


def _left_by_history(gone: float, like: Like | None) -> Span | None:
    """What similar work that ran so long still took: the distribution is cut off at `gone`."""
    if like is None:
        return None
    done = like.cdf(math.log(gone)) if gone > 0 else 0.0
    if done > OVERDUE:
        return GOES_ON[0] * gone, GOES_ON[1] * gone
    first, last = (math.exp(like.inv_cdf(done + part * (1 - done))) - gone for part in (0.1, 0.9))
    return max(0.0, first), max(0.0, first, last)
