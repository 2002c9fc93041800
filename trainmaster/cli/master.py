"""`master` and `version`: the server itself."""

from __future__ import annotations

import argparse

from trainmaster import __version__
from trainmaster.cli import cluster_message, output
from trainmaster.cli.arguments import Adder, count
from trainmaster.cli.session import connect
from trainmaster.client import Client


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
    cluster_message.add(verbs)
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
        print(f"{output.local_time(entry['timestamp'])} {output.clean(entry['message'])}", flush=True)


def _version(args: argparse.Namespace) -> None:
    print(f"client: {__version__}", flush=True)
    client, _ = connect(args)
    found = client.info()
    print(f"server: {found.get('version')}\nurl: {client.url}")
    print(f"cluster: {found.get('cluster_name')} ({found.get('cluster_id')})")
