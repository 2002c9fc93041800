"""A checkpoint of the Trial API: state_dict.pth, load_data.json, the code under code/, and the trial that it makes."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple, Type, Union

import torch

from trainmaster import core
from trainmaster.pytorch import _randomness
from trainmaster.pytorch._replicas import bare
from trainmaster.pytorch._trial import PyTorchTrial
from trainmaster.pytorch._trial_context import PyTorchTrialContext

STATE_FILE = "state_dict.pth"
LOAD_FILE = "load_data.json"
CODE_FOLDER = "code"

State = Dict[str, Any]


def collect(context: PyTorchTrialContext, random_states: List[Any]) -> State:
    """The state of models, optimizers, schedulers and scaler in the order in which they were wrapped."""
    scaler = context._scaler
    return {
        "models_state_dict": [bare(model).state_dict() for model in context.models],
        "optimizers_state_dict": [optimizer.state_dict() for optimizer in context.optimizers],
        "lr_schedulers_state_dict": [scheduler.state_dict() for scheduler in context.lr_schedulers],
        "scaler_state_dict": scaler.state_dict() if scaler is not None else None,
        "rng_state": random_states,
    }


def is_own(context: PyTorchTrialContext, state: State) -> bool:
    """Whether this very trial saved it. Off the cluster, and of a checkpoint that does not say, it counts as such."""
    saved_by, mine = state["trainer"].get("trial_id", -1), context.get_trial_id()
    return -1 in (saved_by, mine) or saved_by == mine


def restore(context: PyTorchTrialContext, state: State) -> None:
    """Give models, optimizers, schedulers and scaler the state. ValueError when their numbers are others."""
    for name, targets in (
        ("models", [bare(model) for model in context.models]),
        ("optimizers", context.optimizers),
        ("lr_schedulers", context.lr_schedulers),
    ):
        states = state[f"{name}_state_dict"]
        if len(states) != len(targets):
            raise ValueError(
                f"The checkpoint has {len(states)} {name}, but the trial has wrapped {len(targets)}: "
                "wrap the same number, in the same order."
            )
        for target, kept in zip(targets, states):  # noqa: B905  (Python 3.8)
            target.load_state_dict(kept)
    if context._scaler is not None and state.get("scaler_state_dict"):
        context._scaler.load_state_dict(state["scaler_state_dict"])


def restore_randomness(states: List[Any], rank: int, size: int, seed: int, batches: int) -> None:
    """Let this rank's random numbers go on; with another number of ranks than before they begin anew."""
    if len(states) == size:
        _randomness.restore(states[rank])
    else:
        _randomness.seed_all(_randomness.mixed(seed, batches, rank))


def write(folder: Path, state: State) -> None:
    torch.save(state, folder / STATE_FILE)


def read(folder: Path, **options: Any) -> State:
    """On the CPU, whatever it was saved from. FileNotFoundError when this is no checkpoint of the Trial API.

    It is unpickled whole, because callbacks may keep anything: like the code beside it, it is trusted. `options` are
    those of `torch.load`.
    """
    path = folder / STATE_FILE
    if not path.is_file():
        raise FileNotFoundError(f"{folder} is not a checkpoint of a PyTorchTrial: it has no {STATE_FILE}.")
    if "weights_only" in inspect.signature(torch.load).parameters:
        options.setdefault("weights_only", False)
    state: State = torch.load(path, **{"map_location": "cpu", **options})
    return state


def describe(folder: Path, context: PyTorchTrialContext, trial_class: type) -> None:
    """Write load_data.json, and the modules that the trial's class needs, for load_trial_from_checkpoint_path."""
    root, module = _home(trial_class)
    about = {
        "trial_type": "PyTorchTrial",
        "trial_cls_spec": f"{module}:{trial_class.__qualname__}",
        "experiment_config": _without_secrets(context.get_experiment_config()),
        "hparams": context.get_hparams(),
    }
    (folder / LOAD_FILE).write_text(json.dumps(about, indent=2, default=str), encoding="utf-8")
    for source in _imported_below(root) if root is not None else []:
        target = folder / CODE_FOLDER / source.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)


