"""What a trial can ask of its context, and the forms in which a trial is named."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader as PlainLoader
from torch.utils.data import IterableDataset

from tests.trainmaster.pytorch.squares import BATCH, Runs, Squares
from trainmaster import pytorch
from trainmaster.pytorch import run_trial


class Foreign(Squares):
    """Loads by itself, scales its own gradients, and is profiled by PyTorch."""

    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        super().__init__(context)
        context.experimental.disable_dataset_reproducibility_checks()
        context.experimental.disable_auto_to_device()
        context.autocast_forward_pass(self.model)
        context.set_profiler(activities=[torch.profiler.ProfilerActivity.CPU])
        self.scaler = context.wrap_scaler(torch.amp.GradScaler("cpu", init_scale=8.0))
        self.norms: list[float] = []

    def get_batch_length(self, batch: Any) -> int:
        raise TypeError("nobody knows")

    def build_training_data_loader(self) -> Any:
        return PlainLoader(self.data, batch_size=BATCH)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> torch.Tensor:
        x, y = batch
        out = self.model(x)
        assert out.dtype == torch.bfloat16
        loss = torch.nn.functional.mse_loss(out.float().squeeze(1), y)
        self.context.backward(self.scaler.scale(loss))

        def clip(parameters: Any) -> None:
            assert len(parameters) == 6, "a list, which may be gone through twice"
            self.norms.append(float(torch.nn.utils.clip_grad_norm_(parameters, 0.5)))

        self.context.step_optimizer(self.optimizer, clip_grads=clip, scaler=self.scaler)
        self.scaler.update()
        return loss


def test_a_loader_a_scaler_and_a_profiler_of_ones_own(runs: Runs) -> None:
    with runs.attempt() as context:
        trial = Foreign(context)
        pytorch.Trainer(trial, context).fit(max_length=pytorch.Batch(12))
        assert list(context.get_tensorboard_path().glob("*.json")), "PyTorch's trace"
    assert trial.data.read[:4] == [0, 1, 2, 3] and len(trial.norms) == 12
    assert runs.metrics("training")[-1]["metrics"]["loss"] > 0
    state = torch.load(
        runs.folder / "checkpoints" / runs.checkpoints()[-1]["uuid"] / "state_dict.pth", weights_only=False
    )
    assert state["scaler_state_dict"]["scale"] == 8.0


class Endless(IterableDataset[Any]):
    """Six samples in a pass, and nobody knows that."""

    def __iter__(self) -> Iterator[Any]:
        return iter([(torch.ones(6), torch.tensor(6.0))] * 6)


class Streamed(Squares):
    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        super().__init__(context)
        context.experimental.disable_dataset_reproducibility_checks()

    def build_training_data_loader(self) -> Any:
        return PlainLoader(Endless(), batch_size=2)


def test_a_loader_without_a_length_is_gone_through_again_and_again(runs: Runs) -> None:
    with runs.attempt() as context:
        trial = Streamed(context)
        trainer = pytorch.Trainer(trial, context)
        with pytest.raises(ValueError, match="has no length"):
            trainer.fit(max_length=pytorch.Batch(7), validation_period=pytorch.Epoch(1))
        trainer.fit(max_length=pytorch.Batch(7))
    assert trial.seen == list(range(7))
    assert "epoch" not in runs.metrics("training")[-1]["metrics"]


def test_schedulers_step_when_the_optimizer_has(runs: Runs) -> None:
    modes = pytorch.LRScheduler.StepMode
    expected = {
        (modes.STEP_EVERY_BATCH, 1): [0, 0, 3, 3, 3, 6],
        (modes.STEP_EVERY_BATCH, 2): [0, 0, 1, 1, 1, 3],
        (modes.STEP_EVERY_OPTIMIZER_STEP, 1): [0, 0, 1, 1, 1, 2],
        (modes.STEP_EVERY_OPTIMIZER_STEP, 2): [0, 0, 0, 0, 0, 1],
        (modes.STEP_EVERY_EPOCH, 1): [0, 1, 1, 2, 2, 3],
        (modes.MANUAL_STEP, 1): [0, 0, 0, 0, 0, 0],
    }
    for (mode, frequency), steps in expected.items():
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
        scheduler = pytorch.LRScheduler(
            torch.optim.lr_scheduler.StepLR(optimizer, step_size=1), mode, frequency
        )
        optimizer.step()
        found = []
        for batch in range(1, 7):  # two batches an epoch, three an optimizer's step
            scheduler.after_batch(batch, 3, batch // 2, batch % 2 == 0)
            found.append(scheduler.last_epoch)
        assert found == steps, (mode, frequency)
    optimizations = {"aggregation_frequency": 2}
    with runs.attempt(config={"optimizations": optimizations}) as context:
        trial = Squares(context)
        with pytest.raises(ValueError, match="auto_zero_grads"):
            context.step_optimizer(trial.optimizer, auto_zero_grads=False)


def test_the_context_answers_from_the_trial(runs: Runs, caplog: pytest.LogCaptureFixture) -> None:
    config = {
        "data": {"bucket": "b"},
        "optimizations": {"auto_tune_tensor_fusion": True, "mixed_precision": "O1"},
    }
    caplog.set_level(logging.WARNING)
    with runs.attempt(config=config, width=3) as context:
        assert (context.get_experiment_id(), context.get_trial_id(), context.get_trial_seed()) == (7, 11, 5)
        assert context.get_hparams()["width"] == context.get_hparam("width") == 3
        assert context.get_data_config() == {"bucket": "b"}
        assert context.get_per_slot_batch_size() == context.get_global_batch_size() == BATCH
        first = torch.rand(3)
        with pytest.raises(ValueError, match="one"):
            context.wrap_scaler(context.wrap_scaler(object()))
    assert "auto_tune_tensor_fusion has no effect" in caplog.text and "use_amp" in caplog.text
    with runs.attempt() as context:
        assert torch.equal(torch.rand(3), first), "seeded by the trial's seed"


def test_a_trial_is_named_by_its_module_and_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "named_trial.py").write_text(
        "import trainmaster.pytorch as p\nclass A(p.PyTorchTrial): pass\nB = 3\n"
    )
    (tmp_path / "broken_trial.py").write_text("import nothing_of_that_name\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert run_trial.trial_class("named_trial:A").__name__ == "A"
    for wrong, sentence in (
        ("named_trial", "MODULE:CLASS"),
        ("no_such_module:A", "no module 'no_such_module'"),
        ("named_trial:C", "has no class 'C'"),
        ("named_trial:B", "sdk: installed"),
    ):
        with pytest.raises(run_trial.NoTrial, match=sentence):
            run_trial.trial_class(wrong)
    with pytest.raises(ModuleNotFoundError, match="nothing_of_that_name"):
        run_trial.trial_class("broken_trial:A")
