"""What of an experiment's config has no effect here, said at submission."""

from __future__ import annotations

from submissions.config import without_effect
from submissions.config.section import Section

_HOROVOD = "pass such options to determined.launch.horovod, before --"
_LAID_OUT = "host_path and storage_path determine where checkpoints are stored"
_REASONS = {
    "environment.proxy_ports": "ports of trials are not forwarded",
    "resources.slots": "resources.slots_per_trial sets the number of slots of a trial",
    "records_per_epoch": "the data loader determines the length of an epoch",
    "optimizations.mixed_precision": "NVIDIA Apex is obsolete; use context.experimental.use_amp() or torch.autocast",
    "optimizations.tensor_fusion_threshold": _HOROVOD,
    "optimizations.tensor_fusion_cycle_time": _HOROVOD,
    "optimizations.auto_tune_tensor_fusion": _HOROVOD,
    "optimizations.grad_updates_size_file": without_effect.NOTHING_LIKE_IT,
    "checkpoint_storage.container_path": _LAID_OUT,
    "checkpoint_storage.checkpoint_path": _LAID_OUT,
    "checkpoint_storage.tensorboard_path": _LAID_OUT,
    "integrations.pachyderm": without_effect.NOTHING_LIKE_IT,
    "checkpoint_storage.propagation": "runs use the host directly, without a container",
}


#: what the host's own package reads, where the config asks for that one
_OF_THE_SDK = ("records_per_epoch", "optimizations.")


def remarks(config: Section, *, own_sdk: bool) -> list[str]:
    """A sentence for each field that is set and has no effect; `own_sdk`: training code uses the host's package."""
    reasons = {
        path: reason for path, reason in _REASONS.items() if not (own_sdk and path.startswith(_OF_THE_SDK))
    }
    return without_effect.remarks(config, reasons)
