"""`resources`: what an experiment and each of its trials ask for."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from submissions.config import resources
from submissions.config.section import NotNegative, refuse


def _no_slots(value: Any) -> Any:
    raise refuse("nothing here for an experiment; the field is slots_per_trial")


class Resources(resources.Resources):
    slots_per_trial: NotNegative = 1
    """Slots (GPUs) of one trial; 0 runs it without any."""
    max_slots: NotNegative | None = None
    """Slots that all trials of the experiment may hold at once; null is no limit."""
    slots: Annotated[Literal[None], BeforeValidator(_no_slots)] = Field(default=None, exclude=True)
