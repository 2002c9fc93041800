"""`hang`: what is done about a trial that makes no progress (docs/hangs.md)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator

from scheduling.written_times import HANG_LEAST_SECONDS
from submissions.config.resources import Duration
from submissions.config.section import Section, refuse


def _long_enough(seconds: int) -> int:
    if seconds < HANG_LEAST_SECONDS:
        raise refuse(f"{HANG_LEAST_SECONDS} seconds or more, as a number or text such as 15m or 1h30m")
    return seconds


class Hang(Section):
    after: Annotated[Duration, AfterValidator(_long_enough)] | None = None
    """How long it may make no progress before its ranks are looked at, such as 15m; null uses the pool's."""
    do: Literal["tell", "restart", "restart_elsewhere"] | None = None
    """What is done if two looks prove a hang; null uses the pool's.

    `restart_elsewhere` also avoids the host of the rank that hangs.
    """
