"""What benchmarks find, a row a figure: each keeps its own, `python -m benchmarks.rows NAME...` prints those of all.

Bounds stand on ratios, shares and counts alone: what is measured side by side holds on any machine, a time does not.
"""

from __future__ import annotations

import json
import os
import sys
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


def table(names: Sequence[str]) -> tuple[str, list[str]]:
    """The rows of these benchmarks, and a sentence for each that could not measure."""
    lines = ["| benchmark | what | here | wanted | goal | |", "|---|---|---|---|---|---|"]
    faults = []
    for name in names:
        kept = KEPT / f"{name}.json"
        if not kept.exists():
            faults.append(f"{name} could not measure: see what it printed above.")
            continue
        for row in (Row(**each) for each in json.loads(kept.read_text())):
            verdict = {None: "", True: "holds", False: "missed"}[row.holds]
            goal = "" if row.goal is None else _short(row.goal)
            here = f"{_short(row.value)} {row.unit}"
            lines.append(f"| {name} | {row.what} | {here} | {row.wanted} | {goal} | {verdict} |")
    return "\n".join(lines), faults


def _short(value: float) -> str:
    """Three digits that count: 0.0123, 1.11, 36,556."""
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def main(names: Sequence[str]) -> int:
    text, faults = table(names)
    print(f"\nOn {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}.\n\n{text}\n")
    for fault in faults:
        print(fault)
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
