"""What `pool forecasts` and a lowered limit of slots print of the server's answers."""

from collections.abc import Iterator

import pytest

from tests.trainmaster.cli.scripted_server import ScriptedServer, ok
from trainmaster.cli.main import main

MISS = {
    "jobId": "73853c5c-1111", "label": "exp 7", "promisedAt": "2026-11-21T10:00:00.000000Z",
    "earliest": "2026-11-21T11:00:00.000000Z", "latest": "2026-11-21T12:00:00.000000Z", "startedAt": None,
    "missedAt": "2026-11-21T12:00:01.000000Z", "why": "no slot is free", "edited": True, "errorSeconds": 10800.0,
}  # fmt: skip
ANSWER = {
    "resourcePool": "default", "days": 7, "promises": 4, "inside": 75.0, "sooner": 0.0, "later": 25.0,
    "withdrawn": 25.0, "edited": 1, "medianWidthSeconds": 3600.0, "medianErrorSeconds": 10800.0, "worst": [MISS],
}  # fmt: skip


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedServer]:
    server = ScriptedServer()
    server.on("GET", "/info", ok({}))
    monkeypatch.setenv("TRAINMASTER_MASTER", server.url)
    monkeypatch.setenv("TRAINMASTER_TOKEN", "t")
    yield server
    server.shutdown()
    server.server_close()


def test_forecasts_are_numbers_and_the_worst_misses(
    server: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.on("GET", "/api/v1/resource-pools/default/forecasts", ok(ANSWER))
    assert main(["pool", "forecasts", "default"]) == 0
    printed = capsys.readouterr().out
    for words in ("4 in 7 days", "75 %", "Misses after a queue edit", "3 h", "exp 7", "no slot is free"):
        assert words in printed


def test_what_a_lowered_limit_of_slots_does_is_printed(
    server: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    notice = (
        "Job 73853c5c: it may hold 2 slots; it holds 4, and 2 runs (2 slots) are asked to save and give back "
        "their slots."
    )
    server.on("PATCH", "/api/v1/experiments/7", ok({"experiment": {}, "notices": [notice]}))
    assert main(["experiment", "set", "max-slots", "7", "2"]) == 0
    assert notice in capsys.readouterr().out
