"""Whether a gang has stopped making progress, by the signs of its ranks: when it is worth looking at it. Pure.

That nothing is seen proves nothing: a program may write nothing for hours. It only makes the server look at the ranks,
and two looks that agree decide (`logs.hangs.verdict`).
"""

from __future__ import annotations

from collections.abc import Sequence

from logs.pulse_marks import SAVING_SECONDS, USUAL_GAPS, Seen


def stood_for(gang: Sequence[Seen], after_seconds: float) -> float | None:
    """The seconds since any rank last gave a sign of progress, if that is long enough to look; else None.

    Signs are calls of the SDK and lines of output, by the clock of the rank's own host. A gang that gives neither is
    not looked at. What a rank has announced (it saves, restores, validates) is given more time, and so is a gang whose
    usual signs come rarely.
    """
    going_on = [seen for seen in gang if not seen.ended and not seen.has_left]
    signs = [age for seen in going_on for age in (seen.quiet, seen.wrote) if age is not None]
    if not signs:
        return None
    patience = max([after_seconds, *(USUAL_GAPS * seen.gap for seen in going_on)])
    if any(seen.doing for seen in going_on):
        patience = max(patience, SAVING_SECONDS)
    stood = min(signs)
    return stood if stood >= patience else None


def held_for(gang: Sequence[Seen], ranks: Sequence[int]) -> float:
    """How long all of these ranks have been idle in one state of their processes, as their hosts saw every 2 s."""
    held = [min(seen.state_seconds, seen.idle_seconds) for seen in gang if seen.rank in ranks]
    return min(held, default=0.0) if len(held) == len(ranks) else 0.0


def had_progressed(gang: Sequence[Seen]) -> bool:
    """Whether a rank has completed a step: before its first, a gang compiles, downloads and reads for as long as it
    takes."""
    return any((seen.step or 0) > 0 for seen in gang)


def has_announced(gang: Sequence[Seen]) -> bool:
    """Whether a rank has said that it does long work of its own."""
    return any(seen.doing and not seen.has_left for seen in gang if not seen.ended)
