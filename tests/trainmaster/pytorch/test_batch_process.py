"""Batch inference over all ranks, and again from where it was left."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import TensorDataset

import trainmaster
from experiments import checkpoint_deletion
from tests.trainmaster.made_run import Ranks, make_run, records, said
from trainmaster import pytorch
from trainmaster.pytorch import experimental

PROGRAM = """
import os, torch
from determined.pytorch import experimental
from torch.utils.data import TensorDataset

class Doubles(experimental.TorchBatchProcessor):
    def __init__(self, context):
        self.context, self.results = context, []
        self.total = context.wrap_reducer(sum, "total")

    def process_batch(self, batch, batch_idx):
        assert not torch.is_grad_enabled()
        doubles = (2 * self.context.to_device(batch)[0]).tolist()
        self.results += doubles
        self.total.update(sum(doubles))
        if batch_idx == 3 and rank == 1 and not det.get_cluster_info().latest_checkpoint:
            open(os.path.join(os.environ["TRAINMASTER_RUN_DIR"], "control", "preempt.json"), "w").close()

    def on_checkpoint_start(self):
        with self.context.upload_path() as path:
            (path / f"rank{rank}.json").write_text(json.dumps(self.results))
        self.results = []

experimental.torch_batch_process(Doubles, TensorDataset(torch.arange(23)), batch_size=2, checkpoint_interval=2,
    distributed_context=distributed())
say("done")
"""


def test_ranks_process_everything_once_across_a_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = {"type": "directory", "container_path": str(tmp_path / "checkpoints")}
    first = make_run(tmp_path / "first", slots=2, checkpoint_storage=storage)
    with Ranks(PROGRAM, [first], 2) as ranks:
        assert said(ranks, 120) == [["done"], ["done"]]
    saved = [record for record in records(first) if record["type"] == "checkpoint"]
    assert saved[-1]["steps_completed"] == 4, "12 batches are 6 of each rank"
    results = [any(name.startswith("rank") for name in record["resources"]) for record in saved]
    marked = [record["metadata"].get(checkpoint_deletion.RESULTS, False) for record in saved]
    assert marked == results and any(results) and not all(results)
    trial = json.loads((first / "spec.json").read_text())["trial"]
    second = make_run(
        tmp_path / "second",
        checkpoint_storage=storage,
        trial={**trial, "latest_checkpoint": saved[-1]["uuid"]},
    )
    monkeypatch.setenv("TRAINMASTER_RUN_DIR", str(second))
    names: dict[str, Any] = {
        "det": trainmaster,
        "json": json,
        "rank": 0,
        "distributed": lambda: None,
        "say": str,
    }
    exec(
        PROGRAM.replace("from determined", "from trainmaster"), names
    )  # one rank now, which takes up where the two were
    assert [record for record in records(second) if record["type"] == "progress"][-1]["progress"] == 1.0
    totals = [
        record["metrics"]["total"]
        for record in records(first) + records(second)
        if record.get("group") == "validation"
    ]
    assert len(totals) == 2, "one at the pause, one at the end"
    assert sum(totals) == 2 * sum(range(23))
    files = (tmp_path / "checkpoints").glob("*/rank*.json")
    assert sorted(number for path in files for number in json.loads(path.read_text())) == list(
        range(0, 46, 2)
    )


def test_one_batch_size_and_an_order_that_nobody_changes() -> None:
    data = TensorDataset(torch.arange(4))
    wrong: list[tuple[dict[str, Any], str]] = [
        ({}, "Give either batch_size"),
        ({"batch_size": 2, "dataloader_kwargs": {"batch_size": 2}}, "not both"),
        ({"batch_size": 2, "dataloader_kwargs": {"shuffle": True}}, "in order"),
        ({"batch_size": 2, "checkpoint_interval": 0}, "1 or more"),
    ]
    for options, sentence in wrong:
        with pytest.raises(ValueError, match=sentence):
            experimental.torch_batch_process(experimental.TorchBatchProcessor, data, **options)
    assert pytorch.experimental is experimental


class Nothing(experimental.TorchBatchProcessor):
    finished = 0

    def __init__(self, context: experimental.TorchBatchProcessorContext) -> None:
        pass

    def process_batch(self, batch: Any, batch_idx: int) -> None:
        raise AssertionError("there is no batch")

    def on_finish(self) -> None:
        Nothing.finished += 1


def test_a_dataset_without_samples_is_done_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    experimental.torch_batch_process(Nothing, TensorDataset(torch.arange(0)), batch_size=2)
    assert Nothing.finished == 1
