"""`notebook`: Jupyter on a host of a pool, opened in the browser through the server."""

from __future__ import annotations

import argparse
from typing import Any, Callable

import trainmaster.yamltext as yamltext
from trainmaster.cli import services
from trainmaster.cli.errors import OK
from trainmaster.client import Client

_KIND = services.Kind("notebook", "The notebook")


def add(add_noun: Callable[..., argparse.ArgumentParser]) -> None:
    noun = add_noun("notebook", help="run Jupyter on a host and open it in your browser")
    verbs = noun.add_subparsers(metavar="VERB", required=True)
    parser = verbs.add_parser("start", help="start a notebook and open it")
    services.add_start_options(parser)
    parser.add_argument("--preview", action="store_true", help="only show the config that it would use")
    _add_browser(parser)
    parser.set_defaults(run=_start, action="start the notebook")
    _add_browser(
        services.add_one(verbs, "open", "open it in the browser when it is ready", _KIND, services.open_one)
    )
    services.add_verbs(verbs, _KIND)


def _add_browser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--no-browser", action="store_true", help="only print its URL")


def _start(client: Client, args: argparse.Namespace) -> int:
    answer: Any = services.start(client, args, _KIND, {"preview": True} if args.preview else None)
    if args.preview:
        print(yamltext.dump(answer["config"]), end="")
        return OK
    notebook_id = str(answer["notebook"]["id"])
    return services.show_started(client, _KIND, notebook_id, args)
