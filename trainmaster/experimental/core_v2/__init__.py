"""Detached mode: a training that its user starts, on any machine, is an experiment of the server all the same.

`init` makes `train`, `checkpoint`, `distributed`, `preempt`, `searcher`, `profiler` and `info` of this module, until
`close` or the end of the process; `init_context` gives the same as one object. Inside a managed trial both use that
trial. docs/detached.md explains what happens where.
"""

from __future__ import annotations

import atexit
import os
from typing import Any, Dict, Optional, Union

from trainmaster import core
from trainmaster._info import ClusterInfo, get_cluster_info
from trainmaster.core import DistributedContext, PreemptMode, TensorboardMode
from trainmaster.experimental.core_v2._config import Config, DefaultConfig, Storage, UnmanagedConfig, merged

__all__ = [
    "Config",
    "DefaultConfig",
    "DistributedContext",
    "PreemptMode",
    "TensorboardMode",
    "UnmanagedConfig",
    "checkpoint",
    "close",
    "distributed",
    "info",
    "init",
    "init_context",
    "preempt",
    "profiler",
    "searcher",
    "train",
    "url_reverse_webui_exp_view",
]

#: None before `init` and after `close`, as in Determined's
train: core.TrainContext = None  # type: ignore[assignment]
checkpoint: core.CheckpointContext = None  # type: ignore[assignment]
distributed: DistributedContext = None  # type: ignore[assignment]
preempt: core.PreemptContext = None  # type: ignore[assignment]
searcher: core.SearcherContext = None  # type: ignore[assignment]
profiler: core.ProfilerContext = None  # type: ignore[assignment]
info: Optional[ClusterInfo] = None

_context: Optional[core.Context] = None


def init(
    *,
    config: Union[Config, Dict[str, Any], None] = None,
    defaults: Optional[Config] = None,
    unmanaged: Union[Config, bool, None] = None,
    client: Optional[Any] = None,
    distributed: Optional[DistributedContext] = None,
    checkpoint_storage: Optional[Storage] = None,
    preempt_mode: PreemptMode = PreemptMode.WorkersAskChief,
    tensorboard_mode: TensorboardMode = TensorboardMode.AUTO,
) -> None:
    """Begin a run and fill the names of this module; one that is open is closed first. All ranks call.

    Arguments and errors are those of `init_context`. The run ends with `close()`, or with the process: as COMPLETED,
    or as ERROR after an exception and after `sys.exit` with another code than 0.
    """
    global _context
    close()
    _context = init_context(
        config=config,
        defaults=defaults,
        unmanaged=unmanaged,
        client=client,
        distributed=distributed,
        checkpoint_storage=checkpoint_storage,
        preempt_mode=preempt_mode,
        tensorboard_mode=tensorboard_mode,
    )
    _context.start()
    _publish(_context)
    atexit.register(_close_at_exit, os.getpid())


def init_context(
    *,
    config: Union[Config, Dict[str, Any], None] = None,
    defaults: Optional[Config] = None,
    unmanaged: Union[Config, bool, None] = None,
    client: Optional[Any] = None,
    distributed: Optional[DistributedContext] = None,
    checkpoint_storage: Optional[Storage] = None,
    preempt_mode: PreemptMode = PreemptMode.WorkersAskChief,
    tensorboard_mode: TensorboardMode = TensorboardMode.AUTO,
) -> core.Context:
    """Begin a run as one object, to be used in a `with` block.

    `config` (or `defaults`, its older name) describes the experiment; `client` is a `Determined` of the Python client,
    else the server is that of DET_MASTER and the login that of the environment or the command line. With more than one
    rank `distributed` is needed. `unmanaged=True` begins a detached run inside a managed trial too.
    ValueError, UnauthenticatedException: a sentence that says what is missing.
    """
    from trainmaster.experimental.core_v2._run import begin

    if unmanaged is not True and _is_managed():
        return core.init(
            distributed=distributed,
            checkpoint_storage=checkpoint_storage,
            preempt_mode=preempt_mode,
            tensorboard_mode=tensorboard_mode,
        )
    if unmanaged is False:
        raise ValueError(
            "unmanaged is False, but this is not a managed trial; submit it, or omit `unmanaged`."
        )
    wanted = merged(config, defaults, unmanaged if isinstance(unmanaged, Config) else None)
    return begin(wanted, client, distributed, checkpoint_storage, preempt_mode, tensorboard_mode)


def close() -> None:
    """End the run and wait, for a bounded time, until the server has all of it; safe to call twice."""
    global _context
    atexit.unregister(_close_at_exit)
    context, _context = _context, None
    if context is not None:
        try:
            context.close()
        finally:
            _publish(None)


def url_reverse_webui_exp_view() -> str:
    """The address of the experiment's page. RuntimeError before `init`."""
    if info is None:
        raise RuntimeError("There is no run: call core_v2.init(...) first.")
    return f"{info.master_url}/det/experiments/{info.trial.experiment_id}"


def _is_managed() -> bool:
    found = get_cluster_info()
    return found is not None and found.task_type == "TRIAL"


def _close_at_exit(pid: int) -> None:
    """Unless this is a fork of the process that has begun the run."""
    if os.getpid() == pid:
        close()


def _publish(context: Optional[core.Context]) -> None:
    """Give the parts of `context` their names here."""
    for name in ("train", "checkpoint", "distributed", "preempt", "searcher", "profiler", "info"):
        globals()[name] = getattr(context, name, None)
