"""Digits as the seven segments of a display, drawn askew, thick or thin, faint, and on a noisy ground.

They are drawn by a formula, so nothing is downloaded; sample n is the same wherever it is drawn.
"""

from __future__ import annotations

import numpy as np
import torch
from torch.utils.data import TensorDataset

PIXELS = 16
#: from (x, y) to (x, y) in a frame of 1 x 2, y downwards
SEGMENTS = {
    "top": ((0, 0), (1, 0)),
    "upper left": ((0, 0), (0, 1)),
    "upper right": ((1, 0), (1, 1)),
    "middle": ((0, 1), (1, 1)),
    "lower left": ((0, 1), (0, 2)),
    "lower right": ((1, 1), (1, 2)),
    "bottom": ((0, 2), (1, 2)),
}
NAMES = list(SEGMENTS)
LIT = ["012456", "25", "02346", "02356", "1235", "01356", "013456", "025", "0123456", "012356"]


def draw(digit: int, random: np.random.RandomState) -> np.ndarray:
    """One image of PIXELS x PIXELS, 0 to 1: brightness falls with the distance to the nearest lit segment."""
    size = random.uniform(4.0, 6.0)
    angle, slant = random.normal(0, 0.12), random.normal(0, 0.12)
    center = np.array([PIXELS / 2, PIXELS / 2]) + random.normal(0, 0.8, 2)
    turn = np.array([[np.cos(angle), -np.sin(angle) + slant], [np.sin(angle), np.cos(angle)]])
    rows, columns = np.mgrid[0:PIXELS, 0:PIXELS]
    points = np.stack([columns, rows], axis=-1).astype(float)
    nearest = np.full((PIXELS, PIXELS), np.inf)
    for number in LIT[digit]:
        ends = (np.array(SEGMENTS[NAMES[int(number)]], dtype=float) - [0.5, 1.0]) * size
        start, end = ends @ turn.T + center
        along = np.clip(((points - start) @ (end - start)) / ((end - start) @ (end - start)), 0, 1)
        nearest = np.minimum(
            nearest, np.linalg.norm(points - (start + along[..., None] * (end - start)), axis=-1)
        )
    image = random.uniform(0.5, 1.0) * np.exp(-((nearest / random.uniform(0.6, 1.2)) ** 2))
    return np.clip(image + random.normal(0, 0.12, image.shape), 0, 1)


def digits(samples: int, seed: int) -> TensorDataset:
    """Images (1, PIXELS, PIXELS) and the digits that they show."""
    random = np.random.RandomState(seed)
    labels = random.randint(0, 10, samples)
    images = np.stack([draw(int(label), random) for label in labels])
    return TensorDataset(torch.tensor(images[:, None], dtype=torch.float32), torch.tensor(labels))
