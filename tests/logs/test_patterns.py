"""Regular expressions that explode when they are compiled, wherever a user may write one."""

from __future__ import annotations

import time

import pytest
import regex

from accounts.refusals import Refusal
from experiments.config import log_policies
from experiments.log_policies import of_config
from logs.filters import Filters
from logs.patterns import compiled
from notifications import triggers
from tests.rig import pace

SENTENCE = r"its counts make up to [\d,]+ parts of it; allowed: at most 50,000"


@pytest.mark.parametrize(
    "pattern",
    [
        "a{1000000}",
        "(((a{60000}){60000}){60000})",
        "a{3000}{3000}",
        "(?x)(a{3 0 0 0}) {3000}",
        "(?x)(a{3000})# a comment\n{3000}",
        "(?<x>a{3000})(?&x){3000}",
        "(" + "ab|" * 200 + "){5000}",
        "[[:alpha:](]|(a{3000}[[:alpha:](]){3000,3000}",
    ],
)
def test_counts_that_explode_are_refused_before_they_do(pattern: str) -> None:
    begun = time.monotonic()
    with pytest.raises(ValueError, match=SENTENCE):
        compiled(pattern, regex.V0)
    assert time.monotonic() - begun < pace.factor()


@pytest.mark.parametrize(
    "pattern",
    [
        r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}.\d{3}Z? .{5000}",
        "[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}",
        "(a{0,60000}){0,60000}",  # ranges are not copied
        r"x{500}" + "|y" * 400,
        r"\{60000\}",
    ],
)
def test_ordinary_counts_are_compiled(pattern: str) -> None:
    begun = time.monotonic()
    assert compiled(pattern, regex.V0 | regex.IGNORECASE)
    assert time.monotonic() - begun < pace.factor()


def test_every_place_where_users_write_patterns_refuses_them() -> None:
    pattern = "((a{60000}){60000}){60000}"
    with pytest.raises(Refusal, match=SENTENCE):
        Filters().searching(pattern, is_regex=True)
    with pytest.raises(ValueError, match=SENTENCE):
        log_policies.LogPolicy(name="x", pattern=pattern)
    with pytest.raises(Refusal, match=SENTENCE):
        triggers._check_log({"regex": pattern}, "triggers.0.condition")
    with pytest.raises(ValueError, match="at most 1000"):
        log_policies.LogPolicy(name="x", pattern="(" * 5000)


def test_an_older_config_with_such_a_pattern_keeps_its_other_policies() -> None:
    config = {"log_policies": [{"pattern": "(a{60000}){60000}"}, {"name": "oom", "pattern": "memory"}]}
    assert [policy.name for policy in of_config(config)] == ["oom"]
