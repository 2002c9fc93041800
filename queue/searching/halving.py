"""The shape of a search that halves: its brackets, the lengths of their rungs, and how many trials each gets.

A bracket has rungs, each `divisor` times as long as the one before (features.md 10.2; ASHA: arXiv 1810.05934).
Exact powers count exactly: 243 = 3^5 allows six rungs with divisor 3.
"""

from __future__ import annotations

from typing import Any


def brackets(searcher: dict[str, Any]) -> list[dict[str, Any]]:
    """The brackets, the one with most rungs first: [{"rungs": [{"units"}], "total", "concurrent"}]."""
    divisor, most, longest = float(searcher["divisor"]), int(searcher["max_trials"]), max_time(searcher)
    if searcher["name"] == "async_halving":
        rungs = [int(searcher["num_rungs"])]
    else:
        rungs = _bracket_rungs(searcher, divisor, most, longest)
    totals = _spread(most, [divisor ** (count - 1) / count for count in rungs])
    concurrent = _concurrent(int(searcher.get("max_concurrent_trials", 16)), divisor, rungs, totals)
    return [
        {
            "rungs": [{"units": units} for units in _lengths(longest, divisor, count)],
            "total": total,
            "concurrent": at_once,
        }
        for count, total, at_once in zip(rungs, totals, concurrent, strict=True)
        if total
    ]


def max_time(searcher: dict[str, Any]) -> int:
    """The length of the last rung: max_time, or max_length in whatever unit it is given."""
    if searcher.get("max_time") is not None:
        return int(searcher["max_time"])
    length = searcher.get("max_length")
    return int(next(iter(length.values()))) if isinstance(length, dict) else int(length or 1)


def stops_once(searcher: dict[str, Any]) -> bool:
    """Whether a trial that is not among the best is stopped for good, and not parked for a promotion.

    By `stop_once` where the config says it. Else a length in the older dialect (`max_length`) searches as the older
    dialect did, by promotion, and `max_time` or `time_metric` as the newer one does.
    """
    if searcher.get("stop_once") is not None:
        return bool(searcher["stop_once"])
    return searcher.get("max_time") is not None or searcher.get("time_metric") is not None


def kept_share(bracket: dict[str, Any], rung: int, divisor: float) -> float:
    """Which part of those that come to `rung` goes on to the next."""
    return 0.0 if rung + 1 == len(bracket["rungs"]) else 1 / divisor


def _bracket_rungs(searcher: dict[str, Any], divisor: float, trials: int, longest: int) -> list[int]:
    """Rungs of each bracket, most first."""
    given = [int(count) for count in searcher.get("bracket_rungs") or []]
    if given:  # as they are: max_rungs and mode stand for what nobody has said
        return sorted(given, reverse=True)
    most = int(searcher["max_rungs"])
    most = min(_levels(longest, divisor, most), _levels(trials, divisor, most))
    first = {"standard": (most - 1) // 2 + 1, "conservative": 1, "aggressive": most}[searcher["mode"]]
    return list(range(most, first - 1, -1))


def _levels(size: int, divisor: float, most: int) -> int:
    """1 + the whole part of log_divisor(size), exact for exact powers; at most `most`."""
    levels, length = 1, divisor
    while levels < most and length <= size * (1 + 1e-12):
        levels += 1
        length *= divisor
    return levels


def _lengths(longest: int, divisor: float, count: int) -> list[int]:
    return [max(1, int(longest / divisor ** (count - 1 - rung) + 1e-9)) for rung in range(count)]


def _spread(most: int, weights: list[float]) -> list[int]:
    """`most` trials by weight; at least one to each bracket, as long as there are any, and never more than `most`."""
    totals = [max(1, int(weight / sum(weights) * most + 1e-9)) for weight in weights]
    totals[0] += max(0, most - sum(totals))
    while sum(totals) > most:  # many brackets for few trials
        largest = max(range(len(totals)), key=lambda index: (totals[index], index))
        totals[largest] -= 1
    return totals


def _concurrent(most: int, divisor: float, rungs: list[int], totals: list[int]) -> list[int]:
    """Trials at once in each bracket; 0 asks for as many as fill the first rung of the smallest bracket."""
    if most == 0 and len(rungs) == 1:
        shares = [max(1, int(divisor ** (rungs[0] - 1) + 1e-9))]
    elif most == 0:
        shares = [max(totals[-1], int(divisor))] * len(rungs)
    else:
        each, rest = divmod(max(most, len(rungs)), len(rungs))
        shares = [each + (index < rest) for index in range(len(rungs))]
    return [min(share, total) for share, total in zip(shares, totals, strict=True)]
