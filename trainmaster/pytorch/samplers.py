"""Samplers that shuffle reproducibly, share among ranks, skip and repeat.

`DataLoader` uses what it needs of them by itself; they are for programs that build their own loaders. Those named
`...BatchSampler` pass whole batches on, the others single indices.
"""

from __future__ import annotations

import itertools
from typing import Any, Iterator

import torch
from torch.utils.data import BatchSampler, Sampler

from trainmaster.pytorch._randomness import mixed


class _Repeating:
    def __init__(self, sampler: Any) -> None:
        self._base = sampler

    def __iter__(self) -> Iterator[Any]:
        while True:
            count = 0
            for count, item in enumerate(self._base, start=1):  # noqa: B007  (0 when there is nothing)
                yield item
            if not count:
                return

    def __len__(self) -> int:
        return len(self._base)


class _Sharing:
    def __init__(self, sampler: Any, num_workers: int, rank: int) -> None:
        if not 0 <= rank < num_workers:
            raise ValueError(f"rank is {rank}; it must be from 0 to {num_workers - 1}.")
        self._base = sampler
        self._num_workers = num_workers
        self._rank = rank

    def __iter__(self) -> Iterator[Any]:
        return itertools.islice(iter(self._base), self._rank, None, self._num_workers)

    def __len__(self) -> int:
        return max(0, (len(self._base) - self._rank + self._num_workers - 1) // self._num_workers)


class _Skipping:
    def __init__(self, sampler: Any, skip: int) -> None:
        if skip < 0:
            raise ValueError(f"skip is {skip}; it must be 0 or more.")
        self._base = sampler
        self._skip = skip

    def __iter__(self) -> Iterator[Any]:
        return itertools.islice(iter(self._base), self._skip, None)

    def __len__(self) -> int:
        return max(0, len(self._base) - self._skip)


class _Shuffling:
    """The items of another sampler in an order that follows from the seed and the number of the pass."""

    def __init__(self, sampler: Any, seed: int) -> None:
        self._base = sampler
        self._seed = seed
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """The next pass is this one; each pass goes on to the next."""
        self._epoch = epoch

    def __iter__(self) -> Iterator[Any]:
        generator = torch.Generator()
        generator.manual_seed(mixed(self._seed, self._epoch))
        self._epoch += 1
        items = list(self._base)
        return (items[place] for place in torch.randperm(len(items), generator=generator).tolist())

    def __len__(self) -> int:
        return len(self._base)


class RepeatSampler(_Repeating, Sampler):
    """The indices of another sampler, over and over; its length is that of one pass."""


class RepeatBatchSampler(_Repeating, BatchSampler):
    """The batches of another batch sampler, over and over; its length is that of one pass."""

    def __init__(self, batch_sampler: Any) -> None:
        super().__init__(batch_sampler)


class DistributedSampler(_Sharing, Sampler):
    """Every `num_workers`-th index, from `rank` on; the first ranks may get one more than the others."""


class DistributedBatchSampler(_Sharing, BatchSampler):
    """Every `num_workers`-th batch, from `rank` on; the first ranks may get one more than the others."""

    def __init__(self, batch_sampler: Any, num_workers: int, rank: int) -> None:
        super().__init__(batch_sampler, num_workers, rank)


class SkipSampler(_Skipping, Sampler):
    """Another sampler without its first `skip` indices, at every pass: repeat first, then skip."""


class SkipBatchSampler(_Skipping, BatchSampler):
    """Another batch sampler without its first `skip` batches, at every pass: repeat first, then skip."""

    def __init__(self, batch_sampler: Any, skip: int) -> None:
        super().__init__(batch_sampler, skip)


class ReproducibleShuffleSampler(_Shuffling, Sampler):
    """The indices of another sampler, in an order that follows from the seed and the number of the pass alone."""


class ReproducibleShuffleBatchSampler(_Shuffling, BatchSampler):
    """The batches of another batch sampler, in an order that follows from the seed and the number of the pass alone."""

    def __init__(self, batch_sampler: Any, seed: int) -> None:
        super().__init__(batch_sampler, seed)
