"""`host add` from a terminal to a host with its own sshd, by way of the whole server."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.rig import pace
from tests.rig.hosts import Host
from tests.rig.server import ROOT
from tests.trainmaster.cli.conftest import CommandLine
from tests.trainmaster.cli.terminal import Terminal

pytestmark = pytest.mark.hosts


@pytest.fixture
def people(hosts: list[Host], tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of a user whose ssh config knows the hosts, and knows gpu2 behind gpu1 too."""
    config = tmp_path / "ssh_config"
    known = (hosts[0].folder.parent / "ssh_config").read_text()
    far = hosts[1]
    config.write_text(
        f"Host far\n  HostName {far.address}\n  Port {far.port}\n  User {far.logins[0]}\n  ProxyJump gpu1\n"
        f"  IdentityFile {far.client_key}\n  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n{known}"
    )
    program = tmp_path / "bin" / "ssh"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {config} "$@"\n')
    program.chmod(0o755)
    yield {"PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}", "XDG_CONFIG_HOME": str(tmp_path)}


@pytest.fixture
def added(tm: CommandLine) -> Iterator[list[str]]:
    """Names of hosts that the test has added; they are removed when it ends."""
    names: list[str] = []
    yield names
    for name in names:
        tm("host", "remove", name, "--yes")


def on_terminal(tm: CommandLine, people: dict[str, str], *words: str) -> Terminal:
    return Terminal(tm.command(*words), {**tm.environment, **people})


