"""What needs no server. `run`: a training here, with `determined` as a name of ours; `init`: a folder to begin with."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Dict

from trainmaster.cli.arguments import Adder
from trainmaster.cli.errors import CliError, UsageError
from trainmaster.cli.output import done, say
from trainmaster.run import run

_CONFIG = """\
# What to run, where, and for how long. Submit it with: trainmaster experiment create config.yaml . -f
# Every field: trainmaster experiment config-schema, and docs/config.md.

name: {name}

# What to run, in a copy of this folder. For several GPUs, one process per GPU:
#   entrypoint: python3 -m trainmaster.launch.torch_distributed python3 train.py
entrypoint: python3 train.py

# Values that the training reads. A search tries several values; for a search, write for example
#   lr: {{type: log, minval: -4, maxval: -1, base: 10}}
hyperparameters:
  lr: 0.1

searcher:
  name: single          # one trial; adaptive_asha, random and grid try many
  metric: loss          # as train.py reports it
  smaller_is_better: true
  max_length:
    batches: 100

resources:
  slots_per_trial: 1    # GPUs (or CPUs, on a host without)
  # resource_pool: default
  # priority: 42        # 1 is the highest

max_restarts: 1         # how often a failed trial is restarted from its last checkpoint

# environment:
#   environment_variables: [OMP_NUM_THREADS=4]
#   activate: ~/venv/bin/activate   # sourced before the entrypoint, on the host
"""

_TRAIN = '''\
"""Finds the minimum of (x - 3)^2 by gradient descent: replace `step` with your own training.

It also runs on its own: python3 train.py
"""

import json
import pathlib

from trainmaster import core, get_cluster_info

BATCHES = 100
EVERY = 20  # batches between reports and checkpoints


def step(x, lr):
    """One batch: the new x, and its loss."""
    x -= lr * 2 * (x - 3)
    return x, (x - 3) ** 2


def main():
    info = get_cluster_info()  # None off the cluster
    lr = info.trial.hparams["lr"] if info else 0.1
    with core.init() as context:
        x, begin = 0.0, 0
        if info and info.latest_checkpoint:  # paused, preempted or restarted: continue where it stopped
            with context.checkpoint.restore_path(info.latest_checkpoint) as path:
                saved = json.loads((path / "state.json").read_text())
                x, begin = saved["x"], saved["batch"]
        for batch in range(begin + 1, BATCHES + 1):
            x, loss = step(x, lr)
            if batch % EVERY:
                continue
            print(f"batch {batch}: loss {loss:.6f}", flush=True)
            context.train.report_training_metrics(steps_completed=batch, metrics={"loss": loss})
            context.train.report_validation_metrics(steps_completed=batch, metrics={"loss": loss})
            with context.checkpoint.store_path({"steps_completed": batch}) as (path, _):
                pathlib.Path(path, "state.json").write_text(json.dumps({"x": x, "batch": batch}))
            if context.preempt.should_preempt():
                return


if __name__ == "__main__":
    main()
'''

_IGNORE = """\
# files that are not sent to the hosts, in the syntax of .gitignore
.git/
data/
*.pyc
"""


def add(add_noun: Adder) -> None:
    _add_run(add_noun)
    parser = add_noun("init", help="write a commented config and a working training script to start from")
    parser.add_argument(
        "folder", metavar="DIR", type=Path, nargs="?", default=Path(), help="default: the current folder"
    )
    parser.set_defaults(run_alone=_init, action="write the folder")


def files(name: str) -> Dict[str, str]:
    """File name -> content, for an experiment of this name."""
    return {"config.yaml": _CONFIG.format(name=name), "train.py": _TRAIN, ".detignore": _IGNORE}


def _init(args: argparse.Namespace) -> None:
    folder: Path = args.folder
    name = "".join(c if c.isalnum() or c in "-_" else "-" for c in folder.resolve().name) or "first"
    made = files(name)
    there = [file for file in made if (folder / file).exists()]
    if there:
        raise CliError(f"{folder} already contains {', '.join(there)}; nothing was written.")
    folder.mkdir(parents=True, exist_ok=True)
    for file, content in made.items():
        (folder / file).write_text(content, encoding="utf-8")
    done(f"Wrote {', '.join(str(folder / file) for file in made)}")
    say(f"Submit it: trainmaster experiment create {folder / 'config.yaml'} {folder} -f")


# --- run -- CMD -----------------------------------------------------------------------------------------------


def _add_run(add_noun: Adder) -> None:
    parser = add_noun("run", help="run a training here, off the cluster: run -- python3 train.py")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- CMD [ARG...]")
    parser.set_defaults(run_alone=_run_here, action="run the command")


def _run_here(args: argparse.Namespace) -> int:
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command:
        raise UsageError("No command given; for example: run -- python3 train.py")
    run(command)
