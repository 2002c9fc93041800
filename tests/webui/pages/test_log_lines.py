"""History for the log viewer: pages around a place, the next match of a search, and sentences for what cannot be."""

from typing import Any
from urllib.parse import urlencode

import pytest
from django.test import Client

from logs import store
from logs.lines import Block
from tests.rig.rows import make_command

BEGIN = 1_795_255_200.0
LINES = 3000
TOGETHER = 40  # lines that come at once
#: numbers of the lines that hold the rare word
RARE = [7, 1000, 1001, 2900]


@pytest.fixture
def client(db: None) -> Client:
    """Logged in; the log of the command has LINES lines, line n at BEGIN + n, by rank n % 4."""
    command = make_command()
    member = command.task.allocations.get().members.get()
    for first in range(1, LINES + 1, TOGETHER):
        blocks = [block(number) for number in range(first, first + TOGETHER)]
        store.append(command.task_id, member, "gpu-1", blocks)
    client = Client()
    client.force_login(command.owner)
    client.command = command  # type: ignore[attr-defined]
    return client


def block(number: int) -> Block:
    stream = "stderr" if number % 10 == 0 else "stdout"
    levels = [(0, "ERROR")] if number in RARE else []
    text = f"rare {number}" if number in RARE else f"line {number}"
    return Block(BEGIN + number, number % 4, stream, levels, [], text)


def ask(client: Client, query: str, path: str = "") -> dict[str, Any]:
    answer = client.get(f"/commands/{client.command.pk}/lines{path}?{query}")  # type: ignore[attr-defined]
    assert answer.status_code == 200, answer.content
    return dict(answer.json())


def refused(client: Client, query: str, path: str = "") -> str:
    answer = client.get(f"/commands/{client.command.pk}/lines{path}?{query}")  # type: ignore[attr-defined]
    assert answer.status_code == 400, answer.content
    return str(answer.json()["message"])


def numbers(answer: dict[str, Any]) -> list[int]:
    return [line[0] for line in answer["lines"]]


def test_pages_join_without_gap_or_repeat_in_both_directions(client: Client) -> None:
    newest = ask(client, "limit=100")
    assert numbers(newest) == list(range(LINES - 99, LINES + 1))
    assert (newest["upto"], newest["first"], newest["end"], newest["done"]) == (
        LINES,
        LINES - 99,
        True,
        False,
    )
    found: list[int] = []
    after = 0
    while True:
        page = ask(client, f"after={after}&limit=700")
        found += numbers(page)
        after = page["last"]
        if page["end"]:
            break
    assert found == list(range(1, LINES + 1))
    before = ask(client, f"before={newest['first']}&limit=50")
    assert numbers(before)[-1] == newest["first"] - 1


def test_a_page_about_a_line_or_a_time_has_lines_on_both_sides(client: Client) -> None:
    page = ask(client, "around=1500&limit=100")
    assert page["line"] == 1500
    assert numbers(page) == list(range(1450, 1550))
    page = ask(client, f"at={BEGIN + 1500}&limit=100")
    assert page["line"] == 1500
    late = ask(client, f"at={BEGIN + 10 * LINES}&limit=10")
    assert late["line"] == LINES, "a time behind the last line means that line"
    assert ask(client, "around=99999999&limit=10")["line"] == LINES


def test_filters_leave_what_fits(client: Client) -> None:
    assert {line[2] for line in ask(client, "rank=1-2&limit=50")["lines"]} == {1, 2}
    assert numbers(ask(client, "level=ERROR")) == RARE
    assert all(number % 10 == 0 for number in numbers(ask(client, "stream=stderr&limit=20")))
    assert numbers(ask(client, f"from={BEGIN + 10}&to={BEGIN + 12}")) == [10, 11, 12], "both ends are inside"
    assert numbers(ask(client, "search=RARE")) == RARE
    assert numbers(ask(client, "search=rare+%5Cd%7B4%7D&regex=1")) == RARE[1:]
    assert numbers(ask(client, "host=elsewhere")) == []


def test_the_next_match_is_found_in_both_directions(client: Client) -> None:
    assert ask(client, "after=7&search=rare", "/find")["number"] == 1000
    assert ask(client, "before=1000&search=rare", "/find")["number"] == 7
    assert ask(client, "search=rare", "/find")["number"] == 2900, "without a place it begins at the end"
    every = ask(client, "after=0&search=rare&limit=10", "/find")
    assert (every["numbers"], every["done"], every["newest"]) == (RARE, True, LINES)
    nothing = ask(client, "after=2900&search=rare", "/find")
    assert (nothing["number"], nothing["done"]) == (None, True)


def test_context_brings_the_lines_around_each_match(client: Client) -> None:
    page = ask(client, "search=rare&context=2")
    assert page["matches"] == RARE
    assert numbers(page) == [5, 6, 7, 8, 9, 998, 999, 1000, 1001, 1002, 1003, 2898, 2899, 2900, 2901, 2902]
    ranked = ask(client, "search=rare&context=1&rank=0")
    assert numbers(ranked) == [996, 1000, 1004, 2896, 2900, 2904], "neighbors obey the other filters"


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("before=%C2%B2", "before is '²'; it must be a whole number from 0 to 1000000000000000."),
        ("after=99999999999999999999", "after is '99999999999999999999'; it must be"),
        ("after=-1", "after is '-1'; it must be"),
        ("limit=many", "limit is 'many'; it must be"),
        ("from=nan", "from is 'nan'; it must be"),
        ("from=20&to=10", "The range ends before it begins: `to` must not be less than `from`."),
        ("rank=a", "The ranks 'a' are invalid"),
        ("rank=7-3", "The ranks '7-3' must be ascending and at most"),
        ("rank=0-9999,10000-19999", "More than 10,000 ranks are requested"),
        ("rank=0-9999&rank=10000", "More than 10,000 ranks are requested"),
        ("stream=stdlog", "The stream 'stdlog' is unknown; allowed: stdout, stderr, server."),
        ("level=LOUD", "The level 'LOUD' is unknown"),
        ("search=%28a&regex=1", "'(a' is not a regular expression"),
    ],
)
def test_what_cannot_be_gets_a_sentence(client: Client, query: str, sentence: str) -> None:
    for path in ("", "/find"):
        assert sentence in refused(client, query, path)


def test_a_time_that_is_none_gets_a_sentence(client: Client) -> None:
    assert "at is 'noon'; it must be seconds since 1970" in refused(client, "at=noon")


def test_a_pattern_that_explodes_gets_a_sentence(client: Client) -> None:
    command = client.command  # type: ignore[attr-defined]
    member = command.task.allocations.get().members.get()
    text = "a" * 5000 + "b" * 5000 + "!"
    store.append(command.task_id, member, "gpu-1", [Block(BEGIN, 0, "stdout", [], [], text)])
    query = urlencode({"search": "^(a+|b+|(ab|a|b)+)+$", "regex": 1})
    assert "takes longer than" in refused(client, query, "/find")


def test_a_download_with_a_bad_filter_is_refused(client: Client) -> None:
    answer = client.get(f"/commands/{client.command.pk}/log.txt?rank=x")  # type: ignore[attr-defined]
    assert answer.status_code == 400
    assert "The ranks 'x' are invalid" in answer.content.decode()
