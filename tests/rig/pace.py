"""How slow this machine is, so that the limits of waits fit it: a slow machine is to be slow, not red."""

from __future__ import annotations

import functools
import json
import os
import time
from collections.abc import Callable

FACTOR = "TESTS_PACE"  # for all processes of one run of tests
#: what the work below takes on a quiet machine on which the limits were found
REFERENCE_SECONDS = 0.13
MOST = 8.0
#: from one look at a condition to the next: an eighth of the time that it has taken, but for these ends
LEAST_BETWEEN_SECONDS, MOST_BETWEEN_SECONDS = 0.05, 0.4
_WORK = {str(number): [number, {"text": "x" * (number % 50)}] for number in range(2_000)}


@functools.cache
def factor() -> float:
    """By how much longer than on that machine work takes here, from 1 to 8: measured once, by the first process."""
    if FACTOR not in os.environ:
        begin = time.perf_counter()
        for _ in range(60):
            json.loads(json.dumps(_WORK))
        measured = (time.perf_counter() - begin) / REFERENCE_SECONDS
        os.environ[FACTOR] = f"{min(MOST, max(1.0, measured)):.2f}"
    return float(os.environ[FACTOR])


def wait_until(condition: Callable[[], bool], limit_seconds: float) -> bool:
    """Poll the condition until it holds (True) or the limit, as long as it is on this machine, has passed (False).

    What takes long is asked for less often: each look costs the server and the browser as much as a person's would.
    """
    begin = time.monotonic()
    while not condition():
        waited = time.monotonic() - begin
        if waited >= limit_seconds * factor():
            return False
        time.sleep(min(MOST_BETWEEN_SECONDS, max(LEAST_BETWEEN_SECONDS, waited / 8)))
    return True
