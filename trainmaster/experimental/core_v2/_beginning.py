"""How a detached run begins: what was given is checked, the server asked, the context built."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Optional, Union

from trainmaster.core import DistributedContext, PreemptMode, TensorboardMode
from trainmaster.core._context import build
from trainmaster.core._distributed import single
from trainmaster.experimental.core_v2 import _attempt
from trainmaster.experimental.core_v2._config import Config, Storage, experiment_config, merged
from trainmaster.experimental.core_v2._run import DetachedContext, begin_together


def begin(
    config: Union[Config, Dict[str, Any], None],
    defaults: Optional[Config],
    unmanaged: Optional[Config],
    client: Optional[Any],
    distributed: Optional[DistributedContext],
    checkpoint_storage: Optional[Storage],
    preempt_mode: PreemptMode,
    tensorboard_mode: TensorboardMode,
) -> DetachedContext:
    """The context of a new run. All ranks call."""
    wanted = merged(config, defaults, unmanaged)
    document = experiment_config(wanted, checkpoint_storage)
    distributed = distributed or _alone()

    def attempt(hosts: List[str]) -> _attempt.Attempt:
        return _attempt.begin(_attempt.log_in(client), wanted, document, hosts)

    run = begin_together(distributed, attempt)
    context = build(
        DetachedContext,
        run.info,
        distributed,
        preempt_mode=preempt_mode,
        tensorboard_mode=tensorboard_mode,
    )
    context.belong_to(run)
    return context


def _alone() -> DistributedContext:
    """ValueError where a launcher has started several ranks: each would make an experiment of its own."""
    size = os.environ.get("WORLD_SIZE", "1")
    if size.isdigit() and int(size) > 1:
        raise ValueError(
            f"This is one of {size} ranks, so core_v2.init() needs distributed=..., for example "
            "core_v2.DistributedContext.from_torch_distributed()."
        )
    return single()
