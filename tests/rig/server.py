"""The whole server as a user starts it, `manage.py up`, in a data folder and on a port of its own."""

import functools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

from embedded import processes
from embedded.ports import LOOPBACK
from tests.rig import forks, pace, parts, warm_cli
from tests.rig.ports import free_port, is_free

ROOT = Path(__file__).resolve().parent.parent.parent
READY_LIMIT_SECONDS = 300.0
PARTS = ("postgres", "redis", "forkserver", "web", "worker")
# Outages of minutes take seconds in tests.
SCALED = {
    "TRAINMASTER_HOST_SILENT_AFTER_SECONDS": "6",
    "TRAINMASTER_SSH_CONNECT_TIMEOUT_SECONDS": "4",
    "TRAINMASTER_SSH_KEEPALIVE_SECONDS": "2",
    "TRAINMASTER_SWEEP_SECONDS": "2.5",  # each costs some ten messages, which is most of what an idle server does
    "TRAINMASTER_TICK_SECONDS": "2",  # a change wakes the scheduler by itself
    "TRAINMASTER_HEARTBEAT_SECONDS": "1",
    "TRAINMASTER_LOG_LEVEL": "INFO",
}


_FIRST_START = "first start"
LIVE: "list[Server]" = []  # for reports: a failed test shows what its server had to say


class Server:
    """One `up`, whose admin's password is known. Its data is as after a first start; `empty`: it makes its own.

    `folder` is where it is started.
    """

    def __init__(
        self,
        data: Path,
        listen: str = LOOPBACK,
        settings: Mapping[str, str] | None = None,
        *,
        empty: bool = False,
        folder: Path = ROOT,
    ) -> None:
        self.data = data
        self.folder = folder
        self.empty = empty
        self.listen = listen
        self.port = free_port()
        self.settings = {**SCALED, **(settings or {})}
        self.output = data.with_name(data.name + ".out")
        self.password = ""
        self._token = ""
        self.process: subprocess.Popen[bytes] | None = None
        self._shells: forks.Starter | None = None

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def url_for_hosts(self) -> str:
        return f"http://{self.listen}:{self.port}"

    @property
    def database_url(self) -> str:
        return f"postgresql://trainmaster@/trainmaster?host={self.data}/pgsock"

    @property
    def environment(self) -> dict[str, str]:
        """For commands of `manage.py` beside the running server."""
        ours = {
            "TRAINMASTER_DATA_DIR": str(self.data),
            "DATABASE_URL": self.database_url,
            "REDIS_URL": f"unix://{self.data}/redis/redis.sock?db=0",
        }
        return {**_clean_environment(), **self.settings, **ours}

    def start(self, *arguments: str) -> "Server":
        """Start it and wait until it serves."""
        command = [
            sys.executable,
            str(ROOT / "manage.py"),
            "up",
            "--data",
            str(self.data),
            "--port",
            str(self.port),
        ]
        if self.listen != LOOPBACK:
            command += ["--listen", self.listen, "--insecure-http"]
        if not self.empty and not self.data.exists():
            template, self.password, self._token = _after_a_first_start()
            subprocess.run(["cp", "-a", template, self.data], check=True)
        begin = self.output.stat().st_size if self.output.exists() else 0
        environment = {**_clean_environment(), **self.settings, "PYTHONUNBUFFERED": "1"}
        self.process = processes.spawn(
            [*command, *arguments], self.output, environment=environment, folder=self.folder
        )

        def ready() -> bool:
            return self._ended() or "Trainmaster is ready at" in self.said(begin)

        if not pace.wait_until(ready, READY_LIMIT_SECONDS) or self._ended():
            self.kill()
            raise RuntimeError(f"`up` did not get ready:\n{self.said(begin)[-4000:]}")
        if found := re.search(r"password (\S+)", self.said(begin)):
            self.password = found[1]
        if self not in LIVE:
            LIVE.append(self)
        return self

    def said(self, begin: int = 0) -> str:
        """What `up` printed, from a byte on."""
        return self.output.read_bytes()[begin:].decode(errors="replace") if self.output.exists() else ""

    def stop(self) -> int:
        """End it as Ctrl-C does and return its exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(60)

    def kill(self) -> None:
        """kill -9 of `up` itself."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def close(self) -> None:
        """Leave nothing of it: its parts end with it, without the time that `stop` gives them."""
        if self in LIVE:
            LIVE.remove(self)
        self.kill()
        pace.wait_until(lambda: not any(child.alive() for child in self.children().values()), 60)
        # a part whose first thread has ended may have its socket for a moment yet
        pace.wait_until(lambda: is_free(self.port, self.listen), 10)
        if self._shells:
            self._shells.end()
            self._shells = None

    def is_whole(self) -> bool:
        """Whether `up` and all of its parts run, and it answers."""
        children = self.children()
        if (
            self._ended()
            or len(children) < len(PARTS)
            or not all(child.alive() for child in children.values())
        ):
            return False
        return bool(self.request("GET", "/api/v1/master"))

    def children(self) -> dict[str, processes.Process]:
        """The parts that run now by name: postgres, redis, forkserver, web, worker."""
        try:
            found = json.loads((self.data / "children.json").read_text())
        except FileNotFoundError:
            return {}
        return {name: processes.Process(**child) for name, child in found.items()}

    def kill_part(self, name: str) -> processes.Process:
        """kill -9 of one part; returns what it was."""
        victim = self.children()[name]
        victim.signal(signal.SIGKILL)
        return victim

    def wait_replaced(self, name: str, former: processes.Process, limit_seconds: float = 60.0) -> None:
        """Wait until another process does the work of the former one."""

        def replaced() -> bool:
            now = self.children().get(name)
            return now is not None and now != former and now.alive()

        assert pace.wait_until(replaced, limit_seconds), f"{name} was not restarted:\n{self.said()[-2000:]}"

    def log(self, name: str) -> str:
        path = self.data / "log" / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def request(self, method: str, path: str, body: Any = None, token: str = "", once: str = "") -> Any:
        """One REST call: the decoded JSON, or HTTPError with its body read into `reason`.

        `once`: a key with which it may be sent again without being done again.
        """
        headers = {"Content-Type": "application/json"}
        if once:
            headers["Idempotency-Key"] = once
        if token:
            headers["Authorization"] = f"Bearer {token}"
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, content, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.loads(answer.read() or b"null")
        except HTTPError as error:
            error.msg = f"{error.msg}: {error.read().decode(errors='replace')[:2000]}"
            raise

    def token(self) -> str:
        """A login token of the admin: the first start's, for a login costs as much as a whole command."""
        self._token = self._token or self.login()
        return self._token

    def login(self) -> str:
        """A new login token of the admin, by way of POST /api/v1/auth/login."""
        login = {"username": "admin", "password": self.password, "isHashed": False}
        return str(self.request("POST", "/api/v1/auth/login", login)["token"])

    def shell(self, code: str) -> str:
        """Run code in the server's Django, as `manage.py shell` would, over its database; what it printed."""
        self._shells = self._shells or forks.Starter("tests.rig.warm_shell", self.environment)
        done = self._shells.run(["shell"], {"code": code}, "", 240)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def cli(self, *arguments: str, environment: Mapping[str, str] | None = None) -> warm_cli.Ran:
        """Run the command line `trainmaster`, as the admin unless `environment` has another's token."""
        token = self.token()
        as_admin = {**self.cli_environment, "TRAINMASTER_TOKEN": token, "DET_USER_TOKEN": token}
        return warm_cli.run(list(arguments), {**as_admin, **(environment or {})})

    def cli_command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "trainmaster.cli.main", *arguments]

    @property
    def cli_environment(self) -> dict[str, str]:
        """For commands that talk to this server; who asks is added."""
        return {**_clean_environment(), "TRAINMASTER_MASTER": self.url, "DET_MASTER": self.url}

    def _ended(self) -> bool:
        return self.process is None or self.process.poll() is not None


