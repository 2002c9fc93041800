"""`resources`: who held slots, when and how long."""

from __future__ import annotations

import argparse
import sys
from typing import Any, Callable, List, Tuple

from trainmaster.cli import output, user_group
from trainmaster.cli.arguments import Adder
from trainmaster.cli.output import Column, local_time
from trainmaster.client import Client, Json

Query = List[Tuple[str, Any]]

_PATH = "/resources/allocation/"
_DAILY = "RESOURCE_ALLOCATION_AGGREGATION_PERIOD_DAILY"
_MONTHLY = "RESOURCE_ALLOCATION_AGGREGATION_PERIOD_MONTHLY"


def add(add_noun: Adder) -> None:
    verbs = add_noun("resources", aliases=["res"], help="show the history of slot use").add_verbs()
    parser = verbs.add_parser("raw", help="show what each attempt held on each host")
    _add_times(parser)
    parser.set_defaults(run=_raw, action="read the history")
    parser = verbs.add_parser(
        "aggregated", aliases=["agg"], help="sum up slot-seconds by user, label and pool"
    )
    parser.add_argument("start_date", help="first day (2026-11-21), or month (2026-11), in UTC")
    parser.add_argument("end_date", help="last day or month (included)")
    size = parser.add_mutually_exclusive_group()
    size.add_argument(
        "--daily", dest="period", action="store_const", const=_DAILY, help="by day (the default)"
    )
    size.add_argument("--monthly", dest="period", action="store_const", const=_MONTHLY, help="by month")
    parser.add_argument(
        "--group", metavar="GROUP", help="only what members of this group held, its teams included"
    )
    output.add_format(parser, default="csv")
    parser.set_defaults(run=_aggregated, action="sum up the history", period=_DAILY)
    _add_goodput(verbs)
    parser = verbs.add_parser(
        "allocations", aliases=["alloc"], help="list each attempt with its total time, as CSV"
    )
    _add_times(parser, form=False)
    parser.set_defaults(run=_attempts, action="read the history")


def _add_goodput(verbs: Any) -> None:
    parser = verbs.add_parser("goodput", help="show what the time of held slots went to")
    parser.add_argument("start_date", help="first day (2026-11-21), or month (2026-11), in UTC")
    parser.add_argument("end_date", help="last day or month (included)")
    size = parser.add_mutually_exclusive_group()
    for unit, form in (("week", "--weekly"), ("day", "--daily"), ("month", "--monthly")):
        usual = " (the default)" if unit == "week" else ""
        size.add_argument(form, dest="period", action="store_const", const=unit, help=f"by {unit}{usual}")
    parser.add_argument(
        "--by",
        choices=["pool", "user", "experiment", "total"],
        default="pool",
        help="whose slots (default: pool)",
    )
    output.add_format(parser)
    parser.set_defaults(run=_goodput, action="read the history", period="week")


def _add_times(parser: argparse.ArgumentParser, form: bool = True) -> None:
    parser.add_argument("timestamp_after", metavar="AFTER", help="such as 2026-11-21T00:00:00Z")
    parser.add_argument("timestamp_before", metavar="BEFORE", help="such as 2026-11-22T00:00:00Z")
    if form:
        output.add_format(parser, default="csv")


def _hours(row: Json) -> float:
    return round(float(row["seconds"]) * int(row.get("slots", 1)) / 3600, 3)


_ENTRIES = [
    Column("Start", lambda row: local_time(row.get("startTime"))),
    Column("End", lambda row: local_time(row.get("endTime"))),
    Column("User", lambda row: row.get("username")),
    Column("Kind", lambda row: row.get("kind")),
    Column("Experiment", lambda row: row.get("experimentId") or None),
    Column("Resource Pool", lambda row: row.get("resourcePool")),
    Column("Slots", lambda row: row.get("slots")),
    Column("Slot-hours", _hours),
    Column("Labels", lambda row: ", ".join(row.get("labels") or [])),
]
_SUMS = [
    Column("Period", lambda row: row["period"]),
    Column("By", lambda row: row["by"]),
    Column("Name", lambda row: row["name"]),
    Column("Slot-hours", _hours),
]
#: as the server writes them
_SUMS_IN_CSV = [
    Column("aggregation_type", lambda row: row["by"]),
    Column("aggregation_key", lambda row: row["name"]),
    Column("date", lambda row: row["period"]),
    Column("seconds", lambda row: f"{float(row['seconds']):.6f}"),
]
_BY = (
    ("user", "byUsername"),
    ("pool", "byResourcePool"),
    ("label", "byExperimentLabel"),
    ("group", "byGroup"),
)


