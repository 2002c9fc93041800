"""Channels on which verbs are done: side by side, opened anew when they broke, closed for others only when idle."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from dispatch.ssh import connections, verb_channel
from dispatch.ssh.contact_errors import Unreachable
from dispatch.ssh.verb_channel import NotServed
from tests.rig.bundles import install
from tests.rig.pace import wait_until
from trainmaster.bundle import host_command


def serve(folder: Path) -> str:
    """The command that serves the verbs of a workdir on this machine."""
    bundle = install(folder)
    return "exec " + shlex.join(host_command(sys.executable, str(folder), bundle.name, "serve"))


def status(command: str) -> dict[str, object]:
    return connections.call(None, command, "status", b"{}\n")


def test_hosts_of_one_machine_do_not_close_each_others_channel(tmp_path: Path) -> None:
    commands = [serve(tmp_path / name) for name in ("a", "b", "c")]
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(status, commands * 8))
    assert len({str(answer["boot_id"]) for answer in answers}) == 1


def test_a_channel_whose_process_ended_says_so_and_commands_do_until_it_is_opened_anew(
    tmp_path: Path,
) -> None:
    command = serve(tmp_path)
    ending = command.replace("exec ", "", 1) + " & sleep 0.5; kill $!; wait $!"
    with pytest.raises((Unreachable, NotServed)):
        while True:
            status(ending)
    with pytest.raises(NotServed):
        status(ending)


def test_a_frozen_process_costs_one_call_and_the_next_gets_another(tmp_path: Path) -> None:
    command = serve(tmp_path)
    status(command)
    [frozen] = serving(tmp_path)
    os.kill(frozen, signal.SIGSTOP)
    try:
        with pytest.raises(Unreachable):
            connections.call(None, command, "status", b"{}\n", timeout_seconds=0.5)
        with suppress(NotServed):  # commands of their own do meanwhile
            status(command)
        assert wait_until(lambda: answers(command), 60)
        assert frozen not in serving(tmp_path) or len(serving(tmp_path)) == 2
    finally:
        os.kill(frozen, signal.SIGCONT)
    assert wait_until(lambda: frozen not in serving(tmp_path), 60), "its stdin was closed"


def answers(command: str) -> bool:
    try:
        return "boot_id" in status(command)
    except NotServed:
        return False


def serving(folder: Path) -> list[int]:
    """Processes that serve the verbs of this workdir."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = entry.read_bytes().split(b"\0")
            if b"serve" in words and str(folder).encode() in words:
                found.append(int(entry.parent.name))
    return found


def test_what_does_not_serve_is_not_taken_for_a_channel(tmp_path: Path) -> None:
    with pytest.raises(NotServed):
        status("echo hello; sleep 5")
    with pytest.raises(NotServed):
        status("exec /nowhere/python3")


def test_one_that_never_says_that_it_serves_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verb_channel, "OPENING_SECONDS", 0.1)
    with pytest.raises(NotServed, match="no answer for"):
        status("read -r line")
