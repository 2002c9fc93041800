"""Configs from before lengths had units: they count in steps of `batches_per_step` batches."""

from __future__ import annotations

from typing import Any

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


def remarks(max_steps: int | None, effective: dict[str, Any]) -> list[str]:
    """What `max_steps` became in the effective config, so that nobody wonders."""
    if max_steps is None:
        return []
    batches = effective["searcher"]["max_length"]["batches"]
    return [f"searcher.max_steps, an older form, was read as searcher.max_length {{batches: {batches}}}."]
