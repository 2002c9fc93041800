"""`make demo`: a real training on two hosts of its own, paused by Ctrl-C and gone on with at the next start."""

import contextlib
import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from embedded import demo, processes
from tests.rig import pace, parts
from tests.rig.server import ROOT, Server

pytestmark = [
    pytest.mark.hosts,
    pytest.mark.skipif(demo.sshd_program() is None, reason="needs sshd: install openssh-server"),
]


def started(server: Server, *arguments: str) -> "subprocess.Popen[bytes]":
    """The demo on the server's data folder and port, its output added to the server's."""
    where = ["--data", str(server.data), "--port", str(server.port)]
    command = [sys.executable, str(ROOT / "manage.py"), "demo", *where, *arguments]
    environment = {name: value for name, value in server.environment.items() if not name.endswith("_URL")}
    return processes.spawn(command, server.output, environment=environment, folder=ROOT)


def processes_of(data: Path) -> list[str]:
    """The command lines of everything that lives from the data folder."""
    found = []
    for arguments in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = arguments.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if str(data) in words and processes.identify(int(arguments.parent.name)):
                found.append(words)
    return found


def steps(server: Server) -> int:
    """Reported training steps so far; 0 while the database is away."""
    with contextlib.suppress(psycopg.Error), psycopg.connect(server.database_url) as connection:
        row = connection.execute("SELECT coalesce(max(steps_completed), 0) FROM experiments_trial").fetchone()
        return int(row[0]) if row else 0
    return 0


def test_the_hosts_of_an_earlier_start_are_known_before_the_server_is(tmp_path: Path) -> None:
    assert demo.kept_hosts(tmp_path) == []
    made = demo.make_hosts(tmp_path, local=False)
    assert [host.name for host in made] == ["demo-1", "demo-2"]
    assert demo.kept_hosts(tmp_path) == made


@pytest.mark.chaos  # a minute and a half
def test_ctrl_c_pauses_the_demo_and_the_next_one_goes_on() -> None:
    with parts.private_folder("demo") as path:
        path.chmod(0o711)
        server = Server(path / "data")
        first = started(server)
        try:
            assert pace.wait_until(lambda: first.poll() is not None or steps(server) >= 20, 120), (
                server.said()
            )
            first.send_signal(signal.SIGINT)
            assert first.wait(90) == 0, server.said()
            assert "Pausing the demo's experiment 1" in server.said()
            assert processes_of(server.data) == []
            paused = steps_of_first_run(server.data)
            second = started(server)
            assert pace.wait_until(
                lambda: "Resuming experiment 1" in server.said() and steps(server) > paused, 90
            ), server.said()
            second.send_signal(signal.SIGINT)
            assert second.wait(90) == 0, server.said()
            assert processes_of(server.data) == []
            assert_ports_are_free(server)
        finally:
            for child in [item for item in (first, locals().get("second")) if item is not None]:
                child.kill()
                child.wait()


def steps_of_first_run(data: Path) -> int:
    """The step that the chief saved at, as the host's spool has it."""
    records = [
        json.loads(line)
        for spool in (data / "demo").glob("demo-*/work/runs/*/spool/core.rank0.jsonl")
        for line in spool.read_text().splitlines()
    ]
    return max(int(record["steps_completed"]) for record in records if record["type"] == "checkpoint")


def assert_ports_are_free(server: Server) -> None:
    with socket.socket() as attempt:
        attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        attempt.bind(("127.0.0.1", server.port))
