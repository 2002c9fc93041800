"""`trial`: look at one, read its log, end it."""

from __future__ import annotations

import argparse
import io
import json
import tarfile
import time
from pathlib import Path
from typing import Any, Iterator, List, Optional, Tuple

from trainmaster.cli import (
    checkpoint,
    output,
    rank_pulse,
    tensorboard,
    workloads,
)
from trainmaster.cli.arguments import Adder
from trainmaster.cli.errors import CliError
from trainmaster.cli.experiment import TRIALS
from trainmaster.cli.log_options import add_log_options
from trainmaster.cli.log_retention import add_set
from trainmaster.cli.log_stream import log_of_trial, show_log
from trainmaster.cli.output import Column, done
from trainmaster.client import Client, Json
from trainmaster.quantities import counted


def add(add_noun: Adder) -> None:
    verbs = add_noun("trial", aliases=["t"], help="manage the trials of experiments").add_verbs()
    parser = verbs.add_parser(
        "describe", "trial_id", help="show its state, progress and results", run=_describe
    )
    parser.add_argument("--metrics", action="store_true", help="include the metrics of each report")
    parser.add_argument(
        "--metrics-summary",
        action="store_true",
        help="include the min, max, mean and last value of each metric",
    )
    output.add_part(parser)  # of the reports and checkpoints
    output.add_format(parser)
    parser = verbs.add_parser("metrics", help="show everything it has reported, one column per metric")
    parser.add_argument("trial_id", type=int)
    parser.add_argument(
        "--group",
        action="append",
        metavar="NAME",
        help="the metric group: training, validation or another; repeatable",
    )
    output.add_format(parser)
    parser.set_defaults(run=_metrics, action="show the metrics")
    parser = verbs.add_parser(
        "logs", "trial_id", help="show its log, of all ranks or some", run=_logs, action="show the log"
    )
    add_log_options(parser)
    verbs.add_parser("kill", "trial_id", help="stop it immediately", run=_kill)
    add_set(verbs, "trial")
    checkpoint.add_download_of_trial(verbs)
    _add_timings(verbs)
    _add_goodput(verbs)
    _add_support_bundle(verbs)
    tensorboard.add(verbs, "trial")
    rank_pulse.add(verbs, "trial_id", int, lambda client, args: str(client.trial(args.trial_id)["taskId"]))


_DETAILS = [
    TRIALS[0],
    Column("Experiment ID", lambda row: row["experimentId"]),
    *TRIALS[1:],
    Column("Restarts", lambda row: row.get("restarts")),
    Column("Runner state", lambda row: row.get("runnerState")),
    Column("Searcher metric", lambda row: row.get("searcherMetricValue")),
    Column("Checkpoints", lambda row: row.get("checkpointCount")),
    Column("Task", lambda row: row.get("taskId")),
    Column("Log Policies", lambda row: ", ".join(row.get("logLabels") or [])),
    Column("Log kept", lambda row: _kept(row.get("logRetentionDays"))),
    Column("Failure", lambda row: (row.get("failure") or {}).get("sentence")),
]


def _kept(days: Optional[int]) -> Optional[str]:
    return None if days is None else "forever" if days == -1 else f"{counted(days, 'day')} after the end"


def _describe(client: Client, args: argparse.Namespace) -> None:
    trial = client.trial(args.trial_id)
    if args.output in output.STRUCTURED:
        more = {"workloads": _workloads(client, args)} if args.metrics else {}
        output.structured({**trial, **more}, args.output)
        return
    output.show_one(trial, _DETAILS, args.output)
    if args.output == "table":
        for line in (trial.get("failure") or {}).get("lines", []):
            print(f"  | {line}")
    if args.output == "table" or args.metrics:
        print()
        _show_workloads(_workloads(client, args), args)
    if args.metrics_summary:
        print(json.dumps(trial.get("summaryMetrics") or {}, indent=4))


def _workloads(client: Client, args: argparse.Namespace) -> List[Json]:
    return workloads.of_trial(client, args.trial_id, output.limit(args), args.offset)


def _show_workloads(rows: List[Json], args: argparse.Namespace) -> None:
    print("Workloads:")
    told = rows if args.metrics else [row for row in rows if row["kind"] != "training"]
    output.show(told, workloads.columns(args.metrics), args.output)


def _metrics(client: Client, args: argparse.Namespace) -> None:
    known = workloads.groups(client.trial(args.trial_id))
    rows = [row for group in args.group or known for row in workloads.reports(client, args.trial_id, group)]
    rows.sort(key=lambda row: int(row["totalBatches"]))
    output.show(rows, workloads.report_columns(rows), args.output)


def _logs(client: Client, args: argparse.Namespace) -> int:
    return show_log(client, log_of_trial(client, args.trial_id), args)


def _kill(client: Client, args: argparse.Namespace) -> None:
    client.post(f"/api/v1/trials/{args.trial_id}/kill")
    done(f"Killed trial {args.trial_id}")


# --- trial timings ----------------------------------------------------------------------------------------------


_TIMINGS = [
    Column("Name", lambda row: row["name"]),
    Column("Count", lambda row: row["count"]),
    Column("Mean", lambda row: row["mean"], lambda value: _seconds(value)),
    Column("p50", lambda row: row["p50"], lambda value: _seconds(value)),
    Column("p95", lambda row: row["p95"], lambda value: _seconds(value)),
    Column("Of steps", lambda row: row["share"], lambda value: output.percent(value)),
]


