"""`master` and `version`: the server itself."""

from __future__ import annotations

import argparse
import json
from typing import Callable

import trainmaster.yamltext as yamltext
from trainmaster import __version__
from trainmaster.cli.errors import OK
from trainmaster.cli.session import connect
from trainmaster.client import Client

Adder = Callable[..., argparse.ArgumentParser]


def add(add_noun: Adder) -> None:
    noun = add_noun("master", help="the server")
    verbs = noun.add_subparsers(metavar="VERB", required=True)
    parser = verbs.add_parser("info", help="name, version and ids")
    parser.set_defaults(run_alone=_info, action="ask the server")
    parser = verbs.add_parser("config", help="the settings it runs with (admins)")
    parser.set_defaults(run=_config, action="show the settings")
    parser = add_noun("version", help="versions of this command and of the server")
    parser.set_defaults(run_alone=_version, action="ask the server for its version")


def _info(args: argparse.Namespace) -> int:
    client, _ = connect(args)
    print(yamltext.dump(client.info()), end="")
    return OK


def _config(client: Client, args: argparse.Namespace) -> int:
    print(yamltext.dump(json.loads(json.dumps(client.get("/api/v1/master/config")["config"]))), end="")
    return OK


def _version(args: argparse.Namespace) -> int:
    print(f"client: {__version__}", flush=True)
    client, _ = connect(args)
    found = client.info()
    print(f"server: {found.get('version')}\nurl: {client.url}")
    print(f"cluster: {found.get('cluster_name')} ({found.get('cluster_id')})")
    return OK
