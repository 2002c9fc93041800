"""`host health`, `host quarantine`, `host release`: faults of hosts and GPUs, and what is out of use for them."""

from __future__ import annotations

import argparse
from typing import Any, List
from urllib.parse import quote

from trainmaster.cli import output
from trainmaster.cli.output import Column, done, local_time, say
from trainmaster.client import Client, Json

_HOSTS = [
    Column("Name", lambda row: row["name"]),
    Column("Health", lambda row: row["health"]),
    Column("Reason", lambda row: row.get("stateReason")),
]
_OUT = [
    Column("Slot", lambda row: "all" if row["slot"] is None else row["slot"]),
    Column("Since", lambda row: local_time(row["since"])),
    Column("Reason", lambda row: row["sentence"]),
    Column("Out", lambda row: row["returns"]),
]
_OVERRULED = [
    Column("Slot", lambda row: "all" if row["slot"] is None else row["slot"]),
    Column("In use until", lambda row: local_time(row["until"])),
    Column("By", lambda row: row["by"]),
    Column("Reason", lambda row: row["reason"]),
]
_SIGNS = [
    Column("Reported", lambda row: local_time(row["at"])),
    Column("Slot", lambda row: "" if row["slot"] is None else row["slot"]),
    Column("Verdict", lambda row: row["sentence"]),
    Column("Done", lambda row: row["done"]),
    Column("Evidence", lambda row: row["line"]),
]


def add_parsers(verbs: Any) -> None:
    parser = verbs.add_parser(
        "health",
        help="show the faults of a host and its GPUs, or the health of all hosts",
        form=True,
        run=_health,
    )
    parser.add_argument("name", nargs="?")
    parser = verbs.add_parser("quarantine", "name", help="take a host or a slot out of use", run=_quarantine)
    parser.add_argument("--slot", type=int, metavar="N", help="only this slot")
    parser.add_argument("--reason", required=True, help="why, shown to everybody whose work waits")
    parser = verbs.add_parser("release", "name", help="let it back into use", run=_release)
    parser.add_argument("--slot", type=int, metavar="N", help="only this slot")
    parser.add_argument(
        "--hours",
        type=float,
        metavar="H",
        help="for so long no fault takes it out of use again; needs --reason",
    )
    parser.add_argument("--reason", default="", help="why it may be used in spite of its faults")


def _path(name: str, what: str) -> str:
    return f"/api/v1/hosts/{quote(name, safe='')}/{what}"


def _health(client: Client, args: argparse.Namespace) -> None:
    if not args.name:
        output.show(client.hosts(), _HOSTS, args.output)
        return
    answer = client.get(_path(args.name, "health"))
    signs: List[Json] = answer["signs"]
    if args.output in output.STRUCTURED:
        output.structured(answer, args.output)
        return
    if args.output != "table":
        output.show(signs, _SIGNS, args.output)
        return
    print(f"{args.name}: {answer['state']}")
    if answer["outOfUse"]:
        output.show(answer["outOfUse"], _OUT, "table")
    if answer["overruled"]:
        output.show(answer["overruled"], _OVERRULED, "table")
    if signs:
        output.show(signs, _SIGNS, "table")
    elif answer["kernelLog"]:
        say(f"No fault since Trainmaster began to look (kernel's log: {answer['kernelLog']}).")
    elif not answer["denied"]:
        say("Nobody has looked for faults yet.")
    if answer["denied"]:
        say(answer["denied"], "yellow")


def _quarantine(client: Client, args: argparse.Namespace) -> None:
    client.post(_path(args.name, "quarantine"), {"slot": args.slot, "reason": args.reason})
    done(f"Took {_what(args)} out of use. What runs there ends in its own time.")


def _release(client: Client, args: argparse.Namespace) -> None:
    body = {"slot": args.slot, "hours": args.hours, "reason": args.reason}
    client.post(_path(args.name, "release"), body)
    for_a_time = f". No fault takes it out of use for {args.hours:g} h" if args.hours else ""
    done(f"Released {_what(args)}{for_a_time}")


def _what(args: argparse.Namespace) -> str:
    return str(args.name) if args.slot is None else f"slot {args.slot} of {args.name}"
