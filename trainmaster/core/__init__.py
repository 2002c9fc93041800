"""The Core API: what training code says and asks, and how its workers talk to each other."""

from trainmaster.core._checkpoint import CheckpointContext, DownloadMode
from trainmaster.core._context import Context, ExperimentalContext, init
from trainmaster.core._context import ExperimentalContext as ExperimentalCoreContext
from trainmaster.core._distributed import DistributedContext
from trainmaster.core._preempt import PreemptContext, PreemptMode
from trainmaster.core._profiler import ProfilerContext
from trainmaster.core._searcher import SearcherContext, SearcherMode, SearcherOperation, Unit
from trainmaster.core._star import PeerLost
from trainmaster.core._tensorboard_mode import TensorboardMode
from trainmaster.core._train import EarlyExitReason, TrainContext

__all__ = [
    "CheckpointContext",
    "Context",
    "DistributedContext",
    "DownloadMode",
    "EarlyExitReason",
    "ExperimentalContext",
    "ExperimentalCoreContext",
    "PeerLost",
    "PreemptContext",
    "PreemptMode",
    "ProfilerContext",
    "SearcherContext",
    "SearcherMode",
    "SearcherOperation",
    "TensorboardMode",
    "TrainContext",
    "Unit",
    "init",
]
