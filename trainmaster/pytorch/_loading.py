"""A trial again from the files of its checkpoint."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any, Dict, Optional, Type, Union

from trainmaster import core
from trainmaster.pytorch import _state
from trainmaster.pytorch._trial import PyTorchTrial
from trainmaster.pytorch._trial_context import PyTorchTrialContext


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
    when the folder is no checkpoint of a PyTorchTrial.
    """
    folder = Path(path)
    state = _state.read(folder, **{**older, **(torch_load_kwargs or {})})
    about = json.loads((folder / _state.LOAD_FILE).read_text(encoding="utf-8"))
    trial_class = trial_class or _class_of(folder / _state.CODE_FOLDER, about["trial_cls_spec"])
    context = CheckpointLoadContext(about["hparams"], about["experiment_config"])
    trial = trial_class(context, **(trial_kwargs or {}))
    _state.restore(context, state)
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
