"""Following a log through broken connections and restarts: every line once, never a false success."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.trainmaster.cli.scripted_server import ScriptedServer, hang_up, lines, ok, status
from trainmaster.cli.errors import CliError
from trainmaster.cli.log_stream import follow
from trainmaster.client import Client, StreamFailed
from trainmaster.http import Answered, Later, Unreachable

LOGS = "/api/v1/trials/1/logs"


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    scripted = ScriptedServer()
    yield scripted
    scripted.shutdown()
    scripted.server_close()


def record(number: int, text: str = "") -> dict[str, Any]:
    return {"result": {"id": str(number), "message": text or f"line {number}\n"}}


def followed(server: ScriptedServer, patience_seconds: float = 60) -> list[str]:
    shown: list[str] = []
    follow(Client(server.url), LOGS, [], lambda one: shown.append(one["id"]), lambda: True, patience_seconds)
    return shown


def test_a_stream_is_shown_to_its_end(server: ScriptedServer) -> None:
    server.on("GET", LOGS, lines(*map(record, range(5))))
    assert followed(server) == ["0", "1", "2", "3", "4"]


def test_a_broken_stream_is_taken_up_behind_the_last_line(server: ScriptedServer) -> None:
    first = lines(record(1), record(2), complete=False)
    server.on("GET", LOGS, first, status(503, {"message": "restarting"}), lines(*map(record, range(1, 6))))
    assert followed(server) == ["1", "2", "3", "4", "5"]
    assert "after=2" in server.seen[-1][1]


def test_a_server_that_knows_where_to_go_on_loses_nothing(server: ScriptedServer) -> None:
    server.on("GET", LOGS, lines(record(1), record(2), complete=False), lines(record(3)))
    assert followed(server) == ["1", "2", "3"]


def test_a_stream_that_ends_early_goes_on_until_the_trial_is_over(server: ScriptedServer) -> None:
    server.on("GET", LOGS, lines(record(1)), lines(record(1), record(2)))
    over, shown = iter([False, True]), []
    follow(Client(server.url), LOGS, [], lambda one: shown.append(one["id"]), lambda: next(over))
    assert shown == ["1", "2"]


def test_a_stream_that_stays_broken_is_a_failure(server: ScriptedServer) -> None:
    server.on("GET", LOGS, lines(record(1), complete=False))
    with pytest.raises(CliError, match="the log stream was interrupted"):
        followed(server, patience_seconds=1.5)


def test_a_quiet_stream_is_opened_anew_without_a_word_and_without_end(
    server: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    never = threading.Event()
    quiet = [lines(record(1), until=never), lines(until=never), lines(until=never)]
    server.on("GET", LOGS, *quiet, lines(record(2)))
    shown: list[str] = []
    client = Client(server.url, stream_timeout_seconds=0.3)
    follow(client, LOGS, [], lambda one: shown.append(one["id"]), lambda: True, patience_seconds=0.5)
    never.set()
    assert shown == ["1", "2"]
    assert capsys.readouterr().err == ""


def test_a_stream_that_ends_because_the_database_is_away_goes_on_later(server: ScriptedServer) -> None:
    away = {"error": {"code": 503, "error": "The database does not answer."}, "message": "…"}
    server.on("GET", LOGS, lines(record(1), away), lines(record(2)))
    assert followed(server) == ["1", "2"]


def test_an_error_inside_the_stream_is_the_servers_sentence(server: ScriptedServer) -> None:
    server.on("GET", LOGS, lines(record(1), {"error": {"code": 13, "message": "the log cannot be read"}}))
    with pytest.raises(StreamFailed, match="the log cannot be read"):
        followed(server)


@pytest.mark.survive(25)
def test_a_request_waits_for_a_server_that_restarts(server: ScriptedServer) -> None:
    away = status(503, {"message": "PostgreSQL does not answer."}, Retry_After="0.1")
    server.on("GET", "/api/v1/me", away, away, ok({"user": {"username": "a"}}))
    told: list[str] = []
    assert Client(server.url, notify=told.append).me() == {"username": "a"}
    assert told == ["PostgreSQL does not answer. Trying again for up to 30 s."]


def test_the_wait_for_a_restarting_server_is_bounded(server: ScriptedServer) -> None:
    server.on("GET", "/api/v1/me", status(503, {"message": "away"}))
    with pytest.raises(Later, match="away"):
        Client(server.url, retry_limit_seconds=0.5).me()


def test_an_upload_is_repeated_under_the_same_key_and_tells_its_progress(server: ScriptedServer) -> None:
    path = "/api/v1/experiments"
    server.on("POST", path, status(502, {}), ok({"experiment": {"id": 7}}))
    told: list[tuple[int, int]] = []
    answer = Client(server.url).create_experiment(
        {"config": "x"}, lambda done, total: told.append((done, total))
    )
    assert answer == {"experiment": {"id": 7}}
    assert told[-1][0] == told[-1][1]
    bodies = [body for method, seen, body in server.seen if seen == path]
    assert len(bodies) == 2
    assert bodies[0] == bodies[1] == b'{"config": "x"}'


def test_a_wish_that_may_have_been_granted_is_not_repeated(server: ScriptedServer) -> None:
    server.on("POST", "/api/v1/experiments/1/kill", hang_up)
    with pytest.raises(Unreachable):
        Client(server.url).post("/api/v1/experiments/1/kill")
    assert len(server.seen) == 1


def test_a_refusal_is_not_repeated(server: ScriptedServer) -> None:
    server.on("GET", "/api/v1/me", status(404, {"error": {"error": "gone"}, "message": "gone"}))
    with pytest.raises(Answered, match="gone"):
        Client(server.url).me()
    assert len(server.seen) == 1


def test_pages_are_read_to_the_total(server: ScriptedServer) -> None:
    def page(*ids: int) -> Any:
        return ok({"rows": [{"id": number} for number in ids], "pagination": {"total": 3}})

    server.on("GET", "/rows", page(1, 2), page(3))
    assert [row["id"] for row in Client(server.url).pages("/rows", "rows")] == [1, 2, 3]
    assert "offset=2" in server.seen[1][1]
