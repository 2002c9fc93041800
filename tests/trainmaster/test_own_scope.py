"""What is launched does not end with the service or the login session that launches it, where systemd allows that."""

import os
from pathlib import Path

import pytest

from trainmaster.host import own_scope
from trainmaster.host.own_scope import Unit

pytestmark = pytest.mark.survive(7)
SERVICE = "0::/system.slice/trainmaster.service\n"
SESSION = "0::/user.slice/user-0.slice/session-3.scope\n"


class Systemd:
    """Programs of systemd that tell `kill_mode`, and move this process into the scope that they are asked for."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cgroup, self.calls = folder / "cgroup", folder / "calls"
        self.calls.touch()
        self.folder = folder
        self.kill_mode("control-group")
        self._write("busctl", f'echo "$@" >> {self.calls}; echo "0::/system.slice/$7" > {self.cgroup}')
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        monkeypatch.setattr(own_scope, "CGROUP", self.cgroup)
        monkeypatch.setattr(own_scope, "SYSTEMD", folder)
        monkeypatch.setattr(os, "getuid", lambda: 0)

    def kill_mode(self, mode: str) -> None:
        self._write("systemctl", f"echo {mode}")

    def _write(self, name: str, script: str) -> None:
        program = self.folder / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Systemd:
    return Systemd(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("cgroup", "unit"),
    [
        (SERVICE, Unit("trainmaster.service", False)),
        (SESSION, Unit("session-3.scope", False)),
        ("9:name=systemd:/system.slice/ssh.service\n8:pids:/other.service\n", Unit("ssh.service", False)),
        ("0::/user.slice/user-7.slice/user@7.service/app.slice/tm.service\n", Unit("tm.service", True)),
        ("0::/\n4:memory:/some/where\n", None),
    ],
)
def test_the_innermost_unit_is_read_from_the_cgroup(cgroup: str, unit: Unit | None) -> None:
    assert own_scope.unit_of(cgroup) == unit


def test_a_launch_leaves_the_service_that_would_end_its_runs(systemd: Systemd) -> None:
    systemd.cgroup.write_text(SERVICE)
    assert own_scope.leave(logind_spares=True)
    assert f"PIDs au 1 {os.getpid()}" in systemd.calls.read_text()
    assert not own_scope.leave(logind_spares=True), "it is in a scope of its own"


@pytest.mark.parametrize("mode", ["process", "none"])
def test_a_service_that_ends_its_main_process_alone_is_not_left(systemd: Systemd, mode: str) -> None:
    systemd.cgroup.write_text(SERVICE)
    systemd.kill_mode(mode)
    assert not own_scope.leave(logind_spares=True) and not systemd.calls.read_text()


def test_a_login_session_is_left_only_if_logind_kills_what_it_leaves(systemd: Systemd) -> None:
    systemd.cgroup.write_text(SESSION)
    assert not own_scope.leave(logind_spares=True)
    assert own_scope.leave(logind_spares=False)


def test_whoever_may_not_leave_is_told_that_runs_are_in_danger(
    systemd: Systemd, monkeypatch: pytest.MonkeyPatch
) -> None:
    systemd.cgroup.write_text(SERVICE)
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    assert own_scope.facts(logind_spares=True) == {
        "unit": "trainmaster.service",
        "kill_mode": "control-group",
        "ends_runs": True,
        "leaves": False,
    }
    assert not own_scope.leave(logind_spares=True) and not systemd.calls.read_text()
