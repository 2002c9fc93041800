"""`schedule`: experiments and commands that are submitted again at set times."""

from __future__ import annotations

import argparse
from typing import Any
from urllib.parse import quote

from trainmaster.cli import output
from trainmaster.cli.arguments import Adder
from trainmaster.cli.output import Column, done, local_time
from trainmaster.client import Client, Json

_PATH = "/api/v1/schedules"


def _last(row: Json) -> str:
    last = row.get("last") or {}
    return " ".join(filter(None, [last.get("outcome"), last.get("job")]))


def _state(row: Json) -> str:
    if row.get("paused"):
        return str(row.get("pausedWhy") or "paused")
    return "active"


_COLUMNS = [
    Column("Name", lambda row: row["name"]),
    Column("Owner", lambda row: row["username"]),
    Column("Repeats", lambda row: row["source"]),
    Column("Cron", lambda row: row["cron"]),
    Column("Time zone", lambda row: row["timezone"]),
    Column("State", _state),
    Column("Next", lambda row: local_time(row.get("nextAt"))),
    Column("Last", _last),
]
_RUNS = [
    Column("Due", lambda row: local_time(row["dueAt"])),
    Column("Outcome", lambda row: row["outcome"]),
    Column("Job", lambda row: row.get("job")),
    Column("Why", lambda row: row.get("sentence")),
]


def add(add_noun: Adder) -> None:
    verbs = add_noun("schedule", help="submit experiments and commands again at set times").add_verbs()
    verbs.add_parser("list", aliases=["ls"], help="list all schedules", form=True, run=_list)
    parser = verbs.add_parser(
        "create", "name", help="repeat an experiment or a command at set times", run=_create
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--experiment", type=int, metavar="ID", help="repeat this experiment, with its config and code"
    )
    what.add_argument("--command", dest="command_id", metavar="ID", help="repeat this command or array")
    parser.add_argument(
        "--cron", required=True, metavar="CRON", help="minute, hour, day, month, weekday: '0 3 * * 1-5'"
    )
    parser.add_argument(
        "--timezone", default="UTC", metavar="ZONE", help="such as Europe/Berlin (default: UTC)"
    )
    parser.add_argument(
        "--overlap",
        default="skip",
        choices=["skip", "allow"],
        help="while the last one has not ended (default: skip)",
    )
    text = "show a schedule and its next times"
    verbs.add_parser("describe", "name", help=text, form=True, run=_describe)
    text = "list its past times and what became of them"
    verbs.add_parser("runs", "name", help=text, form=True, run=_runs, action="list its past times")
    for verb, text in (("pause", "submit nothing until it is resumed"), ("resume", "continue after a pause")):
        verbs.add_parser(verb, "name", help=text, run=_change)
    verbs.add_parser("run", "name", help="submit it now, in addition to its schedule", run=_run)
    verbs.add_parser("delete", "name", help="delete a schedule; its jobs stay", run=_delete)


def _path(name: str) -> str:
    return f"{_PATH}/{quote(name, safe='')}"


def _list(client: Client, args: argparse.Namespace) -> None:
    output.show(client.pages(_PATH, "schedules"), _COLUMNS, args.output)


def _create(client: Client, args: argparse.Namespace) -> None:
    body: Json = {"name": args.name, "cron": args.cron, "timezone": args.timezone, "overlap": args.overlap}
    what: Any = {"experimentId": args.experiment} if args.experiment else {"commandId": args.command_id}
    answer = client.post(_PATH, {**body, **what})
    times = ", ".join(local_time(at) for at in answer["coming"][:3])
    done(f"Created schedule {args.name}. Next: {times}")


def _describe(client: Client, args: argparse.Namespace) -> None:
    answer = client.get(_path(args.name))
    coming = Column("Coming", lambda row: "; ".join(local_time(at) for at in answer["coming"]))
    output.show_one(
        answer["schedule"], [*_COLUMNS, Column("Overlap", lambda row: row["overlap"]), coming], args.output
    )


def _runs(client: Client, args: argparse.Namespace) -> None:
    output.show(client.get(_path(args.name))["runs"], _RUNS, args.output)


def _change(client: Client, args: argparse.Namespace) -> None:
    client.post(f"{_path(args.name)}/{args.verb}")
    done(f"Schedule {args.name} is {'paused' if args.verb == 'pause' else 'active'}")


def _run(client: Client, args: argparse.Namespace) -> None:
    answer = client.post(f"{_path(args.name)}/run")
    done(f"Submitted {answer['type']} {answer['entityId']}")


def _delete(client: Client, args: argparse.Namespace) -> None:
    client.call("DELETE", _path(args.name))
    done(f"Deleted schedule {args.name}")
