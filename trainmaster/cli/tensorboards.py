"""`tensorboard`: TensorBoard of experiments and trials on a host of a pool, opened in the browser."""

from __future__ import annotations

import argparse

from trainmaster.cli import task_verbs
from trainmaster.cli.arguments import Adder
from trainmaster.cli.errors import UsageError
from trainmaster.cli.output import Column
from trainmaster.client import Client

_KIND = task_verbs.service(
    "tensorboard",
    "TensorBoard",
    Column("Experiments", lambda row: ", ".join(map(str, row.get("experimentIds") or []))),
    Column("Trials", lambda row: ", ".join(map(str, row.get("trialIds") or []))),
)


def add(add_noun: Adder) -> None:
    noun = add_noun(
        "tensorboard", help="run TensorBoard for experiments and trials and open it in your browser"
    )
    verbs = noun.add_verbs()
    parser = verbs.add_parser("start", help="start TensorBoard and open it")
    parser.add_argument(
        "experiment_ids",
        metavar="EXPERIMENT",
        type=int,
        nargs="*",
        help="show all trials of these experiments",
    )
    parser.add_argument("-t", "--trial-ids", metavar="TRIAL", type=int, nargs="+", default=[])
    task_verbs.add_start_options(parser)
    parser.set_defaults(run=_start, action="start TensorBoard")
    task_verbs.add_open(verbs, _KIND, parser)
    task_verbs.add_verbs(verbs, _KIND)


def _start(client: Client, args: argparse.Namespace) -> None:
    if not args.experiment_ids and not args.trial_ids:
        raise UsageError("nothing to show, allowed: ids of experiments, or trials with -t.")
    shown = {"experimentIds": args.experiment_ids, "trialIds": args.trial_ids}
    tensorboard_id = str(task_verbs.start_service(client, args, _KIND, shown)["tensorboard"]["id"])
    task_verbs.show_started(client, _KIND, tensorboard_id, args)