def _without_secrets(config: Dict[str, Any]) -> Dict[str, Any]:
    """The configuration without what may hold passwords: whoever gets the checkpoint could read them."""
    kept = {name: section for name, section in config.items() if name != "checkpoint_storage"}
    if isinstance(kept.get("environment"), dict):
        hidden = ("environment_variables", "registry_auth")
        kept["environment"] = {name: each for name, each in kept["environment"].items() if name not in hidden}
    return kept


def _home(trial_class: type) -> Tuple[Any, str]:
    """(the folder that its imports start from, its module's name there), (None, name) of a class without a file."""
    module = sys.modules.get(trial_class.__module__)
    file = getattr(module, "__file__", None)
    if not file:
        return None, trial_class.__module__
    path = Path(file).resolve()
    if trial_class.__module__ == "__main__":
        return path.parent, path.stem
    depth = trial_class.__module__.count(".") + (path.stem == "__init__")
    return path.parents[depth], trial_class.__module__


def _imported_below(root: Path) -> List[Path]:
    """The sources of what has been imported from this folder, installed packages left out."""
    below = f"{root}{os.sep}"
    found = set()
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        ours = name.partition(".")[0] in ("trainmaster", "determined")
        if ours or not isinstance(file, str) or not file.endswith(".py"):
            continue
        path = os.path.normpath(file)
        if path.startswith(below) and "site-packages" not in path and Path(path).is_file():
            found.add(Path(path))
    return sorted(found)


class CheckpointLoadContext(PyTorchTrialContext):
    """A context to build a trial with for any use but training, with constructor arguments of one's own.

    It has one rank, and what is reported is logged at most. The weights are the caller's to load:
    `load_trial_from_checkpoint_path(folder, trial_class, trial_kwargs)` does all of it.
    """

    def __init__(
        self, hparams: Optional[Dict[str, Any]] = None, exp_conf: Optional[Dict[str, Any]] = None
    ) -> None:
        core_context = core.init(distributed=core.DistributedContext())  # one rank, whatever the task has
        super().__init__(core_context, hparams or {}, exp_conf or {})


def load_trial_from_checkpoint_path(
    path: Union[str, Path],
    trial_class: Optional[Type[PyTorchTrial]] = None,
    trial_kwargs: Optional[Dict[str, Any]] = None,
    torch_load_kwargs: Optional[Dict[str, Any]] = None,
    **older: Any,
) -> PyTorchTrial:
    """The trial with the weights, optimizers and schedulers of the checkpoint in this folder, for any use but training.

    Without `trial_class` it is the class of the code that the checkpoint holds, of which modules with the name of
    one that is imported already are not loaded again. `trial_kwargs` are for its constructor, beside the context,
    `torch_load_kwargs`, and others as they once were, for `torch.load`. Its context has one rank. FileNotFoundError
    when the folder is not a checkpoint of a PyTorchTrial.
    """
    folder = Path(path)
    state = read(folder, **{**older, **(torch_load_kwargs or {})})
    about = json.loads((folder / LOAD_FILE).read_text(encoding="utf-8"))
    trial_class = trial_class or _class_of(folder / CODE_FOLDER, about["trial_cls_spec"])
    context = CheckpointLoadContext(about["hparams"], about["experiment_config"])
    trial = trial_class(context, **(trial_kwargs or {}))
    restore(context, state)
    return trial


def _class_of(code: Path, spec: str) -> Type[PyTorchTrial]:
    module, _, name = spec.partition(":")
    sys.path.insert(0, str(code))
    try:
        found: Any = importlib.import_module(module)
    finally:
        sys.path.remove(str(code))
    for part in name.split("."):
        found = getattr(found, part)
    trial_class: Type[PyTorchTrial] = found
    return trial_class
