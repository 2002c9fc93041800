"""Secrets never leave in a shown config, and come back in a fork."""

from __future__ import annotations

import pytest

from experiments.config import MASK, masked, masked_text, parse, restored
from submissions.config.masking import suggests_secret

TEXT = """# my run
entrypoint: x
searcher: {name: single, metric: m}
environment:
  environment_variables: [HF_TOKEN=hunter2, PLAIN=seen]
  registry_auth: {username: u, password: hunter2}
"""


@pytest.mark.parametrize(
    "name",
    ["API_KEY", "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD", "HF_TOKEN", "password", "PG_PASS"],
)
def test_such_a_name_suggests_a_secret(name: str) -> None:
    assert suggests_secret(name)


@pytest.mark.parametrize(
    "name", ["PATH", "TOKENIZERS_PARALLELISM", "MONKEY", "NCCL_DEBUG", "KEYBOARD", "AUTHOR"]
)
def test_such_a_name_does_not(name: str) -> None:
    assert not suggests_secret(name)


def test_the_effective_and_the_submitted_config_are_shown_without_secrets() -> None:
    shown = masked(parse(TEXT).effective())
    assert "hunter2" not in str(shown)
    assert shown["environment"]["environment_variables"]["cuda"] == [f"HF_TOKEN={MASK}", "PLAIN=seen"]
    assert "hunter2" not in masked_text(TEXT)
    assert "PLAIN=seen" in masked_text(TEXT)


def test_a_text_without_secrets_is_shown_word_for_word() -> None:
    text = "# comment\nentrypoint:   x\n"
    assert masked_text(text) == text


def test_variables_given_as_maps_are_masked_too() -> None:
    shown = masked({"environment": {"environment_variables": {"cuda": {"API_KEY": "hunter2", "A": 1}}}})
    assert shown["environment"]["environment_variables"] == {"cuda": {"API_KEY": MASK, "A": 1}}


def test_a_fork_gets_its_parents_secrets_back() -> None:
    config = parse(TEXT).effective()
    assert restored(masked(config), config) == config
