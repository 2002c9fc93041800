"""Run a trial by its experiment's configuration: `python3 -m trainmaster.pytorch.run_trial model_def:MyTrial`.

It is what `--trial` of the launch modules and the entrypoint `model_def:MyTrial` start on every rank.
"""

from __future__ import annotations

import importlib
import logging
import sys
from typing import Any, Dict, Sequence, Type

import trainmaster
from trainmaster._info import get_cluster_info
from trainmaster.pytorch import PyTorchTrial, Trainer, init
from trainmaster.pytorch._units import Batch, unit_of

logger = logging.getLogger("trainmaster.pytorch")

_ELSEWHERE = (
    "Only a PyTorchTrial can run here; with `environment: {sdk: installed}` in the config the host's own Determined "
    "package runs other kinds of trial."
)


class NoTrial(Exception):
    """The command line names no trial; the message is a sentence."""


def trial_class(spec: str) -> Type[PyTorchTrial]:
    """The class that MODULE:CLASS names; NoTrial says what is wrong with it."""
    module_name, colon, name = spec.partition(":")
    if not (module_name and colon and name):
        raise NoTrial(f"{spec!r} is not a MODULE:CLASS, such as model_def:MyTrial.")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not (module_name + ".").startswith(error.name + "."):
            raise  # something that the module itself imports
        raise NoTrial(
            f"There is no module {module_name!r} in the experiment's folder or on the host."
        ) from error
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is None:
        raise NoTrial(f"{module_name} has no class {name!r}.")
    if not (isinstance(found, type) and issubclass(found, PyTorchTrial)):
        raise NoTrial(f"{spec} is not a PyTorchTrial. {_ELSEWHERE}")
    return found


def run(spec: str) -> None:
    """Train as the config says: its searcher's length, periods, policy and scheduling unit."""
    info = get_cluster_info()
    if info is None:
        raise NoTrial(
            f"--trial {spec} runs only in a trial, which has a config; "
            "outside the cluster, write a script with pytorch.Trainer."
        )
    config: Dict[str, Any] = info.trial._config
    with init() as context:  # seeds, and so comes before the trial's own code
        if context.distributed.rank == 0:
            size = context.distributed.size
            ranks = "1 rank" if size == 1 else f"{size} ranks with torch.distributed"
            logger.info("%s trains on %s.", spec, ranks)
        trial = trial_class(spec)(context)
        Trainer(trial, context).fit(
            checkpoint_period=unit_of(config.get("min_checkpoint_period")),
            validation_period=unit_of(config.get("min_validation_period")),
            reporting_period=Batch(int(config.get("scheduling_unit") or 100)),
            checkpoint_policy=config.get("checkpoint_policy") or "best",
            step_zero_validation=bool(config.get("perform_initial_validation")),
            profiling_enabled=bool((config.get("profiling") or {}).get("enabled")),
        )


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code."""
    logging.basicConfig(level=logging.INFO, format=trainmaster.LOG_FORMAT)
    if len(arguments) != 1:
        print("usage: python3 -m trainmaster.pytorch.run_trial MODULE:CLASS", file=sys.stderr)
        return 2
    try:
        run(arguments[0])
    except NoTrial as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