def _raw(client: Client, args: argparse.Namespace) -> None:
    _print(client, args, "raw", _times(args), _ENTRIES, lambda entries: entries)


def _attempts(client: Client, args: argparse.Namespace) -> None:
    _print_csv(client, "allocations-csv", _times(args))


def _times(args: argparse.Namespace) -> Query:
    return [("timestamp_after", args.timestamp_after), ("timestamp_before", args.timestamp_before)]


def _aggregated(client: Client, args: argparse.Namespace) -> None:
    query = [("start_date", args.start_date), ("end_date", args.end_date), ("period", args.period)]
    if args.group is None:
        _print(client, args, "aggregated", query, _SUMS, _flat)
        return
    user_group.path_of(client, args.group)  # refused here: a group that has held nothing has no rows either
    entries = client.get(f"/api/v1{_PATH}aggregated", query)["resourceEntries"]
    rows = [row for row in _flat(entries) if (row["by"], row["name"]) == ("group", args.group)]
    output.show(rows, _SUMS_IN_CSV if args.output == "csv" else _SUMS, args.output)


def _goodput(client: Client, args: argparse.Namespace) -> None:
    query = [("start_date", args.start_date), ("end_date", args.end_date), ("period", args.period)]
    query.append(("group_by", args.by))
    if args.output == "csv":
        for piece in client.pieces("/resources/goodput", query):
            sys.stdout.buffer.write(piece)
        sys.stdout.flush()
        return
    answer = client.get("/api/v1/resources/goodput", query)
    if args.output in output.STRUCTURED:
        output.structured(answer, args.output)
        return
    rows = [{"name": line["name"], **each} for line in answer["lines"] for each in line["periods"]]
    output.show(rows, _WENT_TO, "table")
    if answer["more"]:
        print(f"{answer['more']} more, with fewer slot-hours: see them all with -o csv.")


def _losses(row: Json) -> str:
    """The three largest parts that were no progress."""
    parts = sorted((one for one in row["parts"] if one["part"] != "progress"), key=lambda one: -one["share"])
    return ", ".join(f"{one['words']} {output.percent(one['share'])}" for one in parts[:3])


_WENT_TO = [
    Column("Period", lambda row: row["periodStart"]),
    Column("Name", lambda row: row["name"] or "-"),
    Column("Slot-hours", lambda row: round(row["slotSeconds"] / 3600, 3)),
    Column(
        "New progress", lambda row: "not told" if row["progress"] is None else output.percent(row["progress"])
    ),
    Column("Else", _losses),
]


def _flat(entries: List[Json]) -> List[Json]:
    """A row for the total of each period, and for each user, pool and label in it."""
    rows: List[Json] = []
    for entry in entries:
        found = [("total", "", entry["seconds"])]
        for by, field in _BY:
            found += [(by, name, seconds) for name, seconds in sorted((entry.get(field) or {}).items())]
        rows += [
            {"period": entry["periodStart"], "by": by, "name": name, "seconds": seconds}
            for by, name, seconds in found
        ]
    return rows


def _print(
    client: Client,
    args: argparse.Namespace,
    what: str,
    query: Query,
    columns: List[Column],
    rows: Callable[[List[Json]], List[Json]],
) -> None:
    if args.output == "csv":
        _print_csv(client, what, query)
        return
    answer = client.get(f"/api/v1{_PATH}{what}", query)
    if args.output in output.STRUCTURED:
        output.structured(answer, args.output)
    else:
        output.show(rows(answer["resourceEntries"]), columns, "table")


def _print_csv(client: Client, what: str, query: Query) -> None:
    """The server's file as it comes: it may be long."""
    for piece in client.pieces(f"{_PATH}{what}", query):
        sys.stdout.buffer.write(piece)
    sys.stdout.flush()
