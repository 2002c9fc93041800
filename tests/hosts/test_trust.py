"""Which kind of deployment a server is, as the doctor and `check --deploy` say it."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.management import call_command

from accounts.models import User
from hosts import trust
from hosts.models import Host, ResourcePool
from hosts.pools import default_pool
from tests.rig.world import make_host
from webui import checks

pytestmark = pytest.mark.django_db


@pytest.fixture
def team(settings: Any) -> Host:
    """Two users with an account each, on a host whose login is root, and nothing that they share."""
    settings.SHELLS_WITHOUT_LOGIN = False
    settings.PROXY_ORIGIN, settings.S3_ENDPOINTS = "https://tasks.example.com", ["https://s3.example.com"]
    for name in ("ada", "bob"):
        User.objects.create(username=name, unix_user=name)
    User.objects.create(username="vic", role=User.Role.VIEWER)
    host = make_host("gpu1", 1)
    Host.objects.update(facts={"account": {"name": "root", "switch": "root"}})
    ResourcePool.objects.update(strict=True)
    return host


def test_of_one_person_nothing_has_to_be_kept_apart() -> None:
    User.objects.create(username="ada")
    User.objects.create(username="vic", role=User.Role.VIEWER)
    make_host("gpu1", 1)
    assert trust.of_server() == trust.Trust(trust.Kind.ONE_PERSON)
    assert checks.who_is_kept_apart(["default"])[0].msg == "This server is set up for one person."


def test_where_nothing_is_shared_users_are_kept_apart(team: Host) -> None:
    assert trust.of_server() == trust.Trust(trust.Kind.APART)


@pytest.mark.parametrize(
    ("rules", "gap"),
    [
        ({"shared_account": True}, "pool default runs all jobs under one account"),
        ({"strict": False}, "editors may change each other's jobs in the queue of pool default"),
    ],
)
def test_a_pool_that_shares_is_named(team: Host, rules: dict[str, bool], gap: str) -> None:
    ResourcePool.objects.update(**rules)
    found = trust.of_server()
    assert found.kind == trust.Kind.TRUSTING and len(found.gaps) == 1 and found.gaps[0].startswith(gap)


def test_who_runs_as_the_login_is_named(team: Host) -> None:
    User.objects.filter(username="bob").update(unix_user="")
    assert trust.of_server().kind == trust.Kind.APART, "their jobs are refused"
    ResourcePool.objects.update(allow_login_account=True)
    assert trust.of_server().gaps == [
        "jobs of bob in pool default run as the login account (--allow-login-account)"
    ]


def test_who_is_linked_with_the_login_itself_runs_as_the_login(team: Host) -> None:
    Host.objects.update(facts={"account": {"name": "bob", "switch": "sudo"}})
    assert trust.of_server().kind == trust.Kind.APART, "their jobs are refused"
    ResourcePool.objects.update(allow_login_account=True)
    assert trust.of_server().gaps == [
        "jobs of bob in pool default run as the login account (--allow-login-account)"
    ]


def test_a_login_that_becomes_root_by_docker_keeps_nobody_apart(team: Host) -> None:
    Host.objects.update(facts={"account": {"name": "ml", "switch": "none", "root_by": "docker"}})
    assert trust.of_server().gaps == [
        "all jobs on gpu1 share the login account, which cannot switch to others"
    ]


def test_hosts_of_one_pool_are_judged_each_for_itself(team: Host) -> None:
    """One host whose login cannot switch does not hide what is true of the others."""
    make_host("gpu2", 1)
    Host.objects.filter(name="gpu2").update(facts={"account": {"name": "ml", "switch": "none"}})
    ResourcePool.objects.update(allow_login_account=True)
    User.objects.filter(username="bob").update(unix_user="")
    assert trust.of_server().gaps == [
        "all jobs on gpu2 share the login account, which cannot switch to others",
        "jobs of bob in pool default run as the login account (--allow-login-account)",
    ]


def test_a_linked_account_that_can_become_root_is_named(team: Host) -> None:
    facts = {"account": {"name": "root", "switch": "root", "like_root": {"ada": ["docker"], "eve": ["sudo"]}}}
    Host.objects.update(facts=facts)
    assert trust.of_server().gaps == [
        "jobs of ada can become root on gpu1: their account ada is in the group docker"
    ]


def test_a_login_that_cannot_switch_is_shared_by_all(team: Host) -> None:
    Host.objects.update(facts={"account": {"name": "ml", "switch": "none"}})
    assert trust.of_server().gaps == [
        "all jobs on gpu1 share the login account, which cannot switch to others"
    ]


@pytest.mark.parametrize(
    ("name", "value", "word"),
    [
        ("PROXY_ORIGIN", "", "--proxy-origin"),
        ("S3_ENDPOINTS", [], "S3"),
        ("INSECURE_HTTP", True, "without TLS"),
        ("SHELLS_WITHOUT_LOGIN", True, "key of a shell"),
    ],
)
def test_settings_count_as_well(team: Host, settings: Any, name: str, value: Any, word: str) -> None:
    setattr(settings, name, value)
    found = trust.of_server()
    assert len(found.gaps) == 1 and word in found.gaps[0]
    (said,) = checks.who_is_kept_apart(["default"])
    assert said.msg == f"This server is set up for a team whose members trust each other: {found.gaps[0]}."
    assert default_pool().name == "default"


@pytest.mark.parametrize(
    ("words", "said"),
    [([], "was not checked"), (["--database", "default"], "This server is set up for a team")],
)
def test_check_deploy_says_which_it_is_or_how_to_ask(
    team: Host, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    call_command("check", "--deploy", "--tag", "security", *words)
    shown = capsys.readouterr().err
    assert said in shown
    assert ("manage.py check --deploy --database default" in shown) is (not words)
