"""Asynchronous successive halving by stopping (ASHA), alone or in several brackets (adaptive).

A bracket has rungs, each `divisor` times as long as the one before. A trial that reaches a rung goes on if it
is among the best 1/divisor of those that reached it so far, else it is stopped and a new one takes its place.
"""

from __future__ import annotations

import math
from typing import Any

_WORST = math.inf


def brackets(searcher: dict[str, Any]) -> list[dict[str, Any]]:
    """The empty brackets: [{"rungs": [{"units", "metrics"}], "total", "concurrent", "made"}]."""
    divisor, most, longest = float(searcher["divisor"]), int(searcher["max_trials"]), max_time(searcher)
    if searcher["name"] == "async_halving":
        rungs = [int(searcher["num_rungs"])]
    else:
        rungs = _bracket_rungs(searcher, divisor, most, longest)
    totals = _spread(most, [divisor ** (count - 1) / count for count in rungs])
    concurrent = _concurrent(int(searcher.get("max_concurrent_trials", 16)), divisor, rungs, totals)
    return [
        {
            "rungs": [{"units": units, "metrics": []} for units in _lengths(longest, divisor, count)],
            "total": total,
            "concurrent": at_once,
            "made": 0,
        }
        for count, total, at_once in zip(rungs, totals, concurrent, strict=True)
    ]


def max_time(searcher: dict[str, Any]) -> int:
    """The length of the last rung: max_time, or max_length in whatever unit it is given."""
    if searcher.get("max_time") is not None:
        return int(searcher["max_time"])
    length = searcher.get("max_length")
    return int(next(iter(length.values()))) if isinstance(length, dict) else int(length or 1)


def judge(bracket: dict[str, Any], trial: dict[str, Any], metric: float, time: float, divisor: float) -> bool:
    """Enter a validation (smaller is better) in the rungs it reaches; whether the trial is to be stopped now."""
    rungs = bracket["rungs"]
    while trial["rung"] < len(rungs) and time >= rungs[trial["rung"]]["units"]:
        place = _enter(rungs[trial["rung"]]["metrics"], metric)
        count = len(rungs[trial["rung"]]["metrics"])
        trial["rung"] += 1
        if trial["rung"] == len(rungs) or place >= max(1, int(count / divisor)):
            return True
    return False


def give_up(bracket: dict[str, Any], trial: dict[str, Any]) -> None:
    """A trial that ended early counts as the worst of the rung it was on the way to."""
    if trial["rung"] < len(bracket["rungs"]):
        _enter(bracket["rungs"][trial["rung"]]["metrics"], _WORST)


def _enter(metrics: list[float | None], metric: float) -> int:
    """Insert in order, behind equals; the place it took. The worst is kept as null: JSON knows no infinity."""
    place = sum(other is not None and other <= metric for other in metrics)
    if math.isinf(metric) or math.isnan(metric):
        metrics.append(None)
        return len(metrics) - 1
    metrics.insert(place, metric)
    return place


def _bracket_rungs(searcher: dict[str, Any], divisor: float, trials: int, longest: int) -> list[int]:
    """Rungs of each bracket, most first."""
    most = min(int(searcher["max_rungs"]), _levels(longest, divisor), _levels(trials, divisor))
    given = [min(int(count), most) for count in searcher.get("bracket_rungs") or []]
    if given:
        return sorted(given, reverse=True)
    first = {"standard": (most - 1) // 2 + 1, "conservative": 1, "aggressive": most}[searcher["mode"]]
    return list(range(most, first - 1, -1))


def _levels(size: int, divisor: float) -> int:
    """1 + the whole part of log_divisor(size), exact for exact powers."""
    levels, length = 1, divisor
    while length <= size * (1 + 1e-12):
        levels += 1
        length *= divisor
    return levels


def _lengths(longest: int, divisor: float, count: int) -> list[int]:
    return [max(1, int(longest / divisor ** (count - 1 - rung) + 1e-9)) for rung in range(count)]


def _spread(most: int, weights: list[float]) -> list[int]:
    totals = [max(1, int(weight / sum(weights) * most + 1e-9)) for weight in weights]
    totals[0] += max(0, most - sum(totals))
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
