"""Curves as an SVG of a few kilobytes: both axes logarithmic, a color and a name for each, for light and dark pages."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 720, 340
LEFT, RIGHT, TOP, BOTTOM = 64, 190, 40, 46
COLORS = 4
#: The colors of static/css/base.css; a page that shows the file as an image gets those of the reader's system.
_STYLE = """
text { font: 12px ui-sans-serif, system-ui, sans-serif; fill: #5d646b } .title { font-weight: 700; fill: #1c1f22 }
.paper { fill: #fffefb } .grid { stroke: #e2dfd8 } .curve { fill: none; stroke-width: 2 }
.a { stroke: #2f6fd0 } .b { stroke: #1f8a55 } .c { stroke: #c98a06 } .d { stroke: #93399c }
circle, .key { stroke: none } .fa { fill: #2f6fd0 } .fb { fill: #1f8a55 } .fc { fill: #c98a06 } .fd { fill: #93399c }
@media (prefers-color-scheme: dark) {
  text { fill: #98a2ab } .title { fill: #e4e7ea } .paper { fill: #14181b } .grid { stroke: #23292e }
  .a { stroke: #6aa6ff } .b { stroke: #43c383 } .c { stroke: #f0b23a } .d { stroke: #dd8fe6 }
  .fa { fill: #6aa6ff } .fb { fill: #43c383 } .fc { fill: #f0b23a } .fd { fill: #dd8fe6 }
}
"""


@dataclass(frozen=True)
class Curve:
    """Points in the order of x, all above 0."""

    name: str
    points: Sequence[tuple[float, float]]


class _Axis:
    """Whole powers of ten about some values, on a line from one pixel to another."""

    def __init__(self, values: Iterable[float], first: float, last: float) -> None:
        logs = [math.log10(value) for value in values]
        self._low, self._first = math.floor(min(logs) + 1e-9), first
        self._high = max(math.ceil(max(logs) - 1e-9), self._low + 1)
        self._step = (last - first) / (self._high - self._low)

    def at(self, value: float) -> float:
        return self._first + (math.log10(value) - self._low) * self._step

    def ticks(self) -> list[float]:
        return [10.0**power for power in range(self._low, self._high + 1)]


def svg(title: str, across: str, curves: Sequence[Curve]) -> str:
    """The picture, with `across` under the horizontal axis; the title says what is on the other one."""
    assert len(curves) <= COLORS
    points = [point for curve in curves for point in curve.points]
    x = _Axis((point[0] for point in points), LEFT, WIDTH - RIGHT)
    y = _Axis((point[1] for point in points), HEIGHT - BOTTOM, TOP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style>",
        f'<rect class="paper" width="{WIDTH}" height="{HEIGHT}"/>',
        f'<text class="title" x="{LEFT}" y="24">{escape(title)}</text>',
        f'<text x="{(LEFT + WIDTH - RIGHT) // 2}" y="{HEIGHT - 8}" text-anchor="middle">{escape(across)}</text>',
    ]
    for tick in x.ticks():
        at = f"{x.at(tick):.0f}"
        parts.append(f'<line class="grid" x1="{at}" x2="{at}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>')
        parts.append(f'<text x="{at}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{short(tick)}</text>')
    for tick in y.ticks():
        at = f"{y.at(tick):.0f}"
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at}" y2="{at}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{at}" dy="4" text-anchor="end">{short(tick)}</text>')
    names: list[float] = []
    for color, curve in sorted(
        zip("abcd", curves, strict=False), key=lambda pair: y.at(pair[1].points[-1][1])
    ):
        parts += _drawn(curve, color, x, y)
        names.append(max(y.at(curve.points[-1][1]) + 4, names[-1] + 16 if names else 0))
        parts.append(
            f'<text class="key f{color}" x="{WIDTH - RIGHT + 12}" y="{names[-1]:.0f}">{escape(curve.name)}</text>'
        )
    return "\n".join([*parts, "</svg>", ""])


def _drawn(curve: Curve, color: str, x: _Axis, y: _Axis) -> list[str]:
    places = [(f"{x.at(a):.1f}", f"{y.at(b):.1f}") for a, b in curve.points]
    line = " ".join(map(",".join, places))
    dots = [f'<circle class="f{color}" cx="{a}" cy="{b}" r="3"/>' for a, b in places]
    return [f'<polyline class="curve {color}" points="{line}"/>', *dots]


def short(value: float) -> str:
    """1000000 as 1 M, 0.01 as it is."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g} {letter}"
    return f"{value:g}"
