"""Values of query strings: what is read, and the sentence for what is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.http import QueryDict

from webui import query
from webui.api.errors import BadRequest


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *[("7", 7), ("007", 7), ("100", 100)],
        *[(text, None) for text in ("101", "-1", "1.0", " 1", "", "²", "٣", "9" * 5000)],
    ],
)
def test_a_whole_number_is_ascii_digits_within_its_bounds(text: str, value: int | None) -> None:
    assert query.as_whole(text, 100) == value


def test_ids_are_kept_once_each_in_their_order_and_another_text_is_no_id() -> None:
    assert query.as_ids(["3", "x", "1", "3", ""]) == [3, 1]
    assert (query.as_id("12"), query.as_id("twelve"), query.as_id(str(2**63))) == (12, 0, 0)


@pytest.mark.parametrize("text", ["nan", "inf", "-1e999", "one", ""])
def test_a_number_is_finite(text: str) -> None:
    assert query.as_number(text) is None


def test_an_empty_parameter_is_absent() -> None:
    empty = QueryDict("n=&t=&s=&flag=")
    assert [query.whole(empty, "n"), query.number(empty, "n"), query.time(empty, "t")] == [None] * 3
    assert (query.wholes(empty, "n"), query.flag(empty, "flag"), query.seconds(empty, "s")) == (
        [],
        False,
        None,
    )


def test_a_value_that_is_allowed_is_chosen_and_any_other_means_the_usual() -> None:
    assert query.choice(QueryDict("days=30"), "days", [7, 30], 7) == 30
    assert query.choice(QueryDict("days=31"), "days", [7, 30], 7) == 7
    assert query.choice(QueryDict(""), "days", [7, 30], 30) == 30


@pytest.mark.parametrize(
    ("read", "text", "sentence"),
    [
        (lambda q: query.whole(q, "n", 9, least=-1), "n=10", "n is '10'; it must be a whole number from -1 to 9."),
        (lambda q: query.wholes(q, "n", 9), "n=1&n=x", "n is 'x'; it must be a whole number from 0 to 9."),
        (lambda q: query.number(q, "n", 0, 1), "n=2", "n is '2'; it must be a number from 0 to 1."),
        (lambda q: query.seconds(q, "n"), "n=-1", "n is '-1'; it must be seconds since 1970"),
        (lambda q: query.time(q, "n"), "n=noon", "n is 'noon'; allowed: a time like 2026-01-31T12:00:00Z"),
        (lambda q: query.flag(q, "n"), "n=maybe", "n is 'maybe'; allowed: true or false."),
        (lambda q: query.window(q, "a", "b"), "a=2&b=1", "`b` must not be less than `a`."),
    ],
)  # fmt: skip
def test_a_wrong_value_gets_a_sentence(read: Callable[[QueryDict], Any], text: str, sentence: str) -> None:
    with pytest.raises(BadRequest) as refused:
        read(QueryDict(text))
    assert sentence in str(refused.value)
