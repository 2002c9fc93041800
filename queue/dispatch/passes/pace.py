"""Keeps passes from following each other so closely that they take more than a part of the time.

Under a flood of short work nearly every submission and every end asks for a pass, while one pass serves all that came
before it. The first ones are made at once. Once passes have taken more than their part, they rest, for no longer than
LONGEST_REST_SECONDS: so passes of up to 0.1 s keep to their part, and longer ones take more of the time. What comes
within a rest waits until it is over, be it a single edit after a pass of more than SAVED_SECONDS; what comes later does
not wait. Each worker process keeps its own pace: it paces hints, and a beat finds what is due.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from events.announce import wake
from events.paced import Paced

#: the part of the time that passes of a pool may take in one process
PART = 0.3
#: so much of it may be saved up, for passes that follow each other at once
SAVED_SECONDS = 0.3
LONGEST_REST_SECONDS = 0.25


class Pace:
    """`again` is called with a pool's id when its rest is over, if a pass was asked for meanwhile."""

    def __init__(self, again: Callable[[int], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._paced = Paced(lambda pool_id, _: again(pool_id))
        self._clock = clock
        #: pool -> seconds that are left for passes, as of when
        self._left: dict[int, tuple[float, float]] = {}

    def may_pass(self, pool_id: int) -> bool:
        """Whether to pass now. If not, `again` follows."""
        return self._paced.is_due(pool_id, None)

    def took(self, pool_id: int, seconds: float) -> float:
        """A pass took so long; return for how long this process now makes none of the pool."""
        now = self._clock()
        left, at = self._left.get(pool_id, (SAVED_SECONDS, now))
        left = min(SAVED_SECONDS, left + PART * (now - at)) - seconds
        left = max(left, -PART * LONGEST_REST_SECONDS)
        self._left[pool_id] = left, now
        rest = max(0.0, -left / PART)
        if rest:
            self._paced.rest(pool_id, rest)
        return rest


#: of this process
OWN = Pace(lambda pool_id: wake("dispatch.tasks.tick", pool_id))
