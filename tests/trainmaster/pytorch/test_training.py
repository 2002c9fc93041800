"""What the Trainer does when: reports, validations, checkpoints, hooks, and the end."""

import json
import logging
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.trainmaster.pytorch.squares import BATCH, Runs, Squares
from trainmaster import pytorch


class Told(pytorch.PyTorchCallback):
    """Writes down which hooks were called."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.given: dict[str, Any] = {}
        self.learns: dict[str, tuple[bool, bool]] = {}
        self.model: Any = None

    def state_dict(self) -> dict[str, Any]:
        return {"told": len(self.calls)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.calls.append(f"load_state_dict {state_dict['told'] > 0}")


def _hook(name: str) -> Any:
    def hook(self: Told, *arguments: Any) -> None:
        self.calls.append(name)
        self.given[name] = arguments
        self.learns[name] = torch.is_grad_enabled(), self.model is None or self.model.training

    return hook


HOOKS = [name for name in vars(pytorch.PyTorchCallback) if name.startswith("on_")]
for _name in HOOKS:
    setattr(Told, _name, _hook(_name))


class Watched(Squares):
    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        super().__init__(context)
        self.told = Told()
        self.told.model = self.model

    def build_callbacks(self) -> dict[str, pytorch.PyTorchCallback]:
        return {"told": self.told}


def test_hooks_come_in_the_documented_order(runs: Runs) -> None:
    with runs.attempt() as context:
        trial = Watched(context)
        pytorch.Trainer(trial, context).fit(max_length=pytorch.Epoch(1), reporting_period=pytorch.Batch(5))
    at_the_end = [
        "on_validation_start",
        "on_validation_epoch_start",
        "on_validation_epoch_end",
        "on_validation_end",
    ]
    saved = [
        "on_checkpoint_save_start",
        "on_checkpoint_write_end",
        "on_checkpoint_end",
        "on_checkpoint_upload_end",
    ]
    assert trial.told.calls == [
        "on_trial_startup", "on_training_start", "on_training_epoch_start", "on_training_workload_end",
        "on_training_epoch_end", "on_training_workload_end", *at_the_end, *saved, "on_trial_shutdown",
    ]  # fmt: skip
    assert set(trial.told.calls) == set(HOOKS) - {"on_checkpoint_load_start"}
    given = trial.told.given
    assert given["on_trial_startup"] == (0, None)
    averages, each = given["on_training_workload_end"]
    assert averages["loss"] == pytest.approx(sum(batch["loss"] for batch in each) / 5)
    outputs = given["on_validation_epoch_end"][0]
    assert len(outputs) == 3, "10 samples in batches of 4"
    assert all(isinstance(output["validation_loss"], np.ndarray) for output in outputs)
    assert {name for name, learns in trial.told.learns.items() if learns != (True, True)} == set(at_the_end)
    assert all(trial.told.learns[name] == (False, False) for name in at_the_end)
    (uuid,) = given["on_checkpoint_upload_end"]
    assert [record["uuid"] for record in runs.checkpoints()] == [uuid]
    (report,) = runs.metrics("validation")
    lengths = {"epoch": 1.0, "epochs": 1, "batches": 10}
    assert report["metrics"] == {**lengths, **given["on_validation_end"][0]}

    with runs.attempt(latest=uuid) as context:
        resumed = Watched(context)
        pytorch.Trainer(resumed, context).fit(max_length=pytorch.Batch(11))
        assert context.get_initial_batch() == 10
    assert resumed.told.calls[:4] == [
        "on_trial_startup", "on_checkpoint_load_start", "load_state_dict True", "on_training_start",
    ]  # fmt: skip
    assert resumed.told.given["on_trial_startup"] == (10, uuid)


def test_periods_are_counted_from_the_start_of_the_trial(runs: Runs) -> None:
    with runs.attempt() as context:
        pytorch.Trainer(Squares(context), context).fit(
            max_length=pytorch.Batch(25),
            validation_period=pytorch.Epoch(1),
            checkpoint_period=pytorch.Record(12 * BATCH),
            reporting_period=pytorch.Batch(8),
            checkpoint_policy="none",
            step_zero_validation=True,
        )
    steps = {
        group: [record["steps_completed"] for record in runs.metrics(group)]
        for group in ("training", "validation")
    }
    assert steps == {"training": [8, 10, 16, 20, 24, 25], "validation": [0, 10, 20, 25]}
    assert [record["steps_completed"] for record in runs.checkpoints()] == [12, 24, 25]
    assert [record["metrics"]["epoch"] for record in runs.metrics("training")][:2] == [0.8, 1.0]
    assert runs.records("progress")[-1]["progress"] == 1.0


class Scripted(Squares):
    """Validates to given numbers."""

    values = [math.nan, 3.0, 4.0, 2.0]

    def evaluate_full_dataset(self, data_loader: Any) -> dict[str, Any]:
        assert sum(len(y) for _, y in data_loader) == 10
        number = self.context._position.batches // 2 - 1  # type: ignore[union-attr]
        return {"validation_loss": torch.tensor(self.values[number]), "table": [1, 2]}

    evaluate_batch = pytorch.PyTorchTrial.evaluate_batch


@pytest.mark.parametrize(
    ("policy", "smaller", "saved"),
    [("best", True, [4, 8]), ("best", False, [4, 6, 8]), ("all", True, [2, 4, 6, 8]), ("none", True, [8])],
)
def test_the_policy_says_after_which_validations_a_checkpoint_is_stored(
    policy: str, smaller: bool, saved: list[int], runs: Runs
) -> None:
    config = {"searcher": {"metric": "validation_loss", "smaller_is_better": smaller}}
    with runs.attempt(config=config) as context:
        pytorch.Trainer(Scripted(context), context).fit(
            max_length=pytorch.Batch(8), validation_period=pytorch.Batch(2), checkpoint_policy=policy
        )
    assert [record["steps_completed"] for record in runs.checkpoints()] == saved
    assert runs.metrics("validation")[0]["metrics"]["table"] == [1, 2]


class Stops(Squares):
    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        self.context.set_stop_requested(batch_idx == 6)
        assert self.context.is_epoch_start() == (batch_idx == 0) and not self.context.is_epoch_end()
        assert self.context.current_train_batch() == batch_idx
        return super().train_batch(batch, epoch_idx, batch_idx)


def test_a_trial_may_ask_for_its_own_end(runs: Runs) -> None:
    with runs.attempt() as context:
        pytorch.Trainer(Stops(context), context).fit(max_length=pytorch.Batch(1000))
    assert [record["steps_completed"] for record in runs.checkpoints()] == [7]
    assert [record["reason"] for record in runs.records("early_exit")] == ["USER_REQUESTED_STOP"]


class Reduces(Squares):
    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        super().__init__(context)
        self.worst = context.wrap_reducer(max, name="worst", for_training=False)
        self.count = context.wrap_reducer(lambda parts: {"count": sum(parts), "batches": len(parts)})
        self.lengths = [context._epoch_len]

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        self.count.update(len(batch[0]))  # type: ignore[attr-defined]
        super().train_batch(batch, epoch_idx, batch_idx)
        return {}

    def evaluate_batch(self, batch: Any) -> dict[str, Any]:  # type: ignore[override]  # the older form
        self.lengths = [self.lengths[0], self.context._epoch_len]
        number = float(batch[1].sum())
        self.worst.update(number)  # type: ignore[attr-defined]
        self.count.update(len(batch[0]))  # type: ignore[attr-defined]
        return {"sum": number, "average": number, "highest": number}

    def evaluation_reducer(self) -> dict[str, pytorch.Reducer]:
        return {"sum": pytorch.Reducer.SUM, "average": pytorch.Reducer.AVG, "highest": pytorch.Reducer.MAX}


def test_metrics_are_reduced_as_the_trial_says(runs: Runs) -> None:
    with runs.attempt() as context:
        trial = Reduces(context)
        pytorch.Trainer(trial, context).fit(max_length=pytorch.Batch(6), reporting_period=pytorch.Batch(3))
    metrics = runs.metrics("validation")[0]["metrics"]
    assert metrics["average"] == pytest.approx(metrics["sum"] / 3)
    assert metrics["worst"] == metrics["highest"] < metrics["sum"]
    assert (metrics["count"], metrics["batches"]) == (10, 3)
    assert trial.lengths == [None, 10]
    training = [record["metrics"] for record in runs.metrics("training")]
    assert [(metric["count"], metric["batches"]) for metric in training] == [(12, 3), (12, 3)]


def test_a_trial_trains_without_a_cluster_and_is_loaded_again(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("TRAINMASTER_RUN_DIR", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(runs.folder))
    caplog.set_level(logging.INFO)
    config = {"environment": {"image": "x", "environment_variables": ["KEY=secret"]}, "data": {"of": "mine"}}
    with pytorch.init(hparams={"global_batch_size": BATCH}, exp_conf=config) as context:
        trial = Watched(context)
        trainer = pytorch.Trainer(trial, context)
        with pytest.raises(ValueError, match=r"fit\(max_length="):
            trainer.fit()
        trainer.fit(max_length=pytorch.Epoch(1))
    assert "report_validation_metrics(steps_completed=10" in caplog.text
    (timed,) = [each.getMessage() for each in caplog.records if each.getMessage().startswith("validated: ")]
    number = r"[\d.e+-]+"
    words = rf"validated: 10 records in {number}s \({number} records/s\), in 3 batches \({number} batches/s\)"
    assert re.fullmatch(words, timed)
    assert [each.name for each in caplog.records if each.getMessage() == timed] == ["determined.pytorch"]
    (uuid,) = trial.told.given["on_checkpoint_upload_end"]
    folder = Path(runs.folder, "trainmaster", "checkpoints", uuid)
    about = json.loads((folder / "load_data.json").read_text())
    assert about["experiment_config"] == {"environment": {"image": "x"}, "data": {"of": "mine"}}
    for path in (uuid, str(folder)):
        with pytorch.init(hparams={"global_batch_size": BATCH}) as context:
            again = Squares(context)
            pytorch.Trainer(again, context).fit(max_length=pytorch.Epoch(1), latest_checkpoint=path)
            assert not again.seen
        assert f"Restoring trial from checkpoint {path}" in caplog.text
    loaded = pytorch.load_trial_from_checkpoint_path(folder, torch_load_kwargs={"map_location": "cpu"})
    by_hand = Squares(pytorch.CheckpointLoadContext({"global_batch_size": BATCH}))
    assert not torch.equal(by_hand.weights()[0], trial.weights()[0]), "as it was built"
    assert type(loaded).__name__ == "Watched" and isinstance(loaded, pytorch.PyTorchTrial)
    assert all(torch.equal(a, b) for a, b in zip(trial.weights(), loaded.weights(), strict=True))  # type: ignore[attr-defined]


def test_mixed_precision_and_one_batch_of_each_in_test_mode(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRAINMASTER_RUN_DIR", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(runs.folder))
    with pytorch.init() as context:
        context.experimental.use_amp()
        trial = Watched(context)
        pytorch.Trainer(trial, context).fit(max_length=pytorch.Epoch(9), test_mode=True)
    assert trial.seen == [0] and len(trial.told.given["on_validation_epoch_end"][0]) == 1
    assert trial.model[0].weight.dtype == torch.float32


class Wrong(Squares):
    gives: Any = 3

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        return self.gives

    def build_validation_data_loader(self) -> Any:
        return [1] if self.gives == "loader" else super().build_validation_data_loader()


def test_what_is_wrong_is_said_in_a_sentence(runs: Runs) -> None:
    with runs.attempt(lr=1, global_batch_size=0) as context:
        trainer = pytorch.Trainer(Wrong(context), context)
        for wrong, sentence in (
            ({"max_length": 5}, r"pytorch.Batch\(n\)"),
            ({"max_length": pytorch.Batch(1), "checkpoint_policy": "some"}, "best, all, none"),
            ({"test_mode": True}, "outside the cluster"),
            (
                {"max_length": pytorch.Batch(1), "checkpoint_period": pytorch.Record(1)},
                "global_batch_size is 0",
            ),
        ):
            with pytest.raises((ValueError, TypeError), match=sentence):
                trainer.fit(**wrong)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="available: global_batch_size, lr"):
            context.get_hparam("momentum")
        with pytest.raises(RuntimeError, match="use_amp"):
            context.configure_apex_amp()
        with pytest.raises(RuntimeError, match="while a Trainer is training"):
            context.is_epoch_start()
    with runs.attempt() as context:
        trial = Wrong(context)
        with pytest.raises(TypeError, match="train_batch\\(\\) must return a dict"):
            pytorch.Trainer(trial, context).fit(max_length=pytorch.Batch(1))
        trial.gives = "loader"
        with pytest.raises(TypeError, match="disable_dataset_reproducibility_checks"):
            pytorch.Trainer(trial, context).fit(max_length=pytorch.Batch(1))
    with runs.attempt() as context:
        trial = Wrong(context)
        context.optimizers.clear()
        with pytest.raises(ValueError, match="1 models and 0 optimizers"):
            pytorch.Trainer(trial, context).fit(max_length=pytorch.Batch(1))
    with pytest.raises(ValueError, match=r"Batch\(0\)"):
        pytorch.Batch(0)
