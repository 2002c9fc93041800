"""A trial that was paused ends with the very weights of one that was not."""

from typing import Any

import pytest
import torch

from tests.trainmaster.pytorch.squares import Runs, Squares
from trainmaster import pytorch

LENGTH = pytorch.Batch(27)  # of 10 a epoch


class PausesAt(Squares):
    """Is told to make room while it trains its batch of this number."""

    at = -1
    runs: Runs

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        if batch_idx == self.at:
            self.runs.preempt()
        return super().train_batch(batch, epoch_idx, batch_idx)


def trained(runs: Runs, at: int = -1, workers: int = 0, latest: str | None = None, **config: Any) -> PausesAt:
    with runs.attempt(latest, config) as context:
        trial = PausesAt(context)
        trial.at, trial.runs, trial.workers = at, runs, workers
        pytorch.Trainer(trial, context).fit(
            max_length=LENGTH,
            validation_period=pytorch.Batch(5),
            reporting_period=pytorch.Batch(4),
            checkpoint_policy="none",
        )
    return trial


def assert_same(one: Squares, other: Squares) -> None:
    assert all(torch.equal(a, b) for a, b in zip(one.weights(), other.weights(), strict=True))
    assert repr(one.optimizer.state_dict()) == repr(other.optimizer.state_dict())


@pytest.mark.parametrize(("at", "workers"), [(0, 0), (13, 0), (19, 0), (13, 2)])
def test_a_paused_trial_goes_on_bit_for_bit(at: int, workers: int, runs: Runs) -> None:
    straight = trained(runs, workers=workers)
    first = trained(runs, at, workers)
    saved = runs.checkpoints()
    assert first.seen == list(range(at + 1))
    assert [record["metadata"]["steps_completed"] for record in saved] == [at + 1]
    assert runs.records("preempt_ack")
    second = trained(runs, workers=workers, latest=saved[0]["uuid"])
    assert second.seen == list(range(at + 1, 27))
    assert_same(straight, second)
    assert runs.metrics("validation")[-1]["steps_completed"] == 27
    if not workers:  # what was trained before is not read again
        assert len(second.data.read) == 4 * (27 - at - 1)


def test_gradients_that_are_being_gathered_are_not_lost_by_a_pause(runs: Runs) -> None:
    optimizations = {"aggregation_frequency": 3}
    straight = trained(runs, optimizations=optimizations)
    trained(runs, 12, optimizations=optimizations)
    (saved,) = runs.checkpoints()
    assert saved["metadata"]["steps_completed"] == 15, "it goes on to the end of the aggregation"
    assert_same(straight, trained(runs, latest=saved["uuid"], optimizations=optimizations))


def test_a_trial_that_begins_with_the_checkpoint_of_another_counts_its_own_batches(runs: Runs) -> None:
    first = trained(runs, 13)
    with runs.attempt(runs.checkpoints()[0]["uuid"], trial_id=99) as context:
        trial = Squares(context)
        begins: list[float] = []
        trial.build_callbacks = lambda: {"begin": Begin(trial, begins)}  # type: ignore[method-assign]
        pytorch.Trainer(trial, context).fit(max_length=pytorch.Batch(3), checkpoint_policy="none")
    assert trial.seen == [0, 1, 2]
    assert begins == [float(first.weights()[0].sum())], "it begins with the weights of the other"
    assert [record["metadata"]["steps_completed"] for record in runs.checkpoints()] == [3]


class Begin(pytorch.PyTorchCallback):
    def __init__(self, trial: Squares, begins: list[float]) -> None:
        self.trial, self.begins = trial, begins

    def on_training_start(self) -> None:
        self.begins.append(float(self.trial.weights()[0].sum()))
