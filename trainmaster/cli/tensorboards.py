"""`tensorboard`: TensorBoard of experiments and trials on a host of a pool, opened in the browser."""

from __future__ import annotations

import argparse
from typing import Callable

from trainmaster.cli import services
from trainmaster.cli.errors import UsageError
from trainmaster.cli.output import Column
from trainmaster.client import Client

_KIND = services.Kind(
    "tensorboard",
    "TensorBoard",
    [
        Column("Experiments", lambda row: ", ".join(map(str, row.get("experimentIds") or []))),
        Column("Trials", lambda row: ", ".join(map(str, row.get("trialIds") or []))),
    ],
)


def add(add_noun: Callable[..., argparse.ArgumentParser]) -> None:
    noun = add_noun(
        "tensorboard", help="run TensorBoard for experiments and trials and open it in your browser"
    )
    verbs = noun.add_subparsers(metavar="VERB", required=True)
    parser = verbs.add_parser("start", help="start TensorBoard and open it")
    parser.add_argument(
        "experiment_ids",
        metavar="EXPERIMENT",
        type=int,
        nargs="*",
        help="show all trials of these experiments",
    )
    parser.add_argument("-t", "--trial-ids", metavar="TRIAL", type=int, nargs="+", default=[])
    services.add_start_options(parser)
    _add_browser(parser)
    parser.set_defaults(run=_start, action="start TensorBoard")
    _add_browser(
        services.add_one(verbs, "open", "open it in the browser when it is ready", _KIND, services.open_one)
    )
    services.add_verbs(verbs, _KIND)


def _add_browser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--no-browser", action="store_true", help="only print its URL")


def _start(client: Client, args: argparse.Namespace) -> int:
    if not args.experiment_ids and not args.trial_ids:
        raise UsageError("nothing to show, allowed: ids of experiments, or trials with -t.")
    shown = {"experimentIds": args.experiment_ids, "trialIds": args.trial_ids}
    tensorboard_id = str(services.start(client, args, _KIND, shown)["tensorboard"]["id"])
    return services.show_started(client, _KIND, tensorboard_id, args)
