"""`manage.py up`: starts, serves, mends itself, and ends without a trace. Real parts throughout."""

import json
import os
import signal
import stat
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import redis

from embedded.lock import Register
from embedded.ports import LOOPBACK
from tests.rig import pace, parts
from tests.rig.ports import free_port
from tests.rig.server import ROOT, Server

PARTS = {"postgres", "redis", "forkserver", "web", "worker"}


@pytest.fixture(scope="module")
def up() -> Iterator[Server]:
    """One server on loopback alone, for the tests that leave it alive."""
    with parts.private_folder("up") as path:
        path.chmod(0o711)
        server = Server(path / "data", empty=True)
        try:
            yield server.start()
        finally:
            server.close()


def healthy(server: Server) -> bool:
    try:
        with urllib.request.urlopen(f"{server.url}/health", timeout=60) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def refused(server: Server, *arguments: str) -> str:
    """Run a second `up` that must not start; what it says."""
    command = [sys.executable, str(ROOT / "manage.py"), "up", *arguments]
    done = subprocess.run(
        command, env=server.environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode != 0
    return done.stderr


def test_it_serves_and_prints_the_password_of_the_admin_once(up: Server) -> None:
    assert healthy(up)
    assert set(up.children()) == PARTS
    assert len(up.password) == 20
    assert up.password not in "".join(up.log(name) for name in PARTS)
    assert up.said().count(up.password) == 1


def test_secrets_and_sockets_are_closed_to_others(up: Server) -> None:
    assert stat.S_IMODE((up.data / "secret_key").stat().st_mode) == 0o600
    for folder in ("pgsock", "redis", "postgres", "log"):
        assert stat.S_IMODE((up.data / folder).stat().st_mode) == 0o700, folder


@pytest.mark.survive(34)
def test_no_secret_is_in_the_arguments_of_any_child(up: Server) -> None:
    secret = (up.data / "secret_key").read_text()
    for child in up.children().values():
        arguments = Path(f"/proc/{child.pid}/cmdline").read_bytes().decode()
        assert secret not in arguments
        assert up.password not in arguments


def test_on_loopback_links_have_an_address_and_hosts_are_told_none(up: Server) -> None:
    given = Path(f"/proc/{up.children()['worker'].pid}/environ").read_text().split("\0")
    assert f"TRAINMASTER_LINK_URL=http://{LOOPBACK}:{up.port}" in given
    assert not any(each.startswith("TRAINMASTER_SERVER_URL=") for each in given)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root changes accounts")
def test_the_databases_run_under_an_unprivileged_account(up: Server) -> None:
    for name in ("postgres", "redis"):
        assert Path(f"/proc/{up.children()[name].pid}").stat().st_uid != 0


def test_a_second_up_says_who_runs_already(up: Server) -> None:
    said = refused(up, "--data", str(up.data), "--port", str(free_port()))
    assert up.process is not None
    assert f"Trainmaster is already running from {up.data}: process {up.process.pid} of" in said
    assert up.url in said


def test_a_port_in_use_is_a_sentence(up: Server) -> None:
    with parts.private_folder("second") as path:
        path.chmod(0o711)
        said = refused(up, "--data", str(path / "data"), "--port", str(up.port))
    assert f"Port {up.port} on {LOOPBACK} is in use by another process; choose one with --port." in said


@pytest.mark.survive(25)
@pytest.mark.parametrize("name", ["web", "worker", "forkserver", "redis", "postgres"])
def test_a_killed_part_is_replaced_and_everything_goes_on(up: Server, name: str) -> None:
    former = up.kill_part(name)
    up.wait_replaced(name, former)
    assert pace.wait_until(lambda: healthy(up), 60), up.log("web")[-2000:]
    assert pace.wait_until(lambda: databases_answer(up), 60)
    assert f"{name} was terminated by SIGKILL; starting it again" in up.said()


def databases_answer(server: Server) -> bool:
    try:
        with psycopg.connect(server.database_url) as connection:
            connection.execute("SELECT count(*) FROM accounts_user").fetchone()
        return bool(redis.Redis.from_url(server.environment["REDIS_URL"]).ping())
    except (psycopg.Error, redis.RedisError):
        return False


@pytest.mark.survive(25)
def test_a_restart_keeps_data_and_password_and_ends_cleanly(up: Server) -> None:
    """The last of the tests of this server, which it ends."""
    password, first = up.password, up.children()
    assert up.stop() == 0
    assert not any(child.alive() for child in first.values())
    up.start()
    assert up.password == password
    assert up.said().count("password") == 1
    kill_up_and_start_again(up)
    assert up.stop() == 0


def kill_up_and_start_again(server: Server) -> None:
    """After kill -9 of `up` nothing is left of it when the next one serves."""
    children = server.children()
    server.kill()
    server.start()
    assert not any(child.alive() for child in children.values())
    assert healthy(server)


def test_leftovers_that_ignore_the_death_of_up_are_ended_by_the_next(tmp_path: Path) -> None:
    stubborn = subprocess.Popen(
        [sys.executable, "-c", "import signal; signal.signal(signal.SIGTERM, signal.SIG_DFL); signal.pause()"]
    )
    bystander = subprocess.Popen(["sleep", "600"])
    try:
        register = Register(tmp_path)
        register.add("worker", stubborn.pid)
        register.add("web", bystander.pid)
        recorded = json.loads((tmp_path / "children.json").read_text())
        recorded["web"]["start_time"] -= 1  # as if its pid had been given again
        (tmp_path / "children.json").write_text(json.dumps(recorded))
        assert Register(tmp_path).end_leftovers() == ["worker"]
        assert stubborn.wait(60) == -signal.SIGTERM
        assert bystander.poll() is None, "a process that only got a recorded pid must live"
    finally:
        for child in (stubborn, bystander):
            child.kill()
            child.wait()
