"""The trial API's data loader: it describes the data, and is shared out and gone on with at any batch."""

from __future__ import annotations

import itertools
import logging
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Set, Tuple, Union

import numpy as np
import torch
from torch.utils.data import BatchSampler, IterableDataset, SequentialSampler, get_worker_info

from trainmaster.pytorch import samplers
from trainmaster.pytorch._randomness import borrowed, mixed, seed_host

logger = logging.getLogger("trainmaster.pytorch")

#: what a batch may be, for annotations in trials
TorchData = Union[Dict[str, torch.Tensor], Sequence[torch.Tensor], torch.Tensor]


def adapt_batch_sampler(
    batch_sampler: Any, repeat: bool = False, skip: int = 0, num_replicas: int = 1, rank: int = 0
) -> Any:
    """A batch sampler of this rank's batches: repeated, shared among `num_replicas`, then `skip` of its own skipped."""
    if repeat:
        batch_sampler = samplers.RepeatBatchSampler(batch_sampler)
    if num_replicas > 1:
        batch_sampler = samplers.DistributedBatchSampler(batch_sampler, num_replicas, rank)
    return samplers.SkipBatchSampler(batch_sampler, skip) if skip else batch_sampler


class DataLoader:
    """Takes what `torch.utils.data.DataLoader` takes; `batch_size` is that of one rank.

    Which samples come when follows from the trial's seed and the epoch alone, whoever shuffles: `shuffle=True`, a
    sampler or a batch sampler of one's own. Ranks take the batches in turn. A trial that goes on in the middle of an
    epoch reads no sample of the batches before. TypeError for an IterableDataset, which cannot be shared so.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int = 1,
        shuffle: bool = False,
        sampler: Any = None,
        batch_sampler: Any = None,
        num_workers: int = 0,
        collate_fn: Optional[Callable[[List[Any]], Any]] = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        **options: Any,
    ) -> None:
        if isinstance(dataset, IterableDataset):
            raise TypeError(
                "pytorch.DataLoader needs a dataset with indices, not an IterableDataset: return a "
                "torch.utils.data.DataLoader that reads this rank's part, and call "
                "context.experimental.disable_dataset_reproducibility_checks()."
            )
        if sampler is not None and shuffle:
            raise ValueError("Give either a sampler or shuffle=True, not both.")
        if batch_sampler is not None and (batch_size != 1 or shuffle or sampler is not None or drop_last):
            raise ValueError("With a batch_sampler, do not give batch_size, shuffle, sampler or drop_last.")
        self.dataset = dataset
        self.batch_size = batch_size
        self.num_workers = num_workers
        self._shuffle = shuffle
        self._sampler = sampler if sampler is not None else SequentialSampler(dataset)
        self._batch_sampler = batch_sampler
        self._drop_last = drop_last
        self._options: Dict[str, Any] = {
            "num_workers": num_workers,
            "collate_fn": collate_fn,
            "pin_memory": pin_memory,
            **options,
        }
        self._own_order = sampler is not None or batch_sampler is not None

    def __len__(self) -> int:
        """Batches in all the data, before it is shared among ranks."""
        return len(self._batches(0))

    def __iter__(self) -> Iterator[Any]:
        """All batches once, outside a trial; a trial reads its rank's share."""
        return iter(self.get_data_loader())

    def get_data_loader(
        self, repeat: bool = False, skip: int = 0, num_replicas: int = 1, rank: int = 0
    ) -> torch.utils.data.DataLoader:
        """A plain PyTorch loader over this rank's batches, shuffled by PyTorch's own random numbers."""
        sampler = self._sampler
        if self._shuffle:
            sampler = torch.utils.data.RandomSampler(self.dataset)
        batches = self._batch_sampler or BatchSampler(sampler, self.batch_size, self._drop_last)
        adapted = adapt_batch_sampler(batches, repeat, skip, num_replicas, rank)
        return torch.utils.data.DataLoader(self.dataset, batch_sampler=adapted, **self._options)

    def _batches(self, seed: int) -> Any:
        if self._batch_sampler is not None:
            return self._batch_sampler
        sampler = self._sampler
        if self._shuffle:
            sampler = samplers.ReproducibleShuffleSampler(self._sampler, seed)
        return BatchSampler(sampler, self.batch_size, self._drop_last)


class SeededIndices(List[Any]):
    """The indices of one batch, and the seed for random numbers that are drawn while a worker reads it."""

    seed = 0


class _SeededDataset:
    """Another dataset whose random numbers, in a worker process, follow from the batch: so it can be read again.

    PyTorch older than 2.0 does not ask for whole batches; there random transforms in workers are as it seeds them.
    """

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __getattr__(self, name: str) -> Any:
        if name == "_dataset":  # while it is being unpickled in a worker
            raise AttributeError(name)
        return getattr(self._dataset, name)

    def __getitem__(self, index: Any) -> Any:
        return self._dataset[index]

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitems__(self, indices: List[Any]) -> List[Any]:
        seed = getattr(indices, "seed", None)
        if seed is not None and get_worker_info() is not None:
            seed_host(seed)
        whole = getattr(self._dataset, "__getitems__", None)
        if callable(whole):
            return list(whole(indices))
        return [self._dataset[index] for index in indices]


