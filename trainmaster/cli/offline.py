"""`run -- CMD`: run a training here, off the cluster, with `determined` as a name of ours."""

from __future__ import annotations

import argparse

from trainmaster.cli.arguments import Adder
from trainmaster.cli.errors import UsageError
from trainmaster.run import run


def add(add_noun: Adder) -> None:
    parser = add_noun("run", help="run a training here, off the cluster: run -- python3 train.py")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- CMD [ARG...]")
    parser.set_defaults(run_alone=_run, action="run the command")


def _run(args: argparse.Namespace) -> int:
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command:
        raise UsageError("No command given; for example: run -- python3 train.py")
    run(command)
