"""`experiment describe --metrics` and `--outdir`: experiments, trials and reports, as three tables or files."""

from __future__ import annotations

import argparse
from contextlib import redirect_stdout
from pathlib import Path
from typing import List, Sequence, Tuple

from trainmaster.cli import output, workloads
from trainmaster.cli.output import Column, say
from trainmaster.client import Client, Json

#: title, name of its file, rows, columns
Table = Tuple[str, str, Sequence[Json], Sequence[Column]]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--metrics", action="store_true", help="include everything the trials have reported, by step"
    )
    parser.add_argument(
        "--outdir", type=Path, metavar="DIR", help="write CSV files to this folder instead of printing"
    )


def show(client: Client, tables: Sequence[Table], trials: Sequence[Json], args: argparse.Namespace) -> None:
    """Print the tables and that of the trials' reports, or write them to experiments.csv, trials.csv, workloads.csv."""
    works: List[Json] = []
    for trial in trials:
        works += workloads.of_trial(client, int(trial["id"]))
    rows = workloads.by_step(works)
    columns = workloads.step_columns(rows, args.metrics)
    for title, name, found, headings in [*tables, ("Workloads", "workloads", rows, columns)]:
        if args.outdir:
            _write(args.outdir / f"{name}.csv", found, headings)
        else:
            print(f"{title}:")
            output.show(found, headings, args.output)
            print()


def _write(path: Path, rows: Sequence[Json], columns: Sequence[Column]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file, redirect_stdout(file):
        output.show(rows, columns, "csv")
    say(f"Wrote {path}")
