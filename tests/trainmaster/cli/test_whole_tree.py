"""What holds of every noun and verb; Tab, the pager, and the folder to begin with."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import trainmaster.yamltext as yamltext
from experiments.config import parse
from tests.rig.server import ROOT
from tests.trainmaster.cli.terminal import Terminal
from trainmaster.cli.main import build_parser, main

#: verbs of the published client (features.md 12.2) that have no meaning here, with the reason
NOT_OURS = {
    "master config set": "settings are those of the environment",
    "resource-pool bindings": "an enterprise feature",
    "workspace bindings": "Kubernetes",
    "workspace resource-quota": "Kubernetes",
    "workspace list-members": "an enterprise feature",
}
#: noun (with its short names) -> its verbs, as `det help` lists them
PUBLISHED = {
    "agent a": "disable enable list ls",
    "command cmd": "config describe kill list ls logs run set",
    "checkpoint c": "delete describe download rm",
    "experiment e": "activate unpause archive cancel config continue create delete delete-tb-files describe download "
    "download-model-def kill label list ls list-checkpoints lc list-trials lt logs move pause set unarchive wait",
    "job j": "list ls update u update-batch",
    "master": "cluster-message config info logs",
    "notebook": "config kill list ls logs open set start",
    "project p": "archive create delete describe edit list ls list-experiments unarchive",
    "resources res": "aggregated agg allocations alloc raw",
    "shell": "config kill list ls logs open set show-ssh-command show_ssh_command start",
    "slot s": "disable enable list ls",
    "task": "cleanup-logs kill list ls logs",
    "template tpl": "create describe list ls remove rm set set-value",
    "tensorboard": "config kill list ls logs open set start",
    "token tkn": "create describe edit list ls login revoke",
    "trial t": "describe download kill logs set support-bundle",
    "user u": "activate change-password create deactivate edit link-with-agent-user list ls login logout rename whoami",
    "workspace w": "archive create delete describe edit list ls list-pools list-projects unarchive",
}


def parsers(parser: argparse.ArgumentParser, path: str = "") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, below in action.choices.items():
                yield f"{path} {name}".strip(), below
                yield from parsers(below, f"{path} {name}".strip())


TREE = dict(parsers(build_parser("trainmaster")))


def test_every_verb_of_the_published_client_is_there_under_all_its_names() -> None:
    wanted = {
        f"{noun} {verb}"
        for nouns, verbs in PUBLISHED.items()
        for noun in nouns.split()
        for verb in verbs.split()
    }
    assert wanted - TREE.keys() == set()
    assert NOT_OURS.keys() & TREE.keys() == set()


def test_every_noun_and_verb_says_what_it_does_in_a_sentence() -> None:
    silent = [path for path, parser in TREE.items() if not (parser.description or "").endswith(".")]
    assert silent == []
    assert not any((parser.description or "x")[0].islower() for parser in TREE.values())


def test_help_is_a_verb_and_tells_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help"]) == 0
    said = capsys.readouterr().out
    assert "Exit codes: 0 success, 1 failure, 2 invalid usage, 3 interrupted." in said
    assert main(["w", "help"]) == 0
    assert "list-projects" in capsys.readouterr().out


def test_tab_finishes_nouns_and_verbs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for shell in ("bash", "zsh", "fish"):
        assert main(["completion", shell]) == 0
        assert "trainmaster" in capsys.readouterr().out
    line = "trainmaster workspace list-p"
    asked = {"_ARGCOMPLETE": "1", "COMP_LINE": line, "COMP_POINT": str(len(line)), "_ARGCOMPLETE_IFS": " "}
    asked |= {"_ARGCOMPLETE_STDOUT_FILENAME": str(tmp_path / "answer"), "PYTHONPATH": str(ROOT)}
    subprocess.run(
        [sys.executable, "-m", "trainmaster.cli.main"], env={**os.environ, **asked}, timeout=60, check=True
    )
    assert (tmp_path / "answer").read_text().split() == ["list-projects", "list-pools"]


def test_a_table_longer_than_the_screen_goes_through_the_pager() -> None:
    script = (
        "import sys; from trainmaster.cli import output\n"
        "'--no-pager' in sys.argv and output.no_pager()\n"
        "output.show([{'n': n} for n in range(100)], [output.Column('N', lambda row: row['n'])], 'table')\n"
    )
    for words, pager, last in (
        ([], "head -n 5", "2"),
        ([], "cat", "99"),
        (["--no-pager"], "head -n 5", "99"),
    ):
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PAGER": pager, "LINES": "24", "COLUMNS": "80"}
        terminal = Terminal([sys.executable, "-c", script, *words], environment)
        assert terminal.wait() == 0
        assert terminal.said.split()[-1] == last


def test_a_folder_to_begin_with_is_written_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "my first"
    assert main(["init", str(folder)]) == 0
    text = (folder / "config.yaml").read_text()
    assert yamltext.load(text)["name"] == "my-first"
    offered = "environment:\n" + text.split("# environment:\n")[1].replace("#   ", "  ")
    assert parse(text + offered).effective()["environment"]["activate"] == "~/venv/bin/activate"
    ran = subprocess.run(
        [sys.executable, "train.py"], cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, text=True,
        capture_output=True, timeout=60, check=True,
    )  # fmt: skip
    assert "batch 100: loss 0.0000" in ran.stdout
    (folder / "train.py").write_text("mine")
    assert main(["init", str(folder)]) == 1
    assert (
        "already contains config.yaml, train.py, .detignore; nothing was written" in capsys.readouterr().err
    )
    assert (folder / "train.py").read_text() == "mine"
