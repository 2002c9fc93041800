"""`notebook` and `tensorboard`: Jupyter and TensorBoard on a host of a pool, opened in the browser."""

from __future__ import annotations

import argparse
from typing import Any

import trainmaster.yamltext as yamltext
from trainmaster.cli import task_verbs
from trainmaster.cli.arguments import Adder
from trainmaster.cli.errors import UsageError
from trainmaster.cli.output import Column
from trainmaster.client import Client

_NOTEBOOK = task_verbs.service("notebook", "The notebook")
_TENSORBOARD = task_verbs.service(
    "tensorboard",
    "TensorBoard",
    Column("Experiments", lambda row: ", ".join(map(str, row.get("experimentIds") or []))),
    Column("Trials", lambda row: ", ".join(map(str, row.get("trialIds") or []))),
)


def add(add_noun: Adder) -> None:
    _add_notebook(add_noun)
    _add_tensorboard(add_noun)


def _add_notebook(add_noun: Adder) -> None:
    verbs = add_noun("notebook", help="run Jupyter on a host and open it in your browser").add_verbs()
    parser = verbs.add_parser("start", help="start a notebook and open it", run=_start_notebook)
    task_verbs.add_start_options(parser)
    parser.add_argument("--preview", action="store_true", help="only show the config that it would use")
    task_verbs.add_open(verbs, _NOTEBOOK, parser)
    task_verbs.add_verbs(verbs, _NOTEBOOK)


def _start_notebook(client: Client, args: argparse.Namespace) -> None:
    answer: Any = task_verbs.start_service(client, args, _NOTEBOOK, {"preview": True} if args.preview else {})
    if args.preview:
        print(yamltext.dump(answer["config"]), end="")
        return
    task_verbs.show_started(client, _NOTEBOOK, str(answer["notebook"]["id"]), args)


def _add_tensorboard(add_noun: Adder) -> None:
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
    parser.set_defaults(run=_start_tensorboard, action="start TensorBoard")
    task_verbs.add_open(verbs, _TENSORBOARD, parser)
    task_verbs.add_verbs(verbs, _TENSORBOARD)


def _start_tensorboard(client: Client, args: argparse.Namespace) -> None:
    if not args.experiment_ids and not args.trial_ids:
        raise UsageError("nothing to show, allowed: ids of experiments, or trials with -t.")
    shown = {"experimentIds": args.experiment_ids, "trialIds": args.trial_ids}
    tensorboard_id = str(task_verbs.start_service(client, args, _TENSORBOARD, shown)["tensorboard"]["id"])
    task_verbs.show_started(client, _TENSORBOARD, tensorboard_id, args)
