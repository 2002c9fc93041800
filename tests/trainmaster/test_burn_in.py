"""The program of a burn-in: what it measures on a host without GPUs, and that it leaves when it is asked to."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.rig.ports import free_port
from trainmaster.burn_in import __main__ as program
from trainmaster.burn_in import processor
from trainmaster.burn_in.__main__ import LEFT, main
from trainmaster.burn_in.piece import Leave, Pace, true_rows
from trainmaster.core._records import Records
from trainmaster.protocol import RUN_DIR

torch = pytest.importorskip("torch")
SHORT = 0.02


def test_the_processor_is_measured_with_and_without_pytorch(tmp_path: Path) -> None:
    pace = Pace(tmp_path / "order", SHORT)
    with_torch, plain = (list(processor.processor(pace, each)) for each in (torch, None))
    assert [each.measure for each in with_torch] == [
        "matmul", "wrong_results", "memory", "wrong_memory", "copy"
    ]  # fmt: skip
    assert [each.measure for each in plain] == ["matmul", "memory", "wrong_memory", "copy"]
    wrong = [each.value for each in with_torch + plain if each.measure.startswith("wrong")]
    assert wrong == [0, 0, 0]
    assert all(each.value > 0 for each in with_torch + plain if not each.measure.startswith("wrong"))
    assert with_torch[0].how != plain[0].how, "figures of different programs are not compared"


def test_the_disk_is_measured_and_nothing_is_left_on_it(tmp_path: Path) -> None:
    found = list(processor.disk(Pace(tmp_path / "order", SHORT), tmp_path))
    assert [each.measure for each in found] == ["disk_write", "disk_read"]
    assert all(each.value > 0 and each.slot is None for each in found)
    assert not list(tmp_path.iterdir())


def test_what_a_product_should_be_is_found_by_adding_whole_numbers() -> None:
    left = torch.randint(0, 2, (64, 64))
    rows = [0, 7, 63]
    assert torch.equal(true_rows(torch, left, rows), (left @ left)[rows])
    assert true_rows(torch, left.bool(), rows).dtype == torch.int64


def test_a_gpu_whose_process_breaks_or_hangs_is_a_failure_of_that_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interpreter = tmp_path / "python"
    interpreter.write_text(
        '#!/bin/sh\necho "$CUDA_VISIBLE_DEVICES" >> "$0.seen"\n[ "$3" = 3 ] && kill -9 $$\nexec sleep 60\n'
    )
    interpreter.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(interpreter))
    monkeypatch.setattr(program, "_SECONDS_OF_SLOT", 1)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-a,MIG-b")
    slots = [{"index": index, "kind": "cuda", "uuid": f"MIG-{index}"} for index in (3, 5)]
    (tmp_path / "spec.json").write_text(json.dumps({"slots": slots, "gang": {"ports": {}}}))
    monkeypatch.setenv(RUN_DIR, str(tmp_path))
    assert main(SHORT) == 0
    told = [json.loads(line) for line in (tmp_path / "spool" / "core.rank0.jsonl").read_text().splitlines()]
    failed = [(each["slot"], each["sentence"]) for each in told if each["type"] == "burn_in_failed"]
    assert failed == [(3, "Its program ended with signal 9."), (5, "It was not measured within 1 s.")]
    assert (tmp_path / "python.seen").read_text().split() == ["MIG-a", "MIG-b"]


def test_it_leaves_as_soon_as_the_order_is_there(tmp_path: Path) -> None:
    order = tmp_path / "order"
    measuring = processor.processor(Pace(order, 60.0), None)
    order.touch()
    with pytest.raises(Leave):
        next(measuring)


def test_the_whole_program_reports_each_figure_and_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slots = [{"index": 3, "kind": "cuda", "uuid": "GPU-3"}]
    (tmp_path / "spec.json").write_text(json.dumps({"slots": slots}))
    monkeypatch.setenv(RUN_DIR, str(tmp_path))
    assert main(SHORT) == 0
    told = [json.loads(line) for line in (tmp_path / "spool" / "core.rank0.jsonl").read_text().splitlines()]
    assert [each["type"] for each in told] == ["burn_in_failed", *["burn_in"] * 7, "burn_in_done"]
    assert told[0]["slot"] == 3 and "finds no GPU" in told[0]["sentence"]
    (tmp_path / "control").mkdir()
    (tmp_path / "control" / "preempt.json").touch()
    assert main(SHORT) == LEFT


def test_without_gpus_the_rate_between_two_processes_is_one_of_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = {"members": 1, "member": 0, "slots": [{"index": 0, "kind": "cpu", "uuid": ""}]}
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    monkeypatch.setenv(RUN_DIR, str(tmp_path))
    program._links(Pace(tmp_path / "order", SHORT), Records(str(tmp_path), 0), [], free_port())
    [told] = [json.loads(line) for line in (tmp_path / "spool" / "core.rank0.jsonl").read_text().splitlines()]
    assert (told["type"], told["measure"], told["slot"]) == ("burn_in", "all_reduce", None)
    assert told["value"] > 0 and told["how"].startswith("gloo, 1 rank each, PyTorch")
