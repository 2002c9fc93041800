"""What benchmarks find, a row a figure: each keeps its own, and `benchmarks.runs` prints the table of all.

Bounds stand on ratios, shares and counts alone: what is measured side by side holds on any machine, a time does not.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
KEPT = ROOT / "build" / "bench"
#: `make bench QUICK=1`: smaller sizes; the figures are good enough to see a loss
QUICK = bool(os.environ.get("QUICK"))


@dataclass(frozen=True)
class Row:
    """`least` and `most` must hold; `goal` is where we are going. All are in `unit`, such as "ms" or "x Slurm"."""

    what: str
    value: float
    unit: str
    least: float | None = None
    most: float | None = None
    goal: float | None = None

    @property
    def holds(self) -> bool | None:
        """None: nothing must."""
        if self.least is None and self.most is None:
            return None
        return (self.least is None or self.value >= self.least) and (
            self.most is None or self.value <= self.most
        )

    @property
    def wanted(self) -> str:
        bounds = (("at least", self.least), ("at most", self.most))
        return ", ".join(f"{word} {_short(bound)}" for word, bound in bounds if bound is not None)


def size(name: str, usual: int, quick: int) -> int:
    """How much to measure: what the environment variable says, else the usual amount, or less if it shall be quick."""
    return int(os.environ.get(name) or (quick if QUICK else usual))


def finish(report: Path, text: str, rows: Iterable[Row]) -> int:
    """Write the report, print it, keep the rows. The exit code is 0: a bound that is missed is a word in the table.

    A benchmark fails only if it could not measure, by an exception.
    """
    found = list(rows)
    if not QUICK:
        report.parent.mkdir(exist_ok=True)
        report.write_text(text)
    KEPT.mkdir(parents=True, exist_ok=True)
    (KEPT / f"{report.stem}.json").write_text(json.dumps([asdict(row) for row in found]))
    print(text)
    return 0


def not_measured(report: Path, why: str) -> int:
    """Keep the reason why this machine cannot measure it, for the table, and print it; the exit code."""
    KEPT.mkdir(parents=True, exist_ok=True)
    (KEPT / f"{report.stem}.json").write_text(json.dumps(why))
    print(f"Not measured, because {why}.")
    return 2


def table(names: Sequence[str]) -> tuple[str, list[str]]:
    """A line for each row of these benchmarks, and for each that has none the reason; and those that failed."""
    lines = ["| benchmark | what | here | wanted | goal | |", "|---|---|---|---|---|---|"]
    failed = [name for name in names if not (KEPT / f"{name}.json").exists()]
    for name in names:
        if name in failed:
            lines.append(f"| {name} | not measured, because it failed: see what it printed above | | | | |")
            continue
        kept = json.loads((KEPT / f"{name}.json").read_text())
        if isinstance(kept, str):
            lines.append(f"| {name} | not measured, because {kept} | | | | |")
            continue
        for row in (Row(**each) for each in kept):
            verdict = {None: "", True: "holds", False: "missed"}[row.holds]
            goal = "" if row.goal is None else _short(row.goal)
            here = f"{_short(row.value)} {row.unit}"
            lines.append(f"| {name} | {row.what} | {here} | {row.wanted} | {goal} | {verdict} |")
    return "\n".join(lines), failed


def _short(value: float) -> str:
    """Three digits that count: 0.0123, 1.11, 36,556."""
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"
