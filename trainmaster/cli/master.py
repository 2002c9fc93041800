"""`master` and `version`: the server itself, and the line that an admin shows to everybody."""

from __future__ import annotations

import argparse
from typing import Any

from trainmaster import __version__
from trainmaster.cli import output
from trainmaster.cli.arguments import Adder, count
from trainmaster.cli.output import Column, done, local_time, say
from trainmaster.cli.session import connect
from trainmaster.client import Client

_MESSAGE = "/api/v1/master/cluster_message"
_MESSAGE_COLUMNS = [
    Column("Message", lambda row: row["message"]),
    Column("Shown from", lambda row: local_time(row.get("startTime"))),
    Column("Shown until", lambda row: local_time(row.get("endTime")) or "it is cleared"),
]


def add(add_noun: Adder) -> None:
    verbs = add_noun("master", help="show information about the server").add_verbs()
    parser = verbs.add_parser("info", help="show its name, version and ids")
    output.add_format(parser, output.STRUCTURED, "yaml")
    parser.set_defaults(run_alone=_info, action="ask the server")
    parser = verbs.add_parser("config", help="show its settings (admins)")
    output.add_format(parser, output.STRUCTURED, "yaml")
    parser.set_defaults(run=_config, action="show the settings")
    parser = parser.add_subparsers(metavar="VERB").add_parser("show", help="the same")
    output.add_format(parser, output.STRUCTURED, "yaml")
    parser.set_defaults(run=_config, action="show the settings")
    parser = verbs.add_parser("logs", help="show the server's log: each state change, with its reason")
    parser.add_argument("-f", "--follow", action="store_true", help="keep following new entries")
    parser.add_argument("--tail", type=count, metavar="N", help="only the last N entries")
    parser.set_defaults(run=_logs, action="show the log")
    _add_message(verbs)
    parser = add_noun("version", help="show the versions of this command and the server")
    parser.set_defaults(run_alone=_version, action="ask the server for its version")


def _info(args: argparse.Namespace) -> None:
    client, _ = connect(args)
    output.structured(client.info(), args.output)


def _config(client: Client, args: argparse.Namespace) -> None:
    output.structured(client.get("/api/v1/master/config")["config"], args.output)


def _logs(client: Client, args: argparse.Namespace) -> None:
    query = [("follow", "true" if args.follow else "false")]
    if args.tail is not None:
        query.append(("offset", str(-args.tail)))
    for record in client.lines("/api/v1/master/logs", query):
        entry = record["logEntry"]
        print(f"{local_time(entry['timestamp'])} {output.clean(entry['message'])}", flush=True)


def _version(args: argparse.Namespace) -> None:
    print(f"client: {__version__}", flush=True)
    client, _ = connect(args)
    found = client.info()
    print(f"server: {found.get('version')}\nurl: {client.url}")
    print(f"cluster: {found.get('cluster_name')} ({found.get('cluster_id')})")


# --- master cluster-message -------------------------------------------------------------------------------------


def _add_message(verbs: Any) -> None:
    noun = verbs.add_parser(
        "cluster-message", help="manage the message that all users see on every page (admins)"
    )
    own = noun.add_verbs()
    parser = own.add_parser("get", help="show the message and when it is displayed")
    output.add_format(parser)
    parser.set_defaults(run=_get_message, action="read the message")
    parser = own.add_parser("set", help="set the message", run=_set_message, action="set the message")
    parser.add_argument("-m", "--message", required=True, metavar="TEXT", help="250 characters at most")
    parser.add_argument("-s", "--start", metavar="TIME", help="such as 2026-11-22T08:00:00Z; default: now")
    end = parser.add_mutually_exclusive_group()
    end.add_argument("-e", "--end", metavar="TIME", help="default: until it is cleared")
    end.add_argument("-d", "--duration", metavar="SPAN", help="such as 2h or 30m")
    parser = own.add_parser("clear", help="remove the message")
    parser.add_argument("-c", "--clear", action="store_true", help=argparse.SUPPRESS)
    parser.set_defaults(run=_clear_message, action="clear the message")


def _get_message(client: Client, args: argparse.Namespace) -> None:
    message = client.get(_MESSAGE).get("clusterMessage")
    if message:
        output.show_one(message, _MESSAGE_COLUMNS, args.output)
    elif args.output in output.STRUCTURED:
        output.structured({}, args.output)
    else:
        say("There is no message.")


def _set_message(client: Client, args: argparse.Namespace) -> None:
    given = {"startTime": args.start, "endTime": args.end, "duration": args.duration}
    body = {"message": args.message, **{field: value for field, value in given.items() if value}}
    client.call("PUT", _MESSAGE, body)
    done(
        "The message is now shown to all users."
        if not args.start
        else f"The message will be shown from {args.start}."
    )


def _clear_message(client: Client, args: argparse.Namespace) -> None:
    client.call("DELETE", _MESSAGE)
    done("Cleared the message")
