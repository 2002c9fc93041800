"""What a search decided about a trial, in words."""

from __future__ import annotations

from typing import Any


def judgment(why: dict[str, Any], unit: str = "units") -> str:
    """Describe a searching.Judgment of an event row: `2nd of 9 at rung 1 (4 units), 0.31; the best 2 are promoted`."""
    metric = "not a number" if why["metric"] is None else f"{why['metric']:.6g}"
    place = f"{ordinal(why['place'])} of {why['among']} at rung {why['rung'] + 1} ({why['units']} {unit}), {metric}"
    if why["outcome"] == "finished":
        return f"{place}; this was the last rung"
    if why["keeps"] == 0:
        return f"{place}; none is promoted yet"
    best = f"best {why['keeps']} are" if why["keeps"] > 1 else "best one is"
    return f"{place}; the {best} promoted"


def ordinal(number: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th") if number % 100 not in (11, 12, 13) else "th"
    return f"{number}{ending}"
