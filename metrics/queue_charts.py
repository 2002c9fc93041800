"""Plotly figures about the queue. The page gives them its colours, fonts and theme, as to metrics.charts."""

from __future__ import annotations

from jobs.queued_time import Day
from metrics.charts import Figure
from metrics.units import of_span


def queued_time_figure(days: list[Day]) -> Figure:
    """The mean wait by day as bars; days on which nothing started stay empty."""
    longest = max((day.seconds or 0.0 for day in days), default=0.0)
    size, unit = of_span(longest)
    seconds = [day.seconds for day in days if day.seconds is not None]
    mean = f"{sum(seconds) / len(seconds) / size:.3g} {unit}" if seconds else "nothing started"
    return {
        "name": "Average time in the queue",
        "described": f"Average time in the queue by day, {len(days)} days: {mean} on average",
        "data": [
            {
                "type": "bar",
                "name": f"{unit} in the queue",
                "x": [day.day.isoformat() for day in days],
                "y": [None if day.seconds is None else day.seconds / size for day in days],
                "customdata": [day.jobs for day in days],
                "hovertemplate": f"%{{y:.3g}} {unit}, %{{customdata}} jobs<extra></extra>",
                "marker": {"color": "#2f6fd0"},
            }
        ],
        "layout": {
            "title": {"text": "Average time in the queue", "font": {"size": 13}},
            "showlegend": False,
            "hovermode": "x unified",
            "margin": {"l": 52, "r": 12, "t": 34, "b": 40},
            "bargap": 0.35,
            "xaxis": {"type": "date", "tickformat": "%b %d", "title": {"text": "day of submission (UTC)"}},
            "yaxis": {"automargin": True, "rangemode": "tozero", "title": {"text": unit}},
            "uirevision": "queued time",
        },
    }
