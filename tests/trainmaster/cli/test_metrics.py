"""What a trial has reported, from the command line, on the whole server with a host that is this machine."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from tests.rig.pace import wait_until
from tests.trainmaster.cli.conftest import CommandLine

CONFIG = """
name: reports
entrypoint: python3 train.py
searcher: {name: single, metric: loss, max_length: 10}
max_restarts: 0
"""
CODE = """
import determined as det
with det.core.init() as core:
    for step in (10, 20, 30):
        core.train.report_training_metrics(step, {"loss": 1 / 3 / step, "note": "fine"})
    core.train.report_metrics("own", 20, {"norm": float("inf")})
    core.train.report_validation_metrics(30, {"loss": 0.25, "accuracy": 0.5})
    with core.checkpoint.store_path({"steps_completed": 30}) as (path, uuid):
        path.joinpath("weights").write_text("1")
"""


@pytest.fixture(scope="module")
def ended(local_host: CommandLine, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The ids of an experiment and of its trial, which has reported all of this."""
    folder = tmp_path_factory.mktemp("reports") / "code"
    folder.mkdir()
    (folder / "train.py").write_text(CODE)
    (folder.parent / "config.yaml").write_text(CONFIG)
    created = local_host("e", "create", str(folder.parent / "config.yaml"), str(folder), "-f")
    assert created.returncode == 0, created.stderr
    experiment = created.stdout.split("Created experiment ")[1].split()[0]
    (trial,) = json.loads(local_host("e", "list-trials", experiment, "--json").stdout)
    # a checkpoint's upload may outlive its ranks
    assert wait_until(
        lambda: "COMPLETED" in said(local_host, "t", "describe", str(trial["id"])).split("Workloads:")[1], 60
    )
    return experiment, str(trial["id"])


def said(tm: CommandLine, *words: str) -> str:
    ran = tm(*words)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def cells(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")] for line in text.splitlines()]


def test_a_trial_is_described_with_its_reports_and_checkpoints(
    local_host: CommandLine, ended: tuple[str, str]
) -> None:
    text = said(local_host, "trial", "describe", ended[1], "--metrics", "--metrics-summary")
    table, summary = text.split("Workloads:\n")[1].split("\n{", 1)
    heads, _, *rows = cells(table)
    assert heads == [
        "# of Batches", "Report Time", "Checkpoint", "Checkpoint UUID", "Checkpoint Metadata", "Validation Metrics",
        "Workload Metrics",
    ]  # fmt: skip
    assert [row[0] for row in rows] == ["10", "20", "20", "30", "30", "30"]
    assert json.loads(rows[0][-1]) == {"loss": 1 / 3 / 10, "note": "fine"}
    validations = [row[5] for row in rows if row[5]]
    assert [json.loads(text) for text in validations] == [{"accuracy": 0.5, "loss": 0.25}]
    assert [row[2] for row in rows if row[2]] == ["COMPLETED"]
    assert json.loads("{" + summary)["validation_metrics"]["loss"]["min"] == 0.25
    record = json.loads(said(local_host, "t", "describe", ended[1], "--metrics", "--json", "--limit", "2"))
    assert [work["totalBatches"] for work in record["workloads"]] == [10, 20]


def test_without_metrics_only_validations_and_checkpoints_are_listed(
    local_host: CommandLine, ended: tuple[str, str]
) -> None:
    heads, _, *rows = cells(said(local_host, "t", "describe", ended[1]).split("Workloads:\n")[1])
    assert heads[-1] == "Validation Metrics"
    assert [row[0] for row in rows] == ["30", "30"]


def test_all_reports_are_a_table_with_a_column_for_each_metric(
    local_host: CommandLine, ended: tuple[str, str]
) -> None:
    rows = list(csv.DictReader(io.StringIO(said(local_host, "trial", "metrics", ended[1], "--csv"))))
    assert [(row["# of Batches"], row["Group"]) for row in rows] == [
        ("10", "training"), ("20", "own"), ("20", "training"), ("30", "training"), ("30", "validation"),
    ]  # fmt: skip
    assert float(rows[0]["loss"]) == 1 / 3 / 10, "all digits"
    assert rows[0]["note"] == "fine" and rows[1]["norm"] == "Infinity" and rows[1]["loss"] == ""
    some = json.loads(said(local_host, "t", "metrics", ended[1], "--group", "own", "-o", "json"))
    assert [row["values"] for row in some] == [{"norm": "Infinity"}]


def test_an_experiment_is_described_by_step_as_tables_or_files(
    local_host: CommandLine, ended: tuple[str, str], tmp_path: Path
) -> None:
    text = said(local_host, "e", "describe", ended[0], "--metrics", "--csv")
    parts = text.split("\n\n")
    assert [part.splitlines()[0] for part in parts if part] == ["Experiment:", "Trials:", "Workloads:"]
    rows = list(csv.DictReader(parts[2].splitlines()[1:]))
    assert [row["# of Batches"] for row in rows] == ["10", "20", "30"]
    assert float(rows[2]["Training Metric: loss"]) == 1 / 3 / 30
    assert (rows[1]["Training Metric: norm"], rows[2]["Validation Metric: accuracy"]) == ("Infinity", "0.5")
    assert "Training Metric: note" not in rows[0] and rows[2]["Checkpoint State"] == "COMPLETED"
    said(local_host, "e", "describe", ended[0], "--metrics", "--outdir", str(tmp_path / "out"))
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "experiments.csv", "trials.csv", "workloads.csv"
    ]  # fmt: skip
    with (tmp_path / "out" / "workloads.csv").open() as file:
        assert list(csv.DictReader(file)) == rows


def test_metrics_become_a_folder_for_tensorboard(
    local_host: CommandLine, ended: tuple[str, str], tmp_path: Path
) -> None:
    experiment, trial = ended
    for noun, number in (("trial", trial), ("experiment", experiment)):
        told = said(local_host, noun, "download-tensorboard", number, "-o", str(tmp_path / noun))
        assert f"Wrote 3 files to {tmp_path / noun}" in told and "tensorboard --logdir" in told
        runs = sorted(
            str(path.parent.relative_to(tmp_path / noun)) for path in tmp_path.glob(f"{noun}/*/*/*tfevents*")
        )
        assert runs == [f"trial-{trial}/own", f"trial-{trial}/training", f"trial-{trial}/validation"]
    unknown = local_host("trial", "download-tensorboard", "999999", "-o", str(tmp_path / "none"))
    assert unknown.returncode != 0 and "999999" in unknown.stderr and not (tmp_path / "none").exists()
