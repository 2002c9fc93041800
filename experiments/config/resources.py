"""`resources`: what an experiment and each of its trials ask for."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from submissions.config import resources
from submissions.config.section import OLDER, NotNegative, leading


class Resources(resources.Resources):
    model_config = ConfigDict(json_schema_extra=leading("slots_per_trial", "max_slots"))

    slots_per_trial: NotNegative = 1
    """Slots (GPUs) of one trial; 0 for none."""
    max_slots: NotNegative | None = None
    """Most slots that all trials of the experiment may hold at once, under either scheduler; null is no limit."""
    slots: NotNegative | None = Field(default=None, exclude=True, json_schema_extra=OLDER)
    """For commands only; no effect in an experiment. Allowed so that templates can serve both."""
