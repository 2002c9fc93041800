"""What Determined's package has and ours has not: one sentence for each, said by the failing import or attribute.

Compared with determined 0.38.1 by tests/compat/test_names.py: a public name of it is here, or in this table.
"""

from __future__ import annotations

import opcode
import re
import sys
from types import ModuleType
from typing import Any, Optional, Tuple

_SDK = "To use the host's own package, set `environment: {sdk: installed}` in the config."
_CLIENT = "determined.experimental.client does the same; the REST API is at /api/v1/docs of the server."
_INSIDE = "It is internal to Determined's own harness."

#: a pattern of the whole dotted name, and what to do instead
ABSENT: Tuple[Tuple[str, str], ...] = (
    (
        r"cli(\..*)?",
        "A run brings no command line: install `trainmaster` or `determined` into the host's Python, and call `det`.",
    ),
    (
        r"deploy(\..*)?",
        "A server is started with `trainmaster up`; machines are added with `trainmaster host add`.",
    ),
    (
        r"keras(\..*)?",
        "Keras models train with the Core API, or as a TFKerasTrial in the published package. " + _SDK,
    ),
    (
        r"pytorch\.deepspeed(\..*)?",
        "DeepSpeed trains with the Core API under determined.launch.deepspeed, or as a DeepSpeedTrial in the published "
        "package. " + _SDK,
    ),
    (r"horovod(\..*)?", "Import horovod itself; determined.launch.horovod starts its ranks. " + _SDK),
    (
        r"common\.experimental(\..*)?",
        "Import it from determined.experimental.client, which has the same classes.",
    ),
    (r"common\.api\.errors\..*", _CLIENT),
    (r"common\.(api|streams)(\..*)?", _CLIENT + " " + _SDK),
    (
        r"common\.storage(\..*)?",
        "Files of checkpoints go through core_context.checkpoint, elsewhere through determined.experimental.client. "
        + _SDK,
    ),
    (r"common\.set_logger", "Set the level of the logger with logging.getLogger('determined').setLevel(…)."),
    (r"common(\..*)?", f"{_INSIDE} {_SDK}"),
    (
        r"tensorboard(\..*)?",
        "Write event files into core_context.train.get_tensorboard_path(); the server collects them. " + _SDK,
    ),
    (
        r"core\.Dummy.*",
        "core.init() off the cluster gives contexts that do nothing but log; core.DistributedContext(rank=0, size=1, "
        "local_rank=0, local_size=1, cross_rank=0, cross_size=1) is that of a single process. " + _SDK,
    ),
    (r"core\.SearcherContextMissing", "core_context.searcher is always there."),
    (r"experimental\.test_one_batch", "Run the trial with `trainmaster e create --local --test`. " + _SDK),
    (r"experimental\.client\.(C|logger)", _INSIDE),
    (
        r"experimental\.client\.\w*oauth\w*",
        "This server is not an OAuth provider; use access tokens: `trainmaster token`.",
    ),
    (
        r"launch\.(deepspeed|horovod|tensorflow|torch_distributed|wrap_rank)\..*",
        "Start the module: `python3 -m determined.launch.torch_distributed …`. What is inside it is not an interface.",
    ),
    (r"TrialContext", "Its kind here is determined.pytorch.PyTorchTrialContext. " + _SDK),
    (
        r"(EnvContext|RendezvousInfo|ResourcesInfo|TrialController|LegacyTrial)",
        "What a run may know of itself is in determined.get_cluster_info(). " + _SDK,
    ),
    (r"(constants|exec|gpu|ipc|layers|load|util|workload)(\..*)?", f"{_INSIDE} {_SDK}"),
)


def sentence(name: str) -> Optional[str]:
    """What to do instead of a name such as `determined.util` or `determined.core.DummyTrainContext`."""
    own = name.partition(".")[2]
    return next((said for pattern, said in ABSENT if re.fullmatch(pattern, own)), None)


def module_message(name: str) -> str:
    """Of a module that is not here."""
    said = sentence(name) or _SDK
    return f"No module named {name!r}: `determined` is provided by Trainmaster here, which lacks it. {said}"


def tell(module: ModuleType, name: str) -> None:
    """Have the module, which is called `name` in Determined, say of each absent attribute what to use instead."""
    own: Any = getattr(module, "__getattr__", None)

    def missing(attribute: str) -> Any:
        try:
            if own is not None:
                return own(attribute)
        except AttributeError:
            pass
        text = f"module {name!r} has no attribute {attribute!r}"
        if said := sentence(f"{name}.{attribute}"):
            text = f"{name}.{attribute} is not here: `determined` is provided by Trainmaster. {said}"
            # of an AttributeError, `from determined import x` keeps nothing but the name
            caller = sys._getframe(1)
            if opcode.opname[caller.f_code.co_code[caller.f_lasti]] == "IMPORT_FROM":
                raise ImportError(text, name=name)
        raise AttributeError(text)

    module.__getattr__ = missing  # type: ignore[method-assign]
