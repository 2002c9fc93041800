"""What was measured of checkpoints: the validation that stands at a checkpoint's step."""

from __future__ import annotations

from collections.abc import Collection

from metrics import reported
from metrics.values import number


def of_trials(trial_ids: Collection[int], metric: str) -> dict[tuple[int, int], float]:
    """(trial, step) -> the value of this validation metric; values that are no numbers are left out."""
    found = {}
    for report in reported.read(sorted(trial_ids), ["validation"], [metric]) if trial_ids else ():
        value = number(report.values.get(metric))
        if value is not None:
            found[report.trial_id, report.steps_completed] = value
    return found
