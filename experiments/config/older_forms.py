"""Older forms: configs from before lengths had units count in steps; an entrypoint may name a class alone."""

from __future__ import annotations

import re
from typing import Any

_TRIAL_CLASS = re.compile(r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")

#: of a step, where `batches_per_step` does not say it
STEP_BATCHES = 100
_PERIODS = ("min_checkpoint_period", "min_validation_period")


def with_units(config: dict[str, Any]) -> dict[str, Any]:
    """The config with periods in batches and a scheduling_unit, if it counts in steps, else as it is.

    A period without a unit counts steps beside `max_steps` or `batches_per_step`; elsewhere it counts batches.
    What is wrong in it stays, for the models to find.
    """
    step, searcher = config.get("batches_per_step"), config.get("searcher")
    counts_steps = isinstance(searcher, dict) and searcher.get("max_steps") is not None
    if step is None and not counts_steps:
        return config
    batches = step if type(step) is int and step > 0 else STEP_BATCHES
    found = {name: {"batches": config[name] * batches} for name in _PERIODS if type(config.get(name)) is int}
    unit = {} if config.get("scheduling_unit") is not None else {"scheduling_unit": batches}
    return {**config, **unit, **found}


def launched(entrypoint: Any) -> list[str] | None:
    """The words that a legacy `module:TrialClass` stands for (S4-08); None for any other entrypoint."""
    if not isinstance(entrypoint, str) or not _TRIAL_CLASS.match(entrypoint):
        return None
    return ["python3", "-m", "determined.launch.torch_distributed", "--trial", entrypoint]


def of_entrypoint(entrypoint: Any) -> list[str]:
    """What a legacy entrypoint was read as."""
    words = launched(entrypoint)
    return [f"entrypoint {entrypoint}, an older form, was read as `{' '.join(words)}`."] if words else []


def remarks(max_steps: int | None, effective: dict[str, Any]) -> list[str]:
    """What older forms became in the effective config, so that nobody wonders."""
    own_sdk = (effective.get("environment") or {}).get("sdk") == "installed"
    found = [] if own_sdk else of_entrypoint(effective.get("entrypoint"))
    if max_steps is None:
        return found
    batches = effective["searcher"]["max_length"]["batches"]
    return [
        *found,
        f"searcher.max_steps, an older form, was read as searcher.max_length {{batches: {batches}}}.",
    ]
