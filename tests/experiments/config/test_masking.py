"""Secrets never leave in a shown config, and come back in a fork."""

from __future__ import annotations

import pytest

from experiments.config import MASK, masked, masked_text, parse, restored
from trainmaster import yamltext
from trainmaster.secret_words import suggests_secret

TEXT = """# my run
entrypoint: x
searcher: {name: single, metric: m}
environment:
  environment_variables: [HF_TOKEN=hunter2, PLAIN=seen]
  registry_auth: {username: u, password: hunter2}
"""


@pytest.mark.parametrize(
    "name",
    [
        "API_KEY",
        "AWS_SECRET_ACCESS_KEY",
        "DB_PASSWORD",
        "HF_TOKEN",
        "password",
        "PG_PASS",
        "PGPASSWORD",
        "GITHUB_PAT",
        "SERVICE_JWT",
        "AZURE_STORAGE_CONNECTION_STRING",
        "DB_CONN_STR",
        "SENTRY_DSN",
        "ACCESSKEY",
        "DEPLOYSSHKEY",
        "PRIVATEKEY",
        "MYTOKEN",
        "CLIENTSECRET",
        "ROOTPASSWD",
    ],
)
def test_such_a_name_suggests_a_secret(name: str) -> None:
    assert suggests_secret(name)


@pytest.mark.parametrize(
    "name",
    ["PATH", "TOKENIZERS_PARALLELISM", "MONKEY", "NCCL_DEBUG", "KEYBOARD", "AUTHOR", "PATTERN", "BROKEN"],
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


HIDDEN = """
entrypoint: ["python3", "train.py", "--db", "postgres://me:hunter2@db/x"]
searcher: {name: single, metric: m}
environment:
  environment_variables:
    cuda: ["PROXY=http://me:hunter2@proxy:3128", "HOOK=https://hooks.slack.com/services/T0/B0/hunter2", SEEN=1]
    rocm: ["STORE=AccountName=ada;AccountKey=hunter2==;EndpointSuffix=x"]
    cpu: {SLACK_WEBHOOK: "https://chat.example.com/hunter2", API_KEY: hunter2, SEEN: 1}
  registry_auth: {username: u, auth: hunter2, identitytoken: hunter2, registrytoken: hunter2}
checkpoint_storage: {type: s3, bucket: b, access_key: hunter2, secret_key: hunter2}
tensorboard_storage: {type: s3, bucket: b, secret_key: hunter2}
data:
  url: "https://me:hunter2@data.example.com/set"
  s3: {secret_access_key: hunter2, bucket: b, password: 1234}
  mirrors: ["https://a.example.com", "https://me:hunter2@b.example.com"]
  pad_token: "<pad>"
  label_key: y
integrations: {pachyderm: {dataset: {token: hunter2, repo: r}}}
"""


def test_no_secret_of_any_section_is_shown_and_a_fork_gets_all_of_them_back() -> None:
    config = yamltext.load(HIDDEN)
    shown = masked(config)
    assert "hunter2" not in str(shown) and "1234" not in str(shown)
    assert (shown["data"]["pad_token"], shown["data"]["label_key"]) == ("<pad>", "y")
    assert shown["data"]["mirrors"][0] == "https://a.example.com"
    assert shown["entrypoint"][3] == f"postgres://me:{MASK}@db/x"
    assert shown["environment"]["environment_variables"]["cpu"]["SEEN"] == 1
    assert restored(shown, config) == config


def test_a_mask_that_was_edited_stays_as_it_was_written() -> None:
    config = parse(TEXT).effective()
    shown = masked(config)
    variables = [f"HF_TOKEN={MASK}", f"OTHER_TOKEN={MASK}", "PLAIN=new"]
    shown["environment"]["environment_variables"] = variables
    back = restored(shown, config)["environment"]["environment_variables"]
    assert back == ["HF_TOKEN=hunter2", f"OTHER_TOKEN={MASK}", "PLAIN=new"]
    assert any("HF_TOKEN" in remark for remark in parse(masked_text(TEXT)).remarks())