class RankBatches:
    """One rank's batches of one epoch; `begin` says which epoch, and where in it."""

    def __init__(self, loader: DataLoader, seed: int, rank: int, size: int, even: bool) -> None:
        self._base = loader._batches(seed)
        self._drawn = loader._own_order
        self._seed, self._rank, self._size = seed, rank, size
        total = len(self._base)
        self._count = total // size if even else max(0, (total - rank + size - 1) // size)
        self._epoch, self._skip = 0, 0

    def begin(self, epoch: int, skip: int) -> None:
        """The next pass is over this epoch without its first `skip` batches of this rank."""
        self._epoch, self._skip = epoch, skip

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[SeededIndices]:
        mine = itertools.islice(
            self._all(),
            self._rank + self._skip * self._size,
            self._rank + self._count * self._size,
            self._size,
        )
        for number, batch in enumerate(mine, start=self._skip):
            indices = SeededIndices(batch)
            indices.seed = mixed(self._seed, self._epoch, number, self._rank)
            yield indices

    def _all(self) -> Iterator[Any]:
        """Every rank's batches, the same on all ranks."""
        for sampler in (self._base, getattr(self._base, "sampler", None)):
            if callable(getattr(sampler, "set_epoch", None)):
                sampler.set_epoch(self._epoch)  # type: ignore[union-attr]
        if not self._drawn:
            return iter(self._base)
        with borrowed(mixed(self._seed, self._epoch)):
            return iter(list(self._base))


class EpochLoader:
    """Epoch after epoch of this rank's batches.

    `even`: all ranks have equally many, and the few that are left over are not used, as training needs it.
    """

    def __init__(self, loader: DataLoader, seed: int, rank: int, size: int, even: bool) -> None:
        self._batches = RankBatches(loader, seed, rank, size, even)
        self._seed, self._rank = seed, rank
        self._generator = (
            torch.Generator()
        )  # of its own: iterating must not disturb the training's random numbers
        options = {**loader._options, "generator": self._generator}
        dataset = loader.dataset
        if loader.num_workers:
            options.setdefault("persistent_workers", True)
            dataset = _SeededDataset(dataset)
        self._loader = torch.utils.data.DataLoader(dataset, batch_sampler=self._batches, **options)

    def __len__(self) -> int:
        return len(self._batches)

    def epoch(self, epoch: int, skip: int = 0) -> Iterator[Any]:
        """The batches of this epoch from its `skip`-th on."""
        self._batches.begin(epoch, skip)
        self._generator.manual_seed(mixed(self._seed, epoch, self._rank))
        return iter(self._loader)

    def plain(self) -> Any:
        """The PyTorch loader itself, which gives the epoch that was begun last."""
        return self._loader


class ForeignLoader:
    """A loader of the user's own, which shares the data out by itself; it is never gone on with in the middle."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __len__(self) -> int:
        return len(self._loader)

    def epoch(self, epoch: int, skip: int = 0) -> Iterator[Any]:
        """A new pass; `skip` changes only how many batches of it the trainer takes."""
        sampler = getattr(self._loader, "sampler", None)
        if callable(getattr(sampler, "set_epoch", None)):
            sampler.set_epoch(epoch)  # type: ignore[union-attr]
        return iter(self._loader)

    def plain(self) -> Any:
        """The loader itself."""
        return self._loader


def to_device(data: Any, device: Any, warned_types: Optional[Set[type]] = None) -> Any:
    """Copy a structure (lists, tuples, dicts) with its tensors and arrays on `device`; numbers and text stay.

    Of what else there is the log hears once for each type, those in `warned_types` left out, which is filled.
    """
    warned = set() if warned_types is None else warned_types

    def unmoved(kind: type) -> None:
        if kind not in warned:
            warned.add(kind)
            logger.warning(
                "%s in a batch is not moved to the device: it is neither a tensor nor an array.",
                kind.__name__,
            )

    return _moved(data, device, unmoved)


def _moved(data: Any, device: Any, unmoved: Callable[[type], None]) -> Any:
    if isinstance(data, torch.Tensor):
        return data.to(device, non_blocking=True)
    if isinstance(data, np.ndarray):
        if data.dtype.kind in "OSU":
            return data
        return torch.from_numpy(data).to(device, non_blocking=True)
    if callable(getattr(data, "to", None)):  # packed sequences, batches of tokenizers
        return data.to(device)
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(_moved(part, device, unmoved) for part in data))
    if isinstance(data, (list, tuple)):
        return type(data)(_moved(part, device, unmoved) for part in data)
    if isinstance(data, dict):
        return {name: _moved(part, device, unmoved) for name, part in data.items()}
    if not isinstance(data, (int, float, complex, str, bytes, bool, type(None))):
        unmoved(type(data))
    return data


def data_length(data: Any) -> int:
    """How many samples a batch has, by the first tensor, array or list of plain values in it. TypeError without one."""
    found = _length(data)
    if found is None:
        raise TypeError(
            f"The number of samples in a batch of type {type(data).__name__} is unknown; "
            "define get_batch_length(self, batch) in the trial."
        )
    return found


def _length(batch: Any) -> Optional[int]:
    if isinstance(batch, (torch.Tensor, np.ndarray)):
        return len(batch) if batch.ndim else None
    parts: Tuple[Any, ...] = ()
    if callable(getattr(batch, "values", None)):
        parts = tuple(batch.values())
    elif isinstance(batch, (list, tuple)):
        parts = tuple(batch)
    for part in parts:
        found = _length(part)
        if found is not None:
            return found
    return len(parts) if isinstance(batch, list) and parts else None
