"""A real web process (uvicorn) over the test database, on a free loopback port."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from django.conf import settings

from tests.rig.parts import end

ROOT = Path(__file__).resolve().parent.parent.parent
START_SECONDS = 240


@dataclass(frozen=True)
class Web:
    url: str
    pid: int
    data_dir: Path

    def log(self, since: int = 0) -> str:
        """What it has logged, from a number of characters on: it may serve the tests of many files."""
        return (self.data_dir / "web.log").read_text()[since:]

    @property
    def socket_url(self) -> str:
        return self.url.replace("http://", "ws://", 1)


def database_url() -> str:
    """The URL of the database that the tests of this session use."""
    entry = settings.DATABASES["default"]
    user, password, host = (quote(str(entry[key]), safe="") for key in ("USER", "PASSWORD", "HOST"))
    login = user + (f":{password}" if password else "")
    port = f":{entry['PORT']}" if entry["PORT"] else ""
    return f"postgresql://{login}@{host}{port}/{entry['NAME']}"


@contextmanager
def running_web(folder: Path, root: Path = ROOT, **environment: str) -> Iterator[Web]:
    """Serve the webui.asgi of a tree until the block ends; its output is in `folder`/web.log."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        # uvicorn takes a socket that it is given by --fd for one of Unix, and so would leave each answer 40 ms to Nagle
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listening.listen(512)
        port = listening.getsockname()[1]
        command = [
            sys.executable, "-m", "uvicorn", "webui.asgi:application", "--fd", str(listening.fileno()),
            "--http", "webui.connections:Http", "--ws", "webui.connections:WebSocket",
            "--no-access-log", "--ws-per-message-deflate", "false", "--timeout-graceful-shutdown", "1",
        ]  # fmt: skip
        variables = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(root), str(root / "queue")]),
            "DJANGO_SETTINGS_MODULE": "webui.settings",
            "DATABASE_URL": database_url(),
            "REDIS_URL": settings.REDIS_URL,
            "TRAINMASTER_DATA_DIR": str(folder),
            "TRAINMASTER_SECRET_KEY": settings.SECRET_KEY,
            **environment,
        }
        with (folder / "web.log").open("wb") as log:
            child = subprocess.Popen(
                command, env=variables, cwd=root, stdout=log, stderr=log, pass_fds=[listening.fileno()]
            )
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_until_it_answers(url, child, folder / "web.log")
        yield Web(url, child.pid, folder)
    finally:
        end(child, signal.SIGTERM)


def _wait_until_it_answers(url: str, child: "subprocess.Popen[bytes]", log: Path) -> None:
    until = time.monotonic() + START_SECONDS
    while True:
        try:
            urllib.request.urlopen(f"{url}/runner/v1/nonce?value=started", timeout=START_SECONDS).read()
            return
        except OSError as error:
            if child.poll() is not None or time.monotonic() > until:
                raise AssertionError(
                    f"the web process does not answer: {error}\n{log.read_text()}"
                ) from error
