"""Workspaces and projects, and what may be changed of an experiment, on the command line."""

from __future__ import annotations

import base64
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.rig.stack import config
from tests.trainmaster.cli.conftest import CommandLine
from trainmaster.cli.main import main


def experiment(tm: CommandLine, experiment_id: int) -> dict[str, Any]:
    path, token = f"/api/v1/experiments/{experiment_id}", tm.environment["TRAINMASTER_TOKEN"]
    return dict(tm.server.request("GET", path, token=token)["experiment"])


def submitted(tm: CommandLine) -> int:
    code = {"path": "train.py", "type": 48, "content": base64.b64encode(b"print(1)\n").decode()}
    body = {"config": config(1), "modelDefinition": [code], "activate": False}
    token = tm.environment["TRAINMASTER_TOKEN"]
    return int(tm.server.request("POST", "/api/v1/experiments", body, token=token)["experiment"]["id"])


def test_an_experiment_is_renamed_labeled_limited_and_moved_to_a_new_project(
    tm: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in tm.environment.items():
        monkeypatch.setenv(name, value)

    def run(*words: str) -> str:
        assert main(words) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    number = submitted(tm)
    one = str(number)
    run("w", "create", "words")
    run("p", "create", "words", "first", "--description", "of tests")
    run("p", "edit", "words", "first", "--new-name", "second", "--key", "WRD")
    assert json.loads(run("p", "describe", "words", "second", "--json"))["key"] == "WRD"
    run("e", "set", "name", one, "a new name")
    run("e", "set", "max-slots", one, "3")
    run("e", "set", "priority", one, "17")
    assert "night, day" in run("e", "label", "add", one, "night") + run("e", "label", "add", one, "day")
    run("e", "label", "remove", one, "night")
    run("e", "move", one, "words", "second")
    assert "a new name" in run("p", "list-experiments", "words", "second")
    assert main(["p", "delete", "words", "second", "-y"]) == 1
    assert "still has experiments" in capsys.readouterr().err
    run("e", "download-model-def", one, "--output-dir", str(tmp_path))
    with tarfile.open(tmp_path / f"experiment_{one}_model_def.tgz") as archive:
        assert "train.py" in archive.getnames()
    changed = experiment(tm, number)
    assert (changed["name"], changed["labels"], changed["projectName"]) == ("a new name", ["day"], "second")
    assert changed["config"]["resources"]["max_slots"] == 3
    run("e", "set", "max-slots", one, "none")
    assert experiment(tm, number)["config"]["resources"].get("max_slots") is None
    run("e", "kill", one)


def test_a_workspace_that_is_not_there_is_answered_with_those_that_are(tm: CommandLine) -> None:
    ran = tm("w", "describe", "nowhere")
    assert ran.returncode == 1
    assert "there is no workspace nowhere; there are: Uncategorized" in ran.stderr
