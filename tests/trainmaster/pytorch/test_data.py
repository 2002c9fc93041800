"""Data of the Trial API: orders that repeat, shares of ranks, and what is moved to a device."""

from collections import Counter, namedtuple
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import IterableDataset, RandomSampler, TensorDataset, WeightedRandomSampler

from trainmaster import pytorch
from trainmaster.pytorch import samplers
from trainmaster.pytorch._data import EpochLoader
from trainmaster.pytorch._evaluation import held, to_arrays, to_numbers

DATA = TensorDataset(torch.arange(23))


def epoch(
    loader: pytorch.DataLoader, number: int, skip: int = 0, rank: int = 0, size: int = 1, even: bool = True
) -> Any:
    return [batch[0].tolist() for batch in EpochLoader(loader, 7, rank, size, even).epoch(number, skip)]


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 2, "shuffle": True},
        {"batch_size": 2, "sampler": RandomSampler(DATA)},
        {"batch_size": 3, "sampler": WeightedRandomSampler([1.0] * 23, 23), "drop_last": True},
        {"batch_sampler": samplers.ReproducibleShuffleBatchSampler([[0, 1], [2, 3], [4, 5]], 1)},
    ],
)
def test_an_epoch_has_its_own_order_whoever_shuffles(options: dict[str, Any]) -> None:
    loader = pytorch.DataLoader(DATA, **options)
    before = torch.get_rng_state()
    first, again, second = epoch(loader, 0), epoch(loader, 0), epoch(loader, 1)
    assert first == again != second
    assert epoch(loader, 1, skip=2) == second[2:]
    assert torch.equal(before, torch.get_rng_state()), "the training's random numbers are not used"


def test_ranks_share_an_epoch_evenly_for_training_and_wholly_for_validation() -> None:
    loader = pytorch.DataLoader(DATA, batch_size=2, shuffle=True)
    training = [epoch(loader, 0, rank=rank, size=5) for rank in range(5)]
    assert [len(batches) for batches in training] == [2] * 5, "12 batches, of which 2 are left over"
    validation = [epoch(loader, 0, rank=rank, size=5, even=False) for rank in range(5)]
    assert [len(batches) for batches in validation] == [3, 3, 2, 2, 2]
    seen = Counter(number for batches in validation for batch in batches for number in batch)
    assert seen == Counter(range(23))
    assert epoch(loader, 0, skip=1, rank=3, size=5) == training[3][1:]


def test_samplers_repeat_share_and_skip() -> None:
    batches = [[0, 1], [2, 3], [4, 5]]
    adapted = iter(pytorch.adapt_batch_sampler(batches, repeat=True, skip=1, num_replicas=2, rank=1))
    assert [next(adapted) for _ in range(3)] == [[0, 1], [4, 5], [2, 3]]
    assert list(samplers.DistributedSampler(range(5), 2, 1)) == [1, 3]
    assert [len(samplers.DistributedBatchSampler(batches, 2, rank)) for rank in range(2)] == [2, 1]
    assert list(samplers.SkipSampler(range(4), 3)) == [3]
    assert list(samplers.RepeatSampler(sampler=[])) == []
    chosen = samplers.ReproducibleShuffleSampler(sampler=[7, 8, 9, 11], seed=1)
    assert sorted(chosen) == sorted(chosen) == [7, 8, 9, 11], "the sampler's own indices"
    plain = pytorch.DataLoader(DATA, batch_size=5).get_data_loader(skip=1, num_replicas=2, rank=0)
    assert [batch[0].tolist()[0] for batch in plain] == [10, 20]
    with pytest.raises(ValueError, match="from 0 to 1"):
        samplers.DistributedSampler(range(5), 2, 2)


def test_a_dataset_without_indices_is_refused_with_a_way_out() -> None:
    class Stream(IterableDataset[int]):
        def __iter__(self) -> Any:
            return iter(())

    with pytest.raises(TypeError, match="disable_dataset_reproducibility_checks"):
        pytorch.DataLoader(Stream())


def test_structures_are_moved_part_by_part() -> None:
    Pair = namedtuple("Pair", "x y")
    unmoved: set[type] = set()
    batch = {"a": [np.ones(3, np.float32), 4], "b": Pair(torch.ones(2), "text"), "c": (object(), None)}
    moved = pytorch.to_device(batch, torch.device("meta"), unmoved)
    assert moved["a"][0].device.type == moved["b"].x.device.type == "meta"
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(2), torch.ones(1)])
    assert pytorch.to_device(packed, torch.device("cpu"), unmoved).batch_sizes.tolist() == [2, 1]
    assert moved["a"][1] == 4 and moved["b"].y == "text" and unmoved == {object}
    lengths = [pytorch.data_length(data) for data in (batch, [torch.zeros(5, 2)], ["a", "b"])]
    assert lengths == [3, 5, 2]
    with pytest.raises(TypeError, match="get_batch_length"):
        pytorch.data_length(3)


def test_metrics_that_are_no_numbers_are_left_out_with_a_word(caplog: pytest.LogCaptureFixture) -> None:
    weight = torch.ones(1, requires_grad=True)
    kept = held({"loss": 2 * weight, "outputs": torch.zeros(9), "name": "x", "ok": np.float32(3)})
    assert list(kept) == ["loss", "name", "ok"] and not kept["loss"].requires_grad
    assert to_numbers(kept) == {"loss": 2.0, "ok": 3.0}
    arrays = to_arrays({"a": weight.bfloat16(), "b": torch.eye(2).to_sparse(), "c": "text"})
    assert (arrays["a"].dtype, arrays["b"].tolist(), arrays["c"]) == (np.float32, [[1, 0], [0, 1]], "text")
    assert "'outputs' is of type Tensor" in caplog.text and "'name' is of type str" in caplog.text


def test_a_loader_is_iterated_outside_a_trial() -> None:
    loader = pytorch.DataLoader(TensorDataset(torch.arange(6)), batch_size=4)
    assert [batch[0].tolist() for batch in loader] == [[0, 1, 2, 3], [4, 5]] and len(loader) == 2
