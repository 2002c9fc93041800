"""What training code for Determined asks by the names that its package has."""

from __future__ import annotations

import pytest
import torch

from tests.trainmaster.pytorch.squares import Runs, Squares
from trainmaster import ExperimentConfig, pytorch


def test_a_config_answers_the_questions_of_determineds() -> None:
    config = ExperimentConfig(
        resources={"slots_per_trial": 2, "native_parallel": True},
        optimizations={"average_training_metrics": False, "aggregation_frequency": 4},
        profiling={"enabled": True, "begin_on_batch": 3, "end_after_batch": 9, "sync_timings": False},
        records_per_epoch=100,
        min_validation_period={"batches": 10},
        min_checkpoint_period={"epochs": 1},
    )
    assert config.native_parallel_enabled() and not config.average_training_metrics_enabled()
    assert config.profiling_interval() == (3, 9) and not config.profiling_sync_timings()
    assert config.get_records_per_epoch() == 100
    assert (config.get_min_validation_period(), config.get_min_checkpoint_period()) == (
        {"batches": 10},
        {"epochs": 1},
    )
    assert config.get_optimizations_config()["aggregation_frequency"] == 4
    empty = ExperimentConfig(resources={})
    assert not empty.native_parallel_enabled() and empty.average_training_metrics_enabled()
    assert empty.profiling_interval() == (0, 0) and empty.profiling_sync_timings()
    assert empty.get_records_per_epoch() is None
    assert empty.get_min_validation_period() == empty.get_min_checkpoint_period() == {}


def test_a_period_says_when_it_ends() -> None:
    assert [step for step in range(10) if pytorch.Batch(4).should_stop(step)] == [4, 8]
    assert [step for step in range(10) if pytorch.Epoch([1, 7]).should_stop(step)] == [1, 7]


def test_periods_may_be_schedules_and_lengths_may_not(runs: Runs) -> None:
    with runs.attempt() as context:
        pytorch.Trainer(Squares(context), context).fit(
            max_length=pytorch.Batch(12),
            validation_period=pytorch.Batch([2, 5]),
            checkpoint_period=pytorch.Epoch({1}),  # of 10 batches
            checkpoint_policy="none",
        )
        with pytest.raises(ValueError, match=r"Batch\(\[2, 5\]\) is a schedule"):
            pytorch.Trainer(Squares(context), context).fit(max_length=pytorch.Batch([2, 5]))
    assert [record["steps_completed"] for record in runs.metrics("validation")] == [2, 5, 12]
    assert [record["steps_completed"] for record in runs.checkpoints()] == [10, 12]
    for wrong in ("ab", True, 0):
        with pytest.raises(ValueError, match="a whole number, 1 or more"):
            pytorch.Epoch(wrong)


def test_a_wrapped_scheduler_says_its_rate() -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.5)
    plain = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.1)
    wrapped = pytorch.LRScheduler(plain, pytorch.LRScheduler.StepMode.MANUAL_STEP)
    wrapped.step()
    assert wrapped.get_last_lr() == [pytest.approx(0.05)]


def test_values_of_a_reducers_function_are_in_the_order_of_the_data() -> None:
    reducer = pytorch._SimpleReducer(list)
    assert reducer.cross_slot_reduce([["a", "c", "e"], ["b", "d"]]) == ["a", "b", "c", "d", "e"]
