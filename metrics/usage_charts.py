"""Plotly figure of the use of slots over time. The page gives it its colours, fonts and theme, as to metrics.charts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from metrics.charts import Figure

#: Stacks differ by pattern, not by colour alone; each reads on light and dark paper.
_STYLES = [
    ("#2f6fd0", ""), ("#c98a06", "/"), ("#7d858c", "."), ("#8a5fb8", "\\"), ("#2f6fd0", "x"), ("#c98a06", "-"),
    ("#7d858c", "|"),
]  # fmt: skip
#: more are drawn together
MOST_STACKS = len(_STYLES)
OTHERS = ("#7d858c", "+")
_TICKS = {"day": "%b %d", "month": "%b %Y"}

Stack = tuple[str, Sequence[float]]


def usage_figure(title: str, unit: str, periods: Sequence[str], stacks: Sequence[Stack]) -> Figure:
    """Slot-hours by period as stacked bars; `stacks` are (name, hours of each period), the largest first."""
    first, rest = list(stacks[:MOST_STACKS]), stacks[MOST_STACKS:]
    styles = dict(zip([name for name, _ in first], _STYLES, strict=False))
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
        "data": [_trace(name, periods, hours, *styles[name]) for name, hours in first],
        "layout": {
            "title": {"text": title, "font": {"size": 13}},
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


def _trace(
    name: str, periods: Sequence[str], hours: Sequence[float], colour: str, pattern: str
) -> dict[str, Any]:
    return {
        "type": "bar",
        "name": name,
        "x": list(periods),
        "y": [round(value, 4) for value in hours],
        "hovertemplate": "%{y:,.4~g} slot-hours",
        "marker": {
            "color": colour,
            "pattern": {"shape": pattern, "fillmode": "overlay", "fgcolor": "#ffffff", "fgopacity": 0.55},
        },
    }
