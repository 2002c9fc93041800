"""The Trial API: a `PyTorchTrial` has a model, its data and what is done with a batch; a `Trainer` does the rest.

    with pytorch.init() as context:
        pytorch.Trainer(MyTrial(context), context).fit(max_length=pytorch.Epoch(10))

Importing this imports PyTorch.
"""

from trainmaster.pytorch import experimental, samplers
from trainmaster.pytorch._data import DataLoader, TorchData, adapt_batch_sampler, data_length, to_device
from trainmaster.pytorch._lr_scheduler import LRScheduler
from trainmaster.pytorch._reducers import MetricReducer, Reducer, SimpleMetricReducer
from trainmaster.pytorch._state import CheckpointLoadContext, load_trial_from_checkpoint_path
from trainmaster.pytorch._trainer import Trainer, init
from trainmaster.pytorch._trial import PyTorchCallback, PyTorchTrial
from trainmaster.pytorch._trial_context import PyTorchExperimentalContext, PyTorchTrialContext
from trainmaster.pytorch._units import Batch, Epoch, Record, TrainUnit

_SimpleReducer = SimpleMetricReducer  # Determined's name, which training code imports

PyTorchTrial.trial_context_class = PyTorchTrialContext

__all__ = [
    "Batch",
    "CheckpointLoadContext",
    "DataLoader",
    "Epoch",
    "LRScheduler",
    "MetricReducer",
    "PyTorchCallback",
    "PyTorchExperimentalContext",
    "PyTorchTrial",
    "PyTorchTrialContext",
    "Record",
    "Reducer",
    "SimpleMetricReducer",
    "TorchData",
    "TrainUnit",
    "Trainer",
    "adapt_batch_sampler",
    "data_length",
    "experimental",
    "init",
    "load_trial_from_checkpoint_path",
    "samplers",
    "to_device",
]
