"""What the options of a log mean, and how its lines look: without a server."""

from __future__ import annotations

import argparse
import io
import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from trainmaster.cli.log_options import Printer, query_of
from trainmaster.cli.log_stream import exit_code, hosts_in_words, ranks_in_words
from trainmaster.cli.main import build_parser, main

RECORD = {
    "id": "7",
    "timestamp": "2023-11-14T22:13:20.250000Z",
    "level": "LOG_LEVEL_WARNING",
    "message": "[2023-11-14T22:13:20.250000Z] gpu1 [rank=3] || WARNING: hot\n",
    "log": "hot",
    "agentId": "gpu1",
    "rankId": 3,
}


class Screen(io.StringIO):
    """A terminal, as far as a printer looks."""

    def isatty(self) -> bool:
        return True


def shown(record: dict[str, Any], stream: io.StringIO, **options: Any) -> str:
    settings = {"json": False, "no_prefix": False, "timestamps": "utc", "follow": False, **options}
    Printer(argparse.Namespace(**settings), stream)(record)
    return stream.getvalue()


def query(*words: str) -> list[tuple[str, Any]]:
    return query_of(build_parser("tm").parse_args(["trial", "logs", "1", *words]))


def test_a_pipe_gets_the_flat_form_and_as_much_of_it_as_is_wanted() -> None:
    assert shown(RECORD, io.StringIO()) == RECORD["message"]
    assert shown(RECORD, io.StringIO(), no_prefix=True) == "hot\n"
    assert shown(RECORD, io.StringIO(), timestamps="none") == "gpu1 [rank=3] || WARNING: hot\n"
    assert json.loads(shown(RECORD, io.StringIO(), json=True)) == RECORD
    local = shown(RECORD, io.StringIO(), timestamps="local")
    assert re.match(r"\[2023-11-1[45] \d\d:\d\d:20\.250 [+-]\d{4}\] gpu1", local)


def test_a_terminal_is_coloured_and_never_steered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    evil = {**RECORD, "log": "\033[31mred\033[0m \033]52;c;aGk=\a\033[2J\r gone \x9b5n \u202efdp.exe"}
    text = shown(evil, Screen())
    assert "\033[31mred\033[0m" in text and "[rank=3]" in text and "\033[38;5;" in text
    for steering in ("\033]", "\033[2J", "\r", "\a", "\x9b", "\u202e"):
        assert steering not in text
    other = shown({**RECORD, "rankId": 4}, Screen())
    colours = [re.search(r"\033\[38;5;(\d+)m", one) for one in (text, other)]
    assert colours[0] and colours[1] and colours[0][1] != colours[1][1]


def test_no_color_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\033" not in shown({**RECORD, "log": "\033[31mred\033[0m"}, Screen())
    assert "\033[31m" in shown({**RECORD, "log": "\033[31mred"}, io.StringIO()), (
        "a pipe gets what was written"
    )


def test_times_are_spans_or_moments() -> None:
    (name, since), *_ = query("--since", "1d12h")
    ago = datetime.now(UTC) - datetime.fromisoformat(since.replace("Z", "+00:00"))
    assert name == "timestampAfter" and abs(ago - timedelta(hours=36)) < timedelta(minutes=1)
    assert query("--until", "2026-01-31T12:00:00.123456789+02:00") == [
        ("timestampBefore", "2026-01-31T10:00:00.123456Z")
    ]
    assert query("--timestamp-after", "2026-01-31 12:00Z") == [
        ("timestampAfter", "2026-01-31T12:00:00.000000Z")
    ]
    local = datetime(2026, 1, 31, 12).astimezone().astimezone(UTC)
    assert query("--since", "2026-01-31T12:00")[0][1].startswith(local.strftime("%Y-%m-%dT%H:%M"))


@pytest.mark.parametrize(
    "text", ["", "2", "2y", "-2h", "2026-02-31", "٢h", "tomorrow", "99999999999d", "2026-1-1"]
)
def test_a_time_that_is_none_is_refused_with_the_forms(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        build_parser("tm").parse_args(["trial", "logs", "1", f"--since={text}"])
    assert caught.value.code == 2
    assert "a span such as 30m, 2h" in capsys.readouterr().err


def test_filters_become_the_query() -> None:
    assert query("--rank", "0-7,!5", "--rank", "host:gpu-2") == [
        ("rankIds", "0-7,!5"),
        ("rankIds", "host:gpu-2"),
    ]
    assert query("--level", "ERROR") == [("levels", "LOG_LEVEL_ERROR"), ("levels", "LOG_LEVEL_CRITICAL")]
    assert query("--grep", "a.*b") == [("searchText", "a.*b"), ("enableRegex", "true")]
    assert query("--search", "a.*b", "--stream", "stderr") == [("streams", "stderr"), ("searchText", "a.*b")]
    assert query("--host", "gpu1", "--agent-id", "gpu2") == [("agentIds", "gpu1"), ("agentIds", "gpu2")]
    task = build_parser("tm").parse_args(["task", "logs", "x", "--allocation-id", "x.1"])
    assert query_of(task) == [("allocationIds", "x.1")]


@pytest.mark.parametrize(
    "words",
    [
        "--head 1 --tail 1",
        "--search a --grep b",
        "--json --no-prefix",
        "--stream stdin",
        "--level LOUD",
        "--head 0",
    ],
)
def test_options_that_exclude_one_another_are_wrong_usage(words: str) -> None:
    with pytest.raises(SystemExit) as caught:
        build_parser("tm").parse_args(["trial", "logs", "1", *words.split()])
    assert caught.value.code == 2


@pytest.mark.parametrize("words", ["--days -2", "--days x", "--days 32768", "", "--days 1 --forever"])
def test_wrong_days_are_wrong_usage(words: str) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["trial", "set", "log-retention", "1", *words.split()])
    assert caught.value.code == 2


def test_ranks_and_codes_in_words() -> None:
    assert ranks_in_words([3, 0, 1, 2]) == "ranks 0-3"
    assert ranks_in_words([5]) == "rank 5"
    assert ranks_in_words([0, 1, 7]) == "ranks 0-1 and 7"
    assert ranks_in_words([]) == "no rank"
    assert hosts_in_words(["gpu1", "gpu2", ""]) == "hosts gpu1, gpu2"
    assert hosts_in_words(["gpu1"]) == "host gpu1" and hosts_in_words([""]) == "no host"
    assert hosts_in_words([f"h{number}" for number in range(10)]).endswith(", h7 and 2 more")
    assert exit_code({"exitCode": 3}) == 3 and exit_code({"signal": 9}) == 137
    assert exit_code({"exitCode": 0}, 5) == 5 and exit_code({}) == 1 and exit_code({"exitCode": 300}) == 1