def started_before() -> Path | None:
    """A data folder after a first start, if a process of this run of tests has made one or makes it now."""
    return _after_a_first_start()[0] if parts.is_done(_FIRST_START) else None


def begin_first_start() -> "subprocess.Popen[bytes]":
    """Have a process make the data folder that servers and databases of this run of tests copy; the process."""
    return subprocess.Popen([sys.executable, "-m", "tests.rig.server"], cwd=ROOT)


@functools.cache
def _after_a_first_start() -> tuple[Path, str, str]:
    """A data folder to copy, its admin's password and token: made once, since an empty database costs seconds to fill.

    Workers of one run of tests share it: the first makes it, and the others wait.
    """
    shared = parts.shared_folder()
    made, secrets = shared / "data", shared / "secrets"
    with parts.first_alone(_FIRST_START) as first_here:
        if first_here:
            with parts.private_folder("template") as path:
                path.chmod(0o711)
                first = _started_once(path / "data")
                secrets.write_text(f"{first.password}\n{first.token()}")
                first.data.rename(made)
    password, token = secrets.read_text().split()
    return made, password, token


def _started_once(data: Path) -> Server:
    first = Server(data, empty=True)
    try:
        first.start().token()
        first.stop()
    finally:
        first.close()
    for of_that_run in ("log", "pgsock", "redis"):
        shutil.rmtree(first.data / of_that_run)
    # What these servers lose when the machine fails is of no interest; killed processes lose nothing by it.
    with next(first.data.glob("postgres/*/postgresql.auto.conf")).open("a") as settings:
        settings.write("fsync = off\n")
    return first


def _clean_environment() -> dict[str, str]:
    """Ours without what would lead a server to other data, with the code on the import path."""
    parts.databases_account()
    prefixes = ("TRAINMASTER_", "DET_", "DATABASE_URL", "REDIS_URL")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(prefixes)}
    kept["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "queue")])
    for name in ("TRAINMASTER_DB_ACCOUNT", "TRAINMASTER_CHECK_ANSWERS"):
        if value := os.environ.get(name):
            kept[name] = value
    return kept


if __name__ == "__main__":
    _after_a_first_start()
