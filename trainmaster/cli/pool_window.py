"""`pool window`: maintenance of hosts, and reservations for a group."""

from __future__ import annotations

import argparse
from typing import Any, List
from urllib.parse import quote

from trainmaster.cli import output
from trainmaster.cli.output import Column, done
from trainmaster.client import Client, Json


def _met(runs: List[Json]) -> str:
    return "; ".join(f"{run['label']} ({run.get('at') or run['why']})" for run in runs)


_WINDOWS = [
    Column("Name", lambda row: row["name"]),
    Column("For", lambda row: row["group"] or "maintenance"),
    Column("Next start", lambda row: row["nextStart"]),
    Column("Next end", lambda row: row["nextEnd"]),
    Column("Open until", lambda row: row["openUntil"]),
    Column("Weekly", lambda row: row["timeZone"] if row["weekly"] else "no"),
    Column("Takes", lambda row: ", ".join(row["takes"])),
    Column("Stops", lambda row: _met(row["stops"])),
    Column("In the way", lambda row: _met(row["inTheWay"])),
]


def add(verbs: Any) -> None:
    noun = verbs.add_parser("window", help="take hosts for maintenance, or reserve them for a group")
    own = noun.add_verbs()
    parser = own.add_parser("list", help="list the windows of a pool, and the runs they meet")
    parser.add_argument("name", metavar="POOL")
    output.add_format(parser)
    parser.set_defaults(run=_list, action="list the windows of the pool")
    for verb, run, text in (("add", _add, "add a window"), ("edit", _edit, "change a window")):
        parser = own.add_parser(verb, help=text)
        parser.add_argument("name", metavar="POOL")
        parser.add_argument("window", metavar="WINDOW", help="the name of the window")
        _add_fields(parser, is_new=verb == "add")
        output.add_format(parser)
        parser.set_defaults(run=run, action=text)
    parser = own.add_parser("remove", aliases=["rm"], help="remove a window")
    parser.add_argument("name", metavar="POOL")
    parser.add_argument("window", metavar="WINDOW", help="the name of the window")
    parser.set_defaults(run=_remove, action="remove the window")


def _add_fields(parser: argparse.ArgumentParser, is_new: bool) -> None:
    parser.add_argument("--starts", metavar="TIME", required=is_new, help="such as 2026-12-01T06:00")
    parser.add_argument("--ends", metavar="TIME", required=is_new, help="such as 2026-12-01T08:00")
    parser.add_argument(
        "--time-zone", dest="timeZone", metavar="ZONE", help="such as Europe/Berlin; default: UTC"
    )
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--weekly", action="store_true", default=None, help="every week at this time")
    either.add_argument("--once", dest="weekly", action="store_false", help="only once")
    which = parser.add_mutually_exclusive_group(required=is_new)
    which.add_argument("--host", dest="hosts", action="append", metavar="HOST", help="may be repeated")
    which.add_argument("--slots", type=int, metavar="N", help="whole hosts with this many slots are chosen")
    parser.add_argument("--group", metavar="GROUP", help="reserve for this group; without: maintenance")
    parser.add_argument(
        "--dry-run",
        dest="dryRun",
        action="store_true",
        default=None,
        help="only show which runs it would stop, and which are in the way",
    )


def _path(args: argparse.Namespace) -> str:
    path = f"/api/v1/resource-pools/{quote(args.name, safe='')}/windows"
    return f"{path}/{quote(args.window, safe='')}" if hasattr(args, "window") else path


def _fields(args: argparse.Namespace) -> Json:
    names = ("starts", "ends", "timeZone", "weekly", "hosts", "slots", "group", "dryRun")
    given = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    if "hosts" in given:
        given["slots"] = None
    elif "slots" in given:
        given["hosts"] = []
    return given


def _list(client: Client, args: argparse.Namespace) -> None:
    output.show(client.get(_path(args))["windows"], _WINDOWS, args.output)


def _add(client: Client, args: argparse.Namespace) -> None:
    path = f"/api/v1/resource-pools/{quote(args.name, safe='')}/windows"
    _told(client.post(path, {"name": args.window, **_fields(args)})["window"], args, "Added")


def _edit(client: Client, args: argparse.Namespace) -> None:
    _told(client.call("PATCH", _path(args), _fields(args))["window"], args, "Changed")


def _told(window: Json, args: argparse.Namespace, what: str) -> None:
    if args.dryRun:
        output.show_one(window, _WINDOWS, args.output)
        return
    output.told(window, _WINDOWS, args, f"{what} window {args.window} of pool {args.name}")
    if args.output == "table":
        done(
            f"From {window['openUntil']} on, work that cannot save and has no max_time does not start there."
        )
        for run in window["stops"]:
            done(f"{run['label']} is asked to save at {run['at']}")
        for run in window["inTheWay"]:
            done(f"{run['label']} is in the way: {run['why']}. It is not stopped; pause or cancel it.")


def _remove(client: Client, args: argparse.Namespace) -> None:
    client.call("DELETE", _path(args))
    done(f"Removed window {args.window} of pool {args.name}")
