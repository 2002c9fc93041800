"""What a command in the foreground says while its job waits, against a server that answers as told."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.trainmaster.cli.scripted_server import Answer, ScriptedServer, ok, status
from trainmaster.cli.log_stream import tell_what_it_waits_for
from trainmaster.client import Client

JOB = "0123456789ab"
EXPLAIN = f"/api/v1/jobs/{JOB}/explain"


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    server = ScriptedServer()
    yield server
    server.shutdown()
    server.server_close()


def because(sentence: str) -> Answer:
    return ok({"tasks": [{"blockers": [{"sentence": sentence}]}]})


def said(
    server: ScriptedServer, looks: int, repeat_seconds: float, capsys: pytest.CaptureFixture[str]
) -> list[str]:
    """The lines of a wait that ends with the look after `looks` looks."""
    queued: Iterator[str | None] = iter([*[JOB] * looks, None])
    tell_what_it_waits_for(
        Client(server.url), lambda: next(queued), 0.01, start_seconds=0, ask_seconds=0, repeat_seconds=repeat_seconds
    )  # fmt: skip
    return capsys.readouterr().err.splitlines()


def test_a_reason_is_said_again_when_it_changes_and_not_before(
    server: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.on("GET", EXPLAIN, because("no slot is free"), because("no slot is free"), because("1 job ahead"))
    assert said(server, 4, 60.0, capsys) == [
        "Waiting: no slot is free. Press Ctrl-C to leave it in the queue. "
        "All reasons: trainmaster job explain 01234567",
        "Still waiting: 1 job ahead. Press Ctrl-C to leave it in the queue.",
    ]


def test_a_reason_that_stays_is_repeated_after_a_while(
    server: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.on("GET", EXPLAIN, because("no slot is free"))
    lines = said(server, 3, 0.5, capsys)
    assert lines[1:] == ["Still waiting: no slot is free. Press Ctrl-C to leave it in the queue."] * 2


def test_a_job_that_starts_or_is_not_known_to_wait_is_silent(
    server: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.on("GET", EXPLAIN, status(404, {"message": "gone"}))
    assert said(server, 2, 60.0, capsys) == []
