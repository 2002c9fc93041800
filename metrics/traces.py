"""What Plotly draws, as plain dicts: every kind of line, band and bar, and the colors and words that charts share.

A page adds its colors of paper and ink, fonts and theme (static/js/charts/theme.js); here are data and axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from metrics.packing import Floats
from metrics.series import Series

Figure = dict[str, Any]
Trace = dict[str, Any]

#: Each reads on light and dark paper. Charts drawn in the browser have the same: static/js/charts/traces.js.
#: Charts use a second sign besides them: a dash, a mark or a pattern.
BLUE, AMBER, GREEN, PINK, PURPLE, GRAY = "#2f6fd0", "#c98a06", "#0f8f6b", "#b5467b", "#8a5fb8", "#7d858c"
COLORS = (BLUE, AMBER, GREEN, PINK, PURPLE, "#3f93a8", "#b4552d", "#6b8e23", GRAY, "#d0553f")
#: how bars differ: color and pattern
PATTERNS = ((BLUE, ""), (AMBER, "/"), (GRAY, "."), (PURPLE, "\\"), (BLUE, "x"), (AMBER, "-"), (GRAY, "|"))
#: Plotly's word for a line, and SVG's
_DASHES = (("solid", ""), ("dash", "5 3"))
#: as many lines differ by color and dash together
MOST_TRIALS = len(COLORS) * len(_DASHES)
#: With more lines, the table beside the chart is its legend.
MOST_IN_LEGEND = 6
#: Longer curves have no marks: they would be a band.
_MARKED_UP_TO = 50
LEGEND = {"orientation": "h", "y": 1, "yanchor": "bottom", "font": {"size": 11}}


@dataclass(frozen=True)
class Look:
    """How one trial is drawn: its color, Plotly's word for its line, and SVG's."""

    color: str
    dash: str
    dasharray: str

    def line(self, width: float) -> dict[str, Any]:
        """Plotly's line of this look."""
        return {"color": self.color, "width": width, "dash": self.dash}


def look(place: int) -> Look:
    """Return the look of the trial at this place in the address, from 0; looks repeat beyond MOST_TRIALS."""
    return Look(COLORS[place % len(COLORS)], *_DASHES[place // len(COLORS) % len(_DASHES)])


def over_steps(name: str, *, legend: bool) -> dict[str, Any]:
    """The layout of the figure `name`, whose curves go over steps; its title, size and paper are the page's."""
    return {
        "showlegend": legend,
        "legend": LEGEND,
        "hovermode": "x unified",
        "xaxis": {"title": {"text": "steps completed"}},
        "yaxis": {"automargin": True},
        "uirevision": name,  # zoom and hidden curves stay when new points come
    }


def amounts(revision: str, xaxis: dict[str, Any], unit: str, **more: Any) -> dict[str, Any]:
    """The layout of amounts from zero up, as lines or stacked bars; zoom stays as long as `revision` does."""
    return {
        "barmode": "stack",
        "hovermode": "x unified",
        "xaxis": xaxis,
        "yaxis": {"automargin": True, "rangemode": "tozero", "title": {"text": unit}},
        "uirevision": revision,
        **more,
    }


def value_axis(name: str, *, is_log: bool = False) -> dict[str, Any]:
    """The y axis of one metric."""
    return {"title": {"text": name}, "automargin": True, "type": "log" if is_log else "linear"}


def curve(name: str, each: Series, line: dict[str, Any], *, marker: int | None = None, **more: Any) -> Trace:
    """A metric over steps. `marker`: the size of the marks, if there are any."""
    return {
        "type": "scatter",
        "name": name,
        "x": plain(each.steps),
        "y": plain(each.values),
        "connectgaps": False,
        "mode": "lines" if marker is None else "lines+markers",
        "line": line,
        **({} if marker is None else {"marker": {"size": marker}}),
        **more,
    }


def reduced(each: Series) -> str:
    """What follows the name of a curve that is drawn with fewer points than were reported."""
    return f" ({len(each.steps):,} of {each.total:,} points)" if each.is_reduced else ""


def marked(each: Series, size: int) -> int | None:
    """The size of the marks of a curve: None for one that is too long to have any."""
    return size if len(each.steps) <= _MARKED_UP_TO else None


def over_time(
    name: str, times: Floats, values: Floats, unit: str, line: dict[str, Any], *, gap_seconds: float
) -> Trace:
    """A line over `times` (epoch seconds), with nothing drawn between two that are further apart than the gap."""
    gaps = _gaps(times, gap_seconds)
    return {
        "type": "scatter",
        "mode": "lines" if len(times) > 1 else "markers",
        "name": name,
        "x": _parted(times, gaps, _milliseconds),
        "y": _parted(values, gaps, _rounded),
        "connectgaps": False,
        "line": line,
        "hovertemplate": f"%{{y:.4~g}} {unit}",
    }


def band(name: str, times: Floats, low: Floats, high: Floats, color: str, *, gap_seconds: float) -> Trace:
    """What lies between the lowest and the highest value at each time, a closed shape for each stretch."""
    x: list[float | None] = []
    y: list[float | None] = []
    gaps = _gaps(times, gap_seconds)
    for at, least, most in zip(*(np.split(each, gaps) for each in (times, low, high)), strict=True):
        x += [*_milliseconds(at), *reversed(_milliseconds(at)), None]
        y += [*_rounded(least), *reversed(_rounded(most)), None]
    return shade(name, x, y, color)


def shade(name: str, x: Sequence[float | None], y: Sequence[float | None], color: str) -> Trace:
    """A faint shape between the points, in this color; None ends one and begins another."""
    red, green, blue = (int(color[start : start + 2], 16) for start in (1, 3, 5))
    return {
        "type": "scatter",
        "mode": "lines",
        "line": {"width": 0},
        "fill": "toself",
        "fillcolor": f"rgba({red},{green},{blue},0.16)",
        "name": name,
        "showlegend": False,
        "hoverinfo": "skip",
        "x": x,
        "y": y,
    }


def bars(
    name: str, x: Sequence[Any], y: Sequence[Any], color: str, *, pattern: str | None = None, **more: Any
) -> Trace:
    """One bar for each x; stacks that stand on each other have a pattern each."""
    marker: dict[str, Any] = {"color": color}
    if pattern is not None:
        marker["pattern"] = {"shape": pattern, "fillmode": "overlay", "fgcolor": "#ffffff", "fgopacity": 0.55}
    return {"type": "bar", "name": name, "x": list(x), "y": list(y), "marker": marker, **more}


def plain(values: Floats) -> list[float | int | None]:
    """For JSON, which has neither NaN nor infinities: those become gaps. Whole numbers lose their `.0`."""
    return [
        None if not np.isfinite(value) else int(value) if value.is_integer() and abs(value) < 2**53 else value
        for value in values.tolist()
    ]


def _gaps(times: Floats, seconds: float) -> np.ndarray[Any, Any]:
    return np.flatnonzero(np.diff(times) > seconds) + 1


def _parted(values: Floats, gaps: np.ndarray[Any, Any], written: Any) -> list[float | None]:
    """The values with a None at each gap, at which Plotly lifts its pen."""
    found: list[float | None] = []
    for piece in np.split(values, gaps):
        found += [None] * bool(found) + written(piece)
    return found


def _rounded(values: Floats) -> list[float]:
    return list(np.round(values, 3).tolist())


def _milliseconds(times: Floats) -> list[float]:
    return [round(at * 1000) for at in times.tolist()]
