"""Nothing is imported from the folder in which somebody happens to start a part of the server."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from embedded import folder as data_folder
from embedded import redis
from embedded.installation import ROOT
from tests.rig import pace, parts
from tests.rig.ports import free_port
from tests.rig.server import Server
from tests.rig.web import database_url

MODULES = [
    "jobs", "hosts", "accounts", "webui", "dispatch", "logs", "events", "embedded", "trainmaster", "celery", "uvicorn",
    "django", "redis", "json",
]  # fmt: skip
INSTALLED = "/opt/trainmaster"
UNITS = ROOT / "deploy/systemd"


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A folder whose files have the names of ours, and leave a mark when they are executed."""
    for name in MODULES:
        tmp_path.joinpath(f"{name}.py").write_text(
            f"open({str(tmp_path / 'executed')!r}, 'a').write('{name} ')\nraise SystemExit('not ours')\n"
        )
    return tmp_path


def executed(hostile: Path) -> str:
    mark = hostile / "executed"
    return mark.read_text() if mark.exists() else ""


@pytest.mark.parametrize(
    "words", [["check"], ["shell", "-c", "import jobs, hosts, webui.celery; print('ours')"]]
)
def test_a_command_of_the_server_runs_the_servers_own_code(words: list[str], hostile: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), *words],
        cwd=hostile, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert not executed(hostile)
    assert done.returncode == 0, done.stderr


def command_of(unit: str) -> list[str]:
    """What the unit starts, as it is here."""
    text = (UNITS / f"trainmaster-{unit}.service").read_text().replace("\\\n", " ")
    found = re.search(r"^ExecStart=(.*)$", text, re.MULTILINE)
    assert found is not None
    words = found[1].replace(f"{INSTALLED}/.venv/bin", str(Path(sys.executable).parent))
    return shlex.split(words.replace(INSTALLED, str(ROOT)))


@pytest.fixture
def broker() -> Iterator[str]:
    """The URL of a Redis of this test alone: what the parts leave there is no message for others."""
    with parts.private_folder("redis") as path:
        owner = parts.databases_account()
        server = redis.prepare(data_folder.prepare(path, owner), owner)
        child = redis.start(server, path / "redis.log")
        yield server.url()
        parts.end(child, 15)


@contextmanager
def started(command: list[str], hostile: Path, broker: str) -> Iterator[subprocess.Popen[bytes]]:
    variables = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "queue")]),
        "DATABASE_URL": database_url(),
        "REDIS_URL": broker,
        "TRAINMASTER_SECRET_KEY": "tests",
        "TRAINMASTER_DATA_DIR": str(hostile / "data"),
    }
    with (hostile / "log").open("wb") as log:
        child = subprocess.Popen(command, cwd=hostile, env=variables, stdout=log, stderr=log)
    try:
        yield child
    finally:
        parts.end(child, 9)


def wait_ready(child: subprocess.Popen[bytes], ready: Callable[[], bool], hostile: Path) -> None:
    pace.wait_until(lambda: bool(executed(hostile)) or child.poll() is not None or ready(), 120)
    assert not executed(hostile)
    assert child.poll() is None and ready(), (hostile / "log").read_text()[-2000:]


@pytest.mark.django_db(transaction=True)
def test_the_worker_of_deploy_runs_the_servers_own_code(hostile: Path, broker: str) -> None:
    with started(command_of("worker"), hostile, broker) as child:
        wait_ready(child, lambda: " ready." in (hostile / "log").read_text(), hostile)


@pytest.mark.django_db(transaction=True)
def test_the_web_process_of_deploy_runs_the_servers_own_code(hostile: Path, broker: str) -> None:
    port = str(free_port())
    command = [port if word == "8080" else word for word in command_of("web")]
    command[command.index("--workers") + 1] = "1"

    def answers() -> bool:
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{port}/runner/v1/nonce?value=a", timeout=10
            ) as answer:
                return bool(answer.status == 200)
        except (TimeoutError, urllib.error.URLError, ConnectionError):
            return False

    with started(command, hostile, broker) as child:
        wait_ready(child, answers, hostile)


def test_containers_start_the_same_commands() -> None:
    services = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text())["services"]
    program, *words = (word.replace(str(ROOT), INSTALLED) for word in command_of("worker"))
    assert services["worker"]["command"] == [Path(program).name, *words]
    image = (ROOT / "deploy/Dockerfile").read_text()
    assert f"uvicorn webui.asgi:application --app-dir {INSTALLED} " in image
    assert f"python {INSTALLED}/manage.py prepare" in image


def test_up_and_its_parts_run_the_servers_own_code(hostile: Path) -> None:
    with parts.private_folder("up") as path:
        path.chmod(0o711)
        server = Server(path / "data", folder=hostile)
        try:
            server.start()
            assert pace.wait_until(server.is_whole, 120), server.said()[-2000:]
        finally:
            server.close()
    assert not executed(hostile)
