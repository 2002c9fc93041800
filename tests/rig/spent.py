"""Where the time of a run of tests went: its slowest files, and how busy the processors were."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

#: files that are listed; a run of fewer is short
MOST = 10


def busy_and_idle() -> tuple[int, int]:
    """Ticks that all processors have worked and rested since the machine started; zeros where it does not tell."""
    try:
        ticks = [int(each) for each in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    except OSError:
        return 0, 0
    rested = ticks[3] + ticks[4]  # idle, and waiting for a disk
    return sum(ticks) - rested, rested


def lines(reports: Iterable[pytest.TestReport], before: tuple[int, int]) -> Iterator[str]:
    """What is said at the end of a run; `before` are the ticks of its beginning."""
    seconds: Counter[str] = Counter()
    for report in reports:
        seconds[report.nodeid.partition("::")[0]] += report.duration
    for name, spent in seconds.most_common(MOST) if len(seconds) > MOST else ():
        yield f"{spent:.1f}s {name}"
    busy, rested = (now - then for now, then in zip(busy_and_idle(), before, strict=True))
    if seconds and busy + rested:
        yield f"The processors of this machine were busy for {100 * busy / (busy + rested):.0f} % of the time."
