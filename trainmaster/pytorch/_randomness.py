"""The random numbers of a rank: seeded, kept in checkpoints, and lent for a while."""

from __future__ import annotations

import contextlib
import hashlib
import random
from typing import Any, Dict, Iterator

import numpy as np
import torch


def mixed(*parts: int) -> int:
    """A seed from several numbers, 0 to 2^63-1: near numbers give unlike seeds."""
    digest = hashlib.sha256(",".join(str(part) for part in parts).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def seed_all(seed: int) -> None:
    """Seed `random`, `numpy.random` and PyTorch on every device."""
    seed_host(seed)
    torch.manual_seed(seed)


def seed_host(seed: int) -> None:
    """Seed `random`, `numpy.random` and PyTorch on the CPU."""
    random.seed(seed)
    np.random.seed(seed % (1 << 32))
    torch.default_generator.manual_seed(seed)


def state() -> Dict[str, Any]:
    """Where all generators of this process stand, as plain values and tensors."""
    numpy: Any = np.random.get_state(legacy=False)
    numpy["state"]["key"] = torch.from_numpy(numpy["state"]["key"].astype(np.int64))
    kept: Dict[str, Any] = {
        "random": random.getstate(),
        "numpy": numpy,
        "torch": torch.get_rng_state(),
    }
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        kept["cuda"] = torch.cuda.get_rng_state()
    return kept


def restore(kept: Dict[str, Any]) -> None:
    """Let all generators go on from where they stood."""
    random.setstate(kept["random"])
    words = kept["numpy"]["state"]
    np.random.set_state({**kept["numpy"], "state": {**words, "key": words["key"].numpy().astype(np.uint32)}})
    torch.set_rng_state(kept["torch"].cpu())
    if "cuda" in kept and torch.cuda.is_available():
        torch.cuda.set_rng_state(kept["cuda"].cpu())


@contextlib.contextmanager
def borrowed(seed: int) -> Iterator[None]:
    """In the block random numbers follow from `seed`; afterwards they go on as if it had not been."""
    before = (random.getstate(), np.random.get_state(), torch.get_rng_state())
    seed_host(seed)
    try:
        yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])
        torch.set_rng_state(before[2])
