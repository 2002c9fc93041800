"""What trials have reported, as Determined's client prints it: by report and checkpoint, or one row a step."""

from __future__ import annotations

import argparse
import json
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

from trainmaster.cli import output
from trainmaster.cli.output import Column, local_time, say, state
from trainmaster.client import Client, Json

#: title, name of its file, rows, columns
Table = Tuple[str, str, Sequence[Json], Sequence[Column]]

#: as the server names the groups of its summary
_GROUPS = {"avg_metrics": "training", "validation_metrics": "validation"}


def of_trial(client: Client, trial_id: int, limit: int = 0, offset: int = 0) -> List[Json]:
    """Reports and checkpoints in the order of their steps: {"kind": "training", "validation" or "checkpoint", …}."""
    found = client.pages(f"/api/v1/trials/{trial_id}/workloads", "workloads", limit=limit, offset=offset)
    return [
        {**part, "kind": kind, "trialId": trial_id}
        for work in found
        for kind, part in work.items()
        if kind in ("training", "validation", "checkpoint") and part
    ]


def columns(with_metrics: bool) -> List[Column]:
    """Return the columns of a table with a row for each report or checkpoint."""
    found = [
        Column("# of Batches", lambda row: row.get("totalBatches")),
        Column("Report Time", lambda row: local_time(row.get("endTime"))),
        Column("Checkpoint", lambda row: state(row["state"]) if row["kind"] == "checkpoint" else None),
        Column("Checkpoint UUID", lambda row: row.get("uuid")),
        Column("Checkpoint Metadata", lambda row: row.get("metadata") or None),
        Column("Validation Metrics", lambda row: _values(row) if row["kind"] == "validation" else None),
    ]
    if with_metrics:
        found.append(
            Column("Workload Metrics", lambda row: _values(row) if row["kind"] == "training" else None)
        )
    return found


def _values(row: Json) -> Optional[Json]:
    return (row.get("metrics") or {}).get("avgMetrics")


def by_step(workloads: Sequence[Json]) -> List[Json]:
    """One row for each trial and step: {"trialId", "totalBatches", "training", "validation", "checkpoint"}."""
    rows: Dict[Any, Json] = {}
    for work in workloads:
        key = (work["trialId"], work.get("totalBatches", 0))
        row = rows.setdefault(key, {"trialId": key[0], "totalBatches": key[1]})
        before = row.get(work["kind"])
        if before and work["kind"] == "training":  # groups of the user's own count as training
            values = {**(_values(before) or {}), **(_values(work) or {})}
            work = {**before, "metrics": {"avgMetrics": values}}
        row[work["kind"]] = work
    return [rows[key] for key in sorted(rows)]


def step_columns(rows: Sequence[Json], with_metrics: bool) -> List[Column]:
    """Return the columns of a table with a row per step and, if wanted, a column for each numeric metric."""
    training, validation = (_names(rows, kind) if with_metrics else [] for kind in ("training", "validation"))
    return [
        Column("Trial ID", lambda row: row["trialId"]),
        Column("# of Batches", lambda row: row["totalBatches"]),
        Column("Report Time", lambda row: local_time((row.get("training") or {}).get("endTime"))),
        *[_metric("Training", name) for name in training],
        Column("Checkpoint State", lambda row: state((row.get("checkpoint") or {}).get("state", ""))),
        Column(
            "Checkpoint Report Time", lambda row: local_time((row.get("checkpoint") or {}).get("endTime"))
        ),
        Column(
            "Validation Report Time", lambda row: local_time((row.get("validation") or {}).get("endTime"))
        ),
        *[_metric("Validation", name) for name in validation],
    ]


def _metric(kind: str, name: str) -> Column:
    return Column(
        f"{kind} Metric: {name}", lambda row: exact((_values(row.get(kind.lower()) or {}) or {}).get(name))
    )


def _names(rows: Sequence[Json], kind: str) -> List[str]:
    return sorted(
        {
            name
            for row in rows
            for name, value in (_values(row.get(kind) or {}) or {}).items()
            if isinstance(value, (int, float)) or value in ("NaN", "Infinity", "-Infinity")
        }
    )


def exact(value: Any) -> Any:
    """A number with all its digits: tables for people round, files must not."""
    return json.dumps(value) if isinstance(value, float) else value


def groups(trial: Json) -> List[str]:
    """The groups of a trial's metrics, by its summary."""
    return [_GROUPS.get(name, name) for name in trial.get("summaryMetrics") or {}]


def reports(client: Client, trial_id: int, group: str) -> List[Json]:
    """All reports of a group, by step: {"group", "totalBatches", "trialRunId", "endTime", "values"}."""
    query = [("trialIds", trial_id), ("group", group)]
    kind = "validation_metrics" if group == "validation" else "avg_metrics"
    return [
        {**report, "values": report["metrics"].get(kind) or {}}
        for line in client.lines("/api/v1/trials/metrics/trial_metrics", query)
        for report in line["metrics"]
    ]


def report_columns(rows: Sequence[Json]) -> List[Column]:
    """Step, group and time of a report, and a column for each name."""
    names = sorted({name for row in rows for name in row["values"]})

    def value_of(name: str) -> Column:
        return Column(name, lambda row: exact(row["values"].get(name)))

    return [
        Column("# of Batches", lambda row: row["totalBatches"]),
        Column("Group", lambda row: row["group"]),
        Column("Run", lambda row: row["trialRunId"]),
        Column("Report Time", lambda row: row["endTime"]),
        *[value_of(name) for name in names],
    ]


# --- experiment describe --metrics and --outdir ------------------------------------------------------------------


def add_table_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--metrics", action="store_true", help="include everything the trials have reported, by step"
    )
    parser.add_argument(
        "--outdir", type=Path, metavar="DIR", help="write CSV files to this folder instead of printing"
    )


def show_tables(
    client: Client, tables: Sequence[Table], trials: Sequence[Json], args: argparse.Namespace
) -> None:
    """Print the tables and that of the trials' reports, or write them to experiments.csv, trials.csv, workloads.csv."""
    works: List[Json] = []
    for trial in trials:
        works += of_trial(client, int(trial["id"]))
    rows = by_step(works)
    found_columns = step_columns(rows, args.metrics)
    for title, name, found, headings in [*tables, ("Workloads", "workloads", rows, found_columns)]:
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