def shown(tm: CommandLine, name: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(tm("host", "show", name, "-o", "json").stdout)
    return answer


def test_a_name_of_the_ssh_config_becomes_a_ready_host(
    tm: CommandLine, hosts: list[Host], people: dict[str, str], added: list[str]
) -> None:
    added.append("gpu1")
    terminal = on_terminal(
        tm,
        people,
        "host",
        "add",
        "gpu1",
        "--slots",
        "2",
        "--python",
        "/usr/bin/python3",
        "--allow-login-account",
    )
    terminal.answer("using your own ssh? [Y/n]", "")
    terminal.expect("The host key of")
    terminal.answer("Accept this host key? [y/N]", "y")
    assert terminal.wait() == 0, terminal.said
    assert "Added host gpu1 to the pool default: 2 slots" in terminal.said
    host = shown(tm, "gpu1")
    assert host["state"] == "ready"
    assert host["hostKey"]["state"] == "pinned"
    assert host["hostKey"]["fingerprint"] in terminal.said
    assert [slot["kind"] for slot in host["slots"]] == ["cpu", "cpu"]


def test_a_host_key_that_is_not_the_right_one_leaves_nothing_behind(
    tm: CommandLine, hosts: list[Host], people: dict[str, str]
) -> None:
    terminal = on_terminal(tm, people, "host", "add", "gpu2")
    terminal.answer("using your own ssh? [Y/n]", "y")
    terminal.answer("Accept this host key? [y/N]", "n")
    assert terminal.wait() == 1
    assert "was not accepted" in terminal.said
    assert tm("host", "show", "gpu2").returncode == 1


def test_a_host_behind_a_jump_host_is_reached_by_way_of_it(
    tm: CommandLine, hosts: list[Host], people: dict[str, str], added: list[str]
) -> None:
    added.append("far")
    done = tm("host", "add", "far", "--slots", "1", "--yes", environment=people)
    assert done.returncode == 0, done.stderr + done.stdout
    assert f"via {hosts[0].logins[0]}@{hosts[0].address}" in done.stderr
    host = shown(tm, "far")
    assert host["state"] == "ready"
    assert [jump["address"] for jump in host["jumps"]] == [hosts[0].address]


def test_a_host_that_refuses_the_servers_key_says_so(
    tm: CommandLine, hosts: list[Host], people: dict[str, str], added: list[str]
) -> None:
    added.append("gpu1")
    done = tm("host", "add", "gpu1", "--yes", "--no-key", environment=people)
    assert done.returncode == 1
    assert "gpu1 is not ready" in done.stderr
    assert "trainmaster host doctor gpu1" in done.stderr


def allows_login(tm: CommandLine) -> bool:
    pools = json.loads(tm("pool", "list", "-o", "json").stdout)
    return bool(next(pool for pool in pools if pool["name"] == "default")["allowLoginAccount"])


@pytest.mark.skipif(os.getuid() != 0, reason="the login of this host has to be root")
@pytest.mark.parametrize("reply", ["y", "n"])
def test_whether_jobs_may_run_as_the_login_is_asked_on_a_terminal(
    tm: CommandLine, people: dict[str, str], added: list[str], reply: str
) -> None:
    added.append("local")
    tm("pool", "edit", "default", "--no-allow-login-account")
    terminal = on_terminal(tm, people, "host", "add", "local", "--slots", "1", "--python", sys.executable)
    terminal.expect("Added host local to the pool default: 1 slot")
    terminal.answer("Such jobs can read and end everything on its hosts. [y/N]", reply)
    assert terminal.wait() == 0, terminal.said
    assert (
        terminal.said.split("Added host local")[1].count("would run as root, so they are refused here") == 1
    )
    assert allows_login(tm) is (reply == "y")


@pytest.mark.skipif(os.getuid() != 0, reason="the login of this host has to be root")
def test_an_option_allows_it_without_a_question(tm: CommandLine, added: list[str]) -> None:
    added.append("local")
    tm("pool", "edit", "default", "--no-allow-login-account")
    done = tm("host", "add", "local", "--slots", "1", "--allow-login-account")
    assert done.returncode == 0 and "refused" not in done.stderr + done.stdout
    assert allows_login(tm)
    assert tm("host", "doctor", "local").returncode == 0
    assert tm("command", "run", "id", "-u").returncode == 0


def test_the_local_host_is_added_disabled_enabled_drained_and_removed(
    tm: CommandLine, added: list[str]
) -> None:
    added.append("local")
    assert tm("pool", "edit", "default", "--no-allow-login-account").returncode in (0, 1)
    done = tm("host", "add", "local", "--slots", "1", "--yes")
    assert done.returncode == 0
    if os.getuid() == 0:  # the login of this host, then
        assert "would run as root, so they are refused here" in done.stderr, "--yes allows no such thing"
        assert not allows_login(tm)
        examined = tm("host", "doctor", "local")
        assert examined.returncode == 1 and "would run as root, so they are refused" in examined.stdout
        refused = tm("command", "run", "true")
        assert refused.returncode == 1 and "pool edit default --allow-login-account" in refused.stderr
    allowed = tm("pool", "edit", "default", "--allow-login-account")
    assert allowed.returncode == 0, allowed.stderr
    listed = json.loads(tm("host", "list", "-o", "json").stdout)
    assert [host["state"] for host in listed if host["name"] == "local"] == ["ready"]
    for verb, state, why in (
        ("disable", "disabled", "Disabled by admin, 20"),
        ("enable", "ready", ""),
        ("drain", "draining", "Drained by admin, 20"),
        ("enable", "ready", ""),
    ):
        assert tm("host", verb, "local").returncode == 0
        assert shown(tm, "local")["state"] == state
        [row] = [line for line in tm("host", "list").stdout.splitlines() if line.startswith(" local ")]
        reason = row.split("|")[-1].strip()
        assert reason.startswith(why) and bool(reason) is bool(why)
    assert tm("host", "quarantine", "local", "--slot", "0", "--reason", "loud fan").returncode == 0
    health = tm("host", "health", "local").stdout
    assert "1 slot quarantined" in health and "loud fan" in health
    assert "1 slot quarantined" in tm("host", "health").stdout
    assert tm("host", "release", "local", "--slot", "0").returncode == 0
    assert tm("host", "doctor", "local").returncode == 0
    assert "local" in tm("agent", "list").stdout
    assert "FREE" in tm("slot", "list", "--csv").stdout
    again = tm("host", "add", "local")
    assert again.returncode == 1
    assert "already" in again.stderr
    removal = tm("host", "remove", "local", said="")
    assert removal.returncode == 1
    assert "--yes" in removal.stderr
    assert tm("host", "remove", "local", "--yes").returncode == 0


def test_the_python_of_a_host_that_is_there_can_be_changed(tm: CommandLine, added: list[str]) -> None:
    added.append("local")
    assert tm("host", "add", "local", "--slots", "1", "--python", sys.executable).returncode == 0
    nothing = tm("host", "edit", "local")
    assert nothing.returncode == 2 and "at least one of --python, --activate and --pool" in nothing.stderr
    edited = tm("host", "edit", "local", "--python", "/usr/bin/python3")
    assert edited.returncode == 0, edited.stderr
    assert "Jobs on local use /usr/bin/python3 (pool default)" in edited.stdout
    assert pace.wait_until(lambda: shown(tm, "local")["state"] == "ready", 60), shown(tm, "local")
    assert shown(tm, "local")["python"] == "/usr/bin/python3"
    assert "use . venv (pool" in tm("host", "edit", "local", "--activate", ". venv").stdout
    relative = tm("host", "edit", "local", "--python", "python3")
    assert relative.returncode == 1 and "allowed: an absolute path on the host" in relative.stderr


def test_the_first_ten_minutes_go_as_the_documentation_says(
    tm: CommandLine, added: list[str], tmp_path: Path
) -> None:
    """Every command of docs/start.md in its order, with the example as it stands there but for its pace."""
    page = (ROOT / "docs" / "start.md").read_text()
    config, code = (
        re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)[0] for language in ("yaml", "python")
    )
    assert "time.sleep(0.1)" in code
    (tmp_path / "hello.yaml").write_text(config)
    train = tmp_path / "train.py"
    train.write_text(code.replace("time.sleep(0.1)", "time.sleep(0.01)"))
    environment = {
        **tm.environment, "TRAINMASTER_TOKEN": "", "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "DET_USER": "admin", "DET_PASS": tm.server.password,
    }  # fmt: skip
    added.append("local")
    numbers: dict[str, str] = {}  # of experiments as the page has them -> here
    said = {}
    for line in re.findall(r"^\$ trainmaster (.+)$", page, re.MULTILINE):
        words = [numbers.get(word, word) for word in shlex.split(line)]
        if words[:2] == ["trial", "logs"]:
            trials = tm.server.request(
                "GET", f"/api/v1/experiments/{words[2]}/trials", token=tm.server.token()
            )
            words[2] = str(trials["trials"][0]["id"])
        ran = subprocess.run(
            tm.command(*words), env=environment, cwd=tmp_path, text=True, capture_output=True, timeout=300, check=False
        )  # fmt: skip
        said[line] = ran.stdout + ran.stderr
        assert ran.returncode == 0, f"{line}: {said[line]}"
        if found := re.search(r"Created experiment (\d+)", said[line]):
            numbers[str(len(numbers) + 1)] = found[1]
            # the second is still there to be paused, however slow the machine is
            train.write_text(code.replace("time.sleep(0.1)", "time.sleep(3)"))
    assert len(said) > 9
    assert "step 100: 0.366" in said["experiment create hello.yaml . -f"]
    assert "step 100: 0.366" in said["trial logs 1 --tail 20"]
    assert tm("e", "kill", numbers["2"]).returncode == 0
    assert pace.wait_until(lambda: json.loads(tm("job", "list", "--json").stdout) == [], 120)
