"""The process of which the server's parts are forks."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from embedded import forkserver, supervise
from embedded.lock import Register
from embedded.supervise import FORKS, ServerPart, Supervisor
from tests.rig import pace

ROOT = Path(__file__).resolve().parent.parent.parent
START_LIMIT_SECONDS = 120.0

#: Says what it is, in a file whose name it is given, then waits for a signal, or ends with the code that it is given.
PROBE = """
import json, os, pathlib, signal, sys, threading
import webui.application
said, given, code = sys.argv[1:]
pathlib.Path(said + ".new").write_text(json.dumps({
    "pid": os.getpid(), "parent": os.getppid(), "session": os.getsid(0), "main": __name__,
    "given": os.pread(int(given), 100, 0).decode() if given else "",
    "descriptors": sorted(int(each) for each in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{each}")),
    "title": pathlib.Path("/proc/self/cmdline").read_bytes().rstrip(b"\\0").decode(),
    "environment": pathlib.Path("/proc/self/environ").read_bytes().decode().split("\\0"),
    "threads": threading.active_count(), "blocked": len(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
}))
os.rename(said + ".new", said)
print("its output", flush=True)
if code:
    sys.exit(int(code))
signal.pause()
"""


class Forking:
    """A supervisor whose fork server is ready, and a program for its forks."""

    def __init__(self, supervisor: Supervisor, folder: Path, words: list[str]) -> None:
        self.supervisor, self.folder, self.words = supervisor, folder, words

    def start(self, name: str, given: int | None = None, code: int | None = None) -> None:
        arguments = [
            str(self.folder / f"{name}.said"),
            *("" if each is None else str(each) for each in (given, code)),
        ]
        descriptors = () if given is None else (given,)
        self.supervisor.start(ServerPart(name, ["probe", *arguments], forked=True, descriptors=descriptors))

    def said(self, name: str, but: int = 0) -> dict[str, object]:
        """What the probe of this name found; `but`: not that of this process."""
        path = self.folder / f"{name}.said"
        found: dict[str, object] = {}

        def there() -> bool:
            found.update(json.loads(path.read_text()) if path.exists() else {})
            return bool(found) and found["pid"] != but

        self.until(there)
        return found

    def until(self, condition: object) -> None:
        assert callable(condition)
        self.supervisor.serve(condition, START_LIMIT_SECONDS * pace.factor())
        assert condition(), self.words

    def server(self) -> int:
        return int(json.loads((self.folder / "children.json").read_text())[FORKS]["pid"])


@contextmanager
def forking(folder: Path) -> Iterator[Forking]:
    (folder / "probe.py").write_text(PROBE)
    words: list[str] = []
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "webui.settings",
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "queue"), str(folder)]),
        "TRAINMASTER_SECRET_KEY": "of this test",
        "TRAINMASTER_DATA_DIR": str(folder),
        "DATABASE_URL": "postgresql://nobody@/nothing",
        "NAMED": "in the environment",
    }
    with Supervisor(folder, Register(folder), words.append) as supervisor:
        supervisor.start_forks(environment, ROOT)
        supervisor.wait_forks(START_LIMIT_SECONDS * pace.factor())
        yield Forking(supervisor, folder, words)


def test_a_fork_is_what_a_new_process_would_be(tmp_path: Path) -> None:
    with forking(tmp_path) as forks, (tmp_path / "given").open("w+") as file:
        file.write("what was handed down")
        file.flush()
        forks.start("web", given=file.fileno())
        found = forks.said("web")
        assert found["given"] == "what was handed down"
        assert found["main"] == "__main__"
        assert found["session"] == found["pid"] != found["parent"] == forks.server()
        assert found["title"] == "trainmaster web"
        assert "NAMED=in the environment" in found["environment"]  # type: ignore[operator]
        assert found["descriptors"] == [0, 1, 2, file.fileno()]
        assert found["threads"] == 1 and found["blocked"] == 0
        forks.until(lambda: "its output" in (tmp_path / "web.log").read_text())


def test_how_a_fork_ended_is_told_and_it_is_started_again(tmp_path: Path) -> None:
    with forking(tmp_path) as forks:
        forks.start("worker", code=3)
        forks.until(
            lambda: any("worker exited with code 3; starting it again" in each for each in forks.words)
        )
        forks.start("web")
        former = forks.said("web")["pid"]
        assert isinstance(former, int)
        os.kill(former, signal.SIGKILL)
        assert forks.said("web", but=former)["parent"] == forks.server()
        assert any("web was terminated by SIGKILL; starting it again" in each for each in forks.words)
        last = forks.said("web", but=former)["pid"]
    assert not Path(f"/proc/{last}").exists()  # with the supervisor all of them have ended


@pytest.mark.survive(25)
def test_forks_end_with_the_fork_server_and_come_back_with_it(tmp_path: Path) -> None:
    with forking(tmp_path) as forks:
        forks.start("web")
        former, server = forks.said("web")["pid"], forks.server()
        assert isinstance(former, int)
        os.kill(server, signal.SIGKILL)
        found = forks.said("web", but=former)
        assert found["parent"] == forks.server() != server
        assert not Path(f"/proc/{former}").exists()


@pytest.mark.survive(8)
def test_a_frozen_fork_server_is_replaced_when_it_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forkserver, "FORK_LIMIT_SECONDS", 1.0)
    monkeypatch.setattr(forkserver, "REPORT_LIMIT_SECONDS", 0.5)
    with forking(tmp_path) as forks:
        forks.start("web")
        former, server = forks.said("web")["pid"], forks.server()
        assert isinstance(former, int)
        os.kill(server, signal.SIGSTOP)
        os.kill(former, signal.SIGKILL)
        assert forks.said("web", but=former)["parent"] == forks.server() != server
        sentence = "The fork server did not answer within 1 s. Starting it again, with the parts that it has started."
        assert sentence in forks.words


def test_a_fork_server_that_hangs_before_it_is_ready_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervise, "FIRST_SIGN_SECONDS", 1.0)
    hangs = (
        "import pathlib, sys, time; path = pathlib.Path(sys.argv[1])\n"
        "path.write_text(path.read_text() + 'x')\n"
        "time.sleep(60)"
    )
    started, words = tmp_path / "started", list[str]()
    started.write_text("")
    monkeypatch.setattr(forkserver, "COMMAND", [sys.executable, "-c", hangs, str(started)])
    with Supervisor(tmp_path, Register(tmp_path), words.append) as supervisor:
        supervisor.start_forks(dict(os.environ), ROOT)
        supervisor.start(ServerPart("web", ["probe"], forked=True))
        supervisor.serve(lambda: len(started.read_text()) > 1, START_LIMIT_SECONDS * pace.factor())
    assert "forkserver is not ready after 1 s; stopping it." in words
