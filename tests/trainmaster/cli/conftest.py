"""The command line as a person runs it, logged in once."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping

import pytest

from tests.rig import pace, warm_cli
from tests.rig.server import ROOT, Server

Ran = warm_cli.Ran
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
        return warm_cli.run(
            list(words), {**self.environment, **(environment or {})}, said=said, limit_seconds=LIMIT_SECONDS
        )

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "trainmaster.cli.main", *words]


@pytest.fixture(scope="module")
def tm(server: Server) -> CommandLine:
    return CommandLine(server)


@pytest.fixture(scope="module")
def local_host(tm: CommandLine) -> Iterator[CommandLine]:
    """The server, with itself as a host of two slots."""
    added = tm("host", "add", "local", "--slots", "2", "--allow-login-account", "--yes")
    assert added.returncode == 0, added.stderr + added.stdout
    yield tm
    for row in json.loads(tm("e", "list", "-a", "--json").stdout):
        tm("e", "kill", str(row["id"]))
    tm("command", "kill", "-f", *tm("command", "list", "-a", "-q").stdout.split())
    pace.wait_until(lambda: json.loads(tm("job", "list", "--json").stdout) == [], 60)
    tm("host", "remove", "local", "--yes")
