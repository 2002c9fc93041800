"""The command line as a person runs it, logged in once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping

import pytest

from tests.rig.server import ROOT, Server

Ran = subprocess.CompletedProcess[str]
LIMIT_SECONDS = 120


class CommandLine:
    """`trainmaster` for one server, as its admin."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("TRAINMASTER_", "DET_"))
        }
        self.environment |= {
            "PYTHONPATH": str(ROOT),
            "TRAINMASTER_MASTER": server.url,
            "TRAINMASTER_TOKEN": server.token(),  # once: a login costs as much as a whole command
            "NO_COLOR": "1",
        }

    def __call__(self, *words: str, environment: Mapping[str, str] | None = None, said: str = "") -> Ran:
        return subprocess.run(
            self.command(*words), env={**self.environment, **(environment or {})}, input=said, text=True,
            capture_output=True, timeout=LIMIT_SECONDS, check=False, cwd=ROOT,
        )  # fmt: skip

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "trainmaster.cli.main", *words]


@pytest.fixture(scope="session")
def tm(server: Server) -> CommandLine:
    return CommandLine(server)
