"""Figures about the queue: how long jobs waited."""

from __future__ import annotations

from jobs.queued_time import Day
from metrics.traces import BLUE, Figure, bars, title
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
            bars(
                f"{unit} in the queue",
                [day.day.isoformat() for day in days],
                [None if day.seconds is None else day.seconds / size for day in days],
                BLUE,
                customdata=[day.jobs for day in days],
                hovertemplate=f"%{{y:.3g}} {unit}, %{{customdata}} jobs<extra></extra>",
            )
        ],
        "layout": {
            "title": title("Average time in the queue"),
            "showlegend": False,
            "hovermode": "x unified",
            "margin": {"l": 52, "r": 12, "t": 34, "b": 40},
            "bargap": 0.35,
            "xaxis": {"type": "date", "tickformat": "%b %d", "title": {"text": "day of submission (UTC)"}},
            "yaxis": {"automargin": True, "rangemode": "tozero", "title": {"text": unit}},
            "uirevision": "queued time",
        },
    }
