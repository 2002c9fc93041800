"""Nothing is imported from the folder in which somebody happens to start a command of the server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from embedded.installation import ROOT

MODULES = [
    "jobs",
    "hosts",
    "accounts",
    "webui",
    "dispatch",
    "logs",
    "events",
    "trainmaster",
    "django",
    "redis",
    "json",
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in MODULES:
        tmp_path.joinpath(f"{name}.py").write_text(
            f"open({str(tmp_path / 'executed')!r}, 'a').write('{name} ')\nraise SystemExit('not ours')\n"
        )
    return tmp_path


@pytest.mark.parametrize(
    "words", [["check"], ["shell", "-c", "import jobs, hosts, webui.celery; print('ours')"]]
)
def test_a_command_of_the_server_runs_the_servers_own_code(words: list[str], folder: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), *words],
        cwd=folder, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert not (folder / "executed").exists(), (folder / "executed").read_text()
    assert done.returncode == 0, done.stderr
