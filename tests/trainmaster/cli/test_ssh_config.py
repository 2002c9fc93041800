"""What the user's own ssh would do for a name, asked of the real `ssh -G`."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from trainmaster.cli.errors import CliError
from trainmaster.cli.ssh_config import parse_target, resolve

pytestmark = pytest.mark.skipif(shutil.which("ssh") is None, reason="needs an ssh client")

CONFIG = """
Host gpu1
  HostName 10.0.0.5
  Port 2222
  User alice
Host behind
  HostName 10.1.0.7
  User bob
  ProxyJump bastion,inner:2200
Host bastion
  HostName 192.0.2.1
  User jump
  ProxyJump gate
Host gate
  HostName 198.51.100.9
  User g
Host inner
  HostName 10.1.0.1
  User in
  ProxyJump never-used
Host older
  HostName 10.1.0.8
  User bob
  ProxyCommand ssh -q -W %h:%p gate
Host strange
  ProxyCommand nc -X 5 %h %p
Host round
  User r
  ProxyJump about
Host about
  User r
  ProxyJump round
"""


@pytest.fixture(autouse=True)
def own_ssh_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`ssh` on PATH is the real one with a config of ours: it would look in the account's home otherwise."""
    config = tmp_path / "config"
    config.write_text(CONFIG)
    program = tmp_path / "bin" / "ssh"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {config} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")


def test_an_alias_is_resolved_to_address_port_and_user() -> None:
    route = resolve("gpu1")
    assert (route.target.address, route.target.port, route.target.user) == ("10.0.0.5", 2222, "alice")
    assert route.jumps == []


def test_what_is_typed_wins_over_the_config() -> None:
    target = resolve("carol@gpu1:23").target
    assert (target.address, target.port, target.user) == ("10.0.0.5", 23, "carol")


def test_an_address_without_a_config_stands_for_itself() -> None:
    target = resolve("carol@192.0.2.77").target
    assert (target.address, target.port, target.user) == ("192.0.2.77", 22, "carol")


def test_jump_hosts_come_nearest_first_with_the_first_ones_own_jumps() -> None:
    route = resolve("behind")
    assert [(hop.address, hop.port, hop.user) for hop in route.jumps] == [
        ("198.51.100.9", 22, "g"),
        ("192.0.2.1", 22, "jump"),
        ("10.1.0.1", 2200, "in"),
    ]
    assert route.target.address == "10.1.0.7"


def test_the_older_way_to_write_a_jump_is_understood() -> None:
    assert [hop.address for hop in resolve("older").jumps] == ["198.51.100.9"]


def test_another_proxy_command_is_refused_with_a_sentence() -> None:
    with pytest.raises(CliError, match="which the server cannot run"):
        resolve("strange")


def test_jumps_in_circles_are_refused() -> None:
    with pytest.raises(CliError, match="circular"):
        resolve("round")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("gpu1", (None, "gpu1", None)),
        ("a@b:1", ("a", "b", 1)),
        ("[::1]:22", (None, "::1", 22)),
        ("a@[fe80::1]", ("a", "fe80::1", None)),
        ("ssh://a@b:22", ("a", "b", 22)),
    ],
)
def test_a_target_is_user_host_and_port(text: str, parts: tuple[object, ...]) -> None:
    assert tuple(parse_target(text)) == parts


@pytest.mark.parametrize(
    "text", ["", "a@", "-oProxyCommand=x", "a@-x", "-x@b", "b:0", "b:70000", "b:x", "a b@c d:e"]
)
def test_what_could_be_an_option_or_is_no_target_is_refused(text: str) -> None:
    with pytest.raises(CliError, match="allowed:"):
        parse_target(text)
