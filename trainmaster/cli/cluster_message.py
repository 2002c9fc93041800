"""`master cluster-message`: the line that an admin shows to everybody."""

from __future__ import annotations

import argparse
from typing import Any

from trainmaster.cli import output
from trainmaster.cli.output import Column, done, local_time, say
from trainmaster.client import Client

_PATH = "/api/v1/master/cluster_message"
_COLUMNS = [
    Column("Message", lambda row: row["message"]),
    Column("Shown from", lambda row: local_time(row.get("startTime"))),
    Column("Shown until", lambda row: local_time(row.get("endTime")) or "it is cleared"),
]


def add(verbs: Any) -> None:
    noun = verbs.add_parser(
        "cluster-message", help="manage the message that all users see on every page (admins)"
    )
    own = noun.add_verbs()
    parser = own.add_parser("get", help="show the message and when it is displayed")
    output.add_format(parser)
    parser.set_defaults(run=_get, action="read the message")
    parser = own.add_parser("set", help="set the message")
    parser.add_argument("-m", "--message", required=True, metavar="TEXT", help="250 characters at most")
    parser.add_argument("-s", "--start", metavar="TIME", help="such as 2026-11-22T08:00:00Z; default: now")
    end = parser.add_mutually_exclusive_group()
    end.add_argument("-e", "--end", metavar="TIME", help="default: until it is cleared")
    end.add_argument("-d", "--duration", metavar="SPAN", help="such as 2h or 30m")
    parser.set_defaults(run=_set, action="set the message")
    parser = own.add_parser("clear", help="remove the message")
    parser.add_argument("-c", "--clear", action="store_true", help=argparse.SUPPRESS)
    parser.set_defaults(run=_clear, action="clear the message")


def _get(client: Client, args: argparse.Namespace) -> None:
    message = client.get(_PATH).get("clusterMessage")
    if message:
        output.show_one(message, _COLUMNS, args.output)
    elif args.output in output.STRUCTURED:
        output.structured({}, args.output)
    else:
        say("There is no message.")


def _set(client: Client, args: argparse.Namespace) -> None:
    given = {"startTime": args.start, "endTime": args.end, "duration": args.duration}
    body = {"message": args.message, **{field: value for field, value in given.items() if value}}
    client.call("PUT", _PATH, body)
    done(
        "The message is now shown to all users."
        if not args.start
        else f"The message will be shown from {args.start}."
    )


def _clear(client: Client, args: argparse.Namespace) -> None:
    client.call("DELETE", _PATH)
    done("Cleared the message")
