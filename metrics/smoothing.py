"""Smooths a series for the eye. Pure."""

from __future__ import annotations

import numpy as np

from metrics.packing import Floats

#: Above this a curve would hardly move within any number of points that a chart shows.
MOST = 0.999


def smoothed(values: Floats, weight: float) -> Floats:
    """The exponential moving average of `values`, freed of its bias to zero at the beginning.

    Each point is `weight` parts of what came before and 1 - weight of itself, so 0 leaves all as it is. What is no
    finite number stays a gap (NaN) and is no part of the average. Raises ValueError outside 0 <= weight <= MOST.
    """
    if not 0 <= weight <= MOST:
        raise ValueError(f"The smoothing is {weight}; it must be between 0 and {MOST}.")
    mean = share = 0.0
    found = []
    for value, is_finite in zip(values.tolist(), np.isfinite(values).tolist(), strict=True):
        if is_finite:
            mean = weight * mean + (1 - weight) * value
            share = weight * share + (1 - weight)
        found.append(mean / share if is_finite else np.nan)
    return np.array(found, dtype=np.float64)