def _add_timings(verbs: Any) -> None:
    parser = verbs.add_parser("timings", help="show where the time of a step goes, and which rank is slow")
    parser.add_argument("trial_id", type=int)
    parser.add_argument("--first-step", type=int, help="only from this step")
    parser.add_argument("--last-step", type=int, help="only up to this step")
    output.add_format(parser)
    parser.set_defaults(run=_timings, action="show the timings")


def _timings(client: Client, args: argparse.Namespace) -> None:
    window = (("firstStep", args.first_step), ("lastStep", args.last_step))
    query = [("points", 0), *((name, step) for name, step in window if step is not None)]
    found = client.get(f"/api/v1/trials/{args.trial_id}/timings", query)
    if args.output in output.STRUCTURED:
        output.structured(found, args.output)
        return
    if args.output == "table" and not found["summary"] and not found["throughput"]:
        print(
            f"Trial {args.trial_id} has no timings. To record them, use core_context.profiler.timing(name) in its code."
        )
        return
    output.show(found["summary"], _TIMINGS, args.output)
    if args.output == "table":
        for rate in found["throughput"]:
            print(f"{output.clean(rate['name'])}: {rate['perSecond']:.4g}/s, all ranks together")
        if "straggler" in found:
            print(output.clean(_sentence(found["straggler"])))


def _sentence(slow: Json) -> str:
    own, median = _seconds(slow["work"]), _seconds(slow["medianWork"])
    if not slow["isSlow"]:
        return f"No rank is slow: rank {slow['rank']} works {own} per step, the median rank {median}."
    return (
        f"Rank {slow['rank']} on {slow['host']} is the slowest: it works {own} per step, the median rank {median}. "
        f"Stragglers cost the gang {output.percent(slow['lostShare'])} of its time, "
        f"{slow['lostSeconds']:.1f} s."
    )


def _seconds(value: Optional[float]) -> str:
    """With three digits, in the unit that shows them."""
    if value is None:
        return ""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value * 1e9:.0f} ns"


# --- trial goodput ----------------------------------------------------------------------------------------------


_PARTS = [
    Column("Went to", lambda row: row["words"]),
    Column("Slot-hours", lambda row: round(row["slotSeconds"] / 3600, 4)),
    Column("Share", lambda row: row["share"], lambda value: output.percent(value)),
]


def _add_goodput(verbs: Any) -> None:
    parser = verbs.add_parser("goodput", help="show what the time of its slots went to")
    parser.add_argument("trial_id", type=int)
    output.add_format(parser)
    parser.set_defaults(run=_goodput, action="show the goodput")


def _goodput(client: Client, args: argparse.Namespace) -> None:
    found = client.get(f"/api/v1/trials/{args.trial_id}/goodput")
    if args.output in output.STRUCTURED:
        output.structured(found, args.output)
        return
    output.show(found["parts"], _PARTS, args.output)
    if args.output == "table" and found["progress"] is not None:
        print(f"New progress: {output.percent(found['progress'])} of what is told.")


# --- trial support-bundle -------------------------------------------------------------------------------------


def _add_support_bundle(verbs: Any) -> None:
    parser = verbs.add_parser(
        "support-bundle", help="save its records, its log and the server's log as a .tar.gz"
    )
    parser.add_argument("trial_id", type=int)
    parser.add_argument(
        "-o", "--output-dir", type=Path, default=Path(), metavar="DIR", help="default: the current folder"
    )
    parser.set_defaults(run=_bundle, action="write the bundle")


def _bundle(client: Client, args: argparse.Namespace) -> None:
    if not args.output_dir.is_dir():
        raise CliError(f"there is no folder {args.output_dir}.")
    name = f"trainmaster-trial-{args.trial_id}-{time.strftime('%Y%m%dT%H%M%S')}"
    file = args.output_dir / f"{name}.tar.gz"
    unfinished = file.with_suffix(".part")
    try:
        with tarfile.open(str(unfinished), "w:gz") as archive:
            for path, content in _contents(client, args.trial_id):
                member = tarfile.TarInfo(f"{name}/{path}")
                member.size, member.mtime = len(content), int(time.time())
                archive.addfile(member, io.BytesIO(content))
        unfinished.replace(file)
    finally:
        if unfinished.exists():
            unfinished.unlink()
    done(f"Wrote {file}")


def _contents(client: Client, trial_id: int) -> Iterator[Tuple[str, bytes]]:
    """File name -> content. Secrets in configs are masked by the server."""
    trial = client.trial(trial_id)
    yield "trial.json", _json_of(trial)
    yield "experiment.json", _json_of(client.experiment(int(trial["experimentId"])))
    log = client.lines(log_of_trial(client, trial_id).path)
    yield "trial_logs.txt", _lines(str(record.get("message", "")).rstrip("\n") for record in log)
    entries = client.lines("/api/v1/master/logs")
    yield (
        "master_logs.txt",
        _lines(f"{one['logEntry']['timestamp']} {one['logEntry']['message']}" for one in entries),
    )


def _json_of(value: Json) -> bytes:
    return json.dumps(value, indent=2).encode()


def _lines(lines: Iterator[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")
