"""What Determined's package has and ours has not: one sentence for each, said by the failing import or attribute.

Compared with determined 0.38.1 by tests/compat/test_names.py: a public name of it is here or in ABSENT, and a member or
parameter of a public class is here or in UNLIKE. OLDER is about names that 0.38.1 itself no longer has.
"""

from __future__ import annotations

import opcode
import re
import sys
from types import ModuleType
from typing import Any, Optional, Tuple

_SDK = "To use the host's own package, set `environment: {sdk: installed}` in the config."
_CLIENT = "determined.experimental.client does the same; the REST API is at /api/v1/docs of the server."
_UNKNOWN = "Determined 0.38.1 has no such name either."
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
    (
        r"lightning\.experimental(\..*)?",
        "Give determined.lightning.DetCallback to a Lightning Trainer: docs/integrations.md. " + _SDK,
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

#: names of older releases: `sdk: installed` with 0.38.1 does not bring them back
OLDER: Tuple[Tuple[str, str], ...] = (
    (
        r"searcher(\..*)?",
        "Determined removed it in 0.38. A search method runs on your machine with the package up to 0.37 "
        "(`LocalSearchRunner`), or over the REST API with `searcher: {name: custom}`: docs/search.md.",
    ),
    (
        r"(experimental\.)?estimator(\..*)?",
        "Determined removed it. TensorFlow code trains with the Core API: report with core_context.train, save with "
        "core_context.checkpoint.",
    ),
    (
        r"(pytorch\.lightning|pytorch\.LightningAdapter)(\..*)?",
        "Determined removed LightningAdapter. Give determined.lightning.DetCallback to a Lightning Trainer: "
        "docs/integrations.md.",
    ),
    (
        r"pytorch\.dsat(\..*)?",
        "Determined removed it. Search over the DeepSpeed config with an ordinary search: its values are "
        "hyperparameters.",
    ),
    (r"tensorpack(\..*)?", "Determined removed it. Tensorpack code trains with the Core API."),
    (
        r"experimental\.(keras|create|create_trial_instance|init_native|Mode)(\..*)?",
        "Determined removed its native API. Submit with determined.experimental.client.create_experiment().",
    ),
    (
        r"(profiler|profile)(\..*)?",
        "Determined removed it. Timings come from core_context.profiler, on if the config has "
        "`profiling: {enabled: true}`.",
    ),
    (
        r"pytorch\.ClipGrads(L2Norm|L2Value)",
        "Determined removed it. Call context.step_optimizer(optimizer, clip_grads=lambda parameters: "
        "torch.nn.utils.clip_grad_norm_(parameters, 1.0)).",
    ),
    (
        r"pytorch\.reset_parameters",
        "Determined removed it. Call reset_parameters() of the model's layers.",
    ),
    (
        r"pytorch\.(DistributedBatchSampler|RepeatBatchSampler|SkipBatchSampler)",
        "Import it from determined.pytorch.samplers.",
    ),
    (
        r"(callback|monkey_patch|pytorch\.PyTorchTrialController)(\..*)?",
        "It was internal to Determined's own harness, which no longer has it.",
    ),
)

#: members and parameters of what is here, that are not: a pattern of the whole dotted name, and why
UNLIKE: Tuple[Tuple[str, str], ...] = (
    (
        r"(ClusterInfo|TrialInfo|core\.SearcherOperation|[\w.]*Context)\.__init__\(\w+=\)",
        "core.init(), pytorch.init() and get_cluster_info() make them; training code does not.",
    ),
    (r"common\.api\.errors\.\w+\.__init__\(\w+=\)", "The client raises them; programs only catch them."),
    (r"launch\.\w+\.main\(\w+=\)", "Launch modules are started with `python3 -m`."),
)


def sentence(name: str) -> Optional[str]:
    """What to do instead of a name such as `determined.util` or `determined.core.DummyTrainContext`."""
    own = name.partition(".")[2]
    said = next((said for pattern, said in OLDER + ABSENT if re.fullmatch(pattern, own)), None)
    return said or (f"{_INSIDE} {_SDK}" if re.search(r"(^|\.)_[^_]", own) else None)


def module_message(name: str) -> str:
    """Of a module that is not here."""
    said = sentence(name) or _UNKNOWN
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
        text = f"module {name!r} has no attribute {attribute!r}: `determined` is provided by Trainmaster. {_UNKNOWN}"
        if said := sentence(f"{name}.{attribute}"):
            text = f"{name}.{attribute} is not here: `determined` is provided by Trainmaster. {said}"
        # of an AttributeError, `from determined import x` keeps nothing but the name, or takes a module half imported
        caller, is_half_imported = sys._getframe(1), f"{module.__name__}.{attribute}" in sys.modules
        if opcode.opname[caller.f_code.co_code[caller.f_lasti]] == "IMPORT_FROM" and not is_half_imported:
            raise ImportError(text, name=name)
        raise AttributeError(text)

    module.__getattr__ = missing  # type: ignore[method-assign]
