"""The figure of the use of slots over time."""

from __future__ import annotations

from collections.abc import Sequence

from metrics.traces import GRAY, PATTERNS, Figure, bars
from metrics.traces import title as title_of

#: more are drawn together
MOST_STACKS = len(PATTERNS)
OTHERS = (GRAY, "+")
_TICKS = {"day": "%b %d", "month": "%b %Y"}

Stack = tuple[str, Sequence[float]]


def usage_figure(title: str, unit: str, periods: Sequence[str], stacks: Sequence[Stack]) -> Figure:
    """Slot-hours by period as stacked bars; `stacks` are (name, hours of each period), the largest first."""
    first, rest = list(stacks[:MOST_STACKS]), stacks[MOST_STACKS:]
    styles = dict(zip([name for name, _ in first], PATTERNS, strict=False))
    if rest:
        others = f"{len(rest)} others"
        first.append((others, [sum(hours) for hours in zip(*(hours for _, hours in rest), strict=True)]))
        styles[others] = OTHERS
    total = sum(sum(hours) for _, hours in stacks)
    parts = ", ".join(f"{name} {sum(hours):.4g}" for name, hours in first)
    return {
        "name": title,
        "described": f"{title}, {len(periods)} {unit}s: {total:.4g} slot-hours"
        + (f": {parts}" if parts else ""),
        "data": [
            bars(
                name,
                periods,
                [round(value, 4) for value in hours],
                styles[name][0],
                pattern=styles[name][1],
                hovertemplate="%{y:,.4~g} slot-hours",
            )
            for name, hours in first
        ],
        "layout": {
            "title": title_of(title),
            "barmode": "stack",
            "bargap": 0.25,
            "showlegend": len(first) > 1,
            "legend": {"orientation": "h", "y": -0.12},
            "hovermode": "x unified",
            "margin": {"l": 52, "r": 12, "t": 34, "b": 40},
            "xaxis": {"type": "date", "tickformat": _TICKS[unit], "tickangle": 0},
            "yaxis": {"automargin": True, "rangemode": "tozero", "title": {"text": "slot-hours"}},
            "uirevision": title,
        },
    }
