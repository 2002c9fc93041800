"""`notebook`: Jupyter on a host of a pool, opened in the browser through the server."""

from __future__ import annotations

import argparse
from typing import Any

import trainmaster.yamltext as yamltext
from trainmaster.cli import task_verbs
from trainmaster.cli.arguments import Adder
from trainmaster.client import Client

_KIND = task_verbs.service("notebook", "The notebook")


def add(add_noun: Adder) -> None:
    verbs = add_noun("notebook", help="run Jupyter on a host and open it in your browser").add_verbs()
    parser = verbs.add_parser("start", help="start a notebook and open it")
    task_verbs.add_start_options(parser)
    parser.add_argument("--preview", action="store_true", help="only show the config that it would use")
    parser.set_defaults(run=_start, action="start the notebook")
    task_verbs.add_open(verbs, _KIND, parser)
    task_verbs.add_verbs(verbs, _KIND)


def _start(client: Client, args: argparse.Namespace) -> None:
    answer: Any = task_verbs.start_service(client, args, _KIND, {"preview": True} if args.preview else {})
    if args.preview:
        print(yamltext.dump(answer["config"]), end="")
        return
    task_verbs.show_started(client, _KIND, str(answer["notebook"]["id"]), args)
