"""Real sshd processes on loopback ports, each with its own host key, configuration and log."""

import os
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from dispatch.ssh import server_key
from dispatch.ssh.dialling import Endpoint, Hop
from tests.rig import pace
from tests.rig.ports import free_port

WAIT_SECONDS = 60.0
SSHD = shutil.which("sshd") or "/usr/sbin/sshd"


def wait_until(true: Callable[[], bool], seconds: float = WAIT_SECONDS, what: str = "the condition") -> None:
    """Look often until `true()` holds; fail after `seconds` of a fast machine."""
    limit = time.monotonic() + seconds * pace.factor()
    while not true():
        assert time.monotonic() < limit, f"{what} did not come true within {seconds} s"
        time.sleep(0.02)


def _sshds_below(pid: int) -> Iterator[int]:
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):  # it may end at any moment
            for child in map(int, children.read_text().split()):
                if Path(f"/proc/{child}/comm").read_text().startswith("sshd"):
                    yield child
                    yield from _sshds_below(child)


@dataclass
class Sshd:
    """One sshd of ours. `options` are lines of sshd_config."""

    folder: Path
    port: int
    options: list[str] = field(default_factory=list)
    #: words that start it in another place, and whose account the server logs in with there; empty: this one
    before: tuple[str, ...] = ()
    login: str = ""
    process: subprocess.Popen[bytes] | None = None

    @property
    def host_key(self) -> str:
        return " ".join((self.folder / "host_key.pub").read_text().split()[:2])

    @property
    def user(self) -> str:
        return self.login or pwd.getpwuid(os.geteuid()).pw_name

    def new_host_key(self) -> None:
        for path in (self.folder / "host_key", self.folder / "host_key.pub"):
            path.unlink(missing_ok=True)
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / "host_key")]
        subprocess.run(command, check=True)

    def authorize(self, *lines: str) -> None:
        (self.folder / "authorized_keys").write_text("".join(f"{line}\n" for line in lines))

    def start(self) -> None:
        config = [
            f"Port {self.port}",
            "ListenAddress 127.0.0.1",
            f"HostKey {self.folder}/host_key",
            f"AuthorizedKeysFile {self.folder}/authorized_keys",
            f"PidFile {self.folder}/pid",
            "UsePAM no",
            "StrictModes no",
            "PasswordAuthentication no",
            "SetEnv SHLVL=1",  # bash then skips the account's start-up files, which would cost more than SSH itself
            *self.options,
        ]
        (self.folder / "config").write_text("\n".join(config) + "\n")
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        command = [
            *self.before,
            SSHD,
            "-D",
            "-f",
            str(self.folder / "config"),
            "-E",
            str(self.folder / "log"),
        ]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        wait_until(self._listens, what="an sshd that listens")

    def _listens(self) -> bool:
        log = self.folder / "log"
        return log.exists() and f"port {self.port}." in log.read_text()

    def sessions(self) -> list[int]:
        """Processes that serve the connections, the privileged part and the user's."""
        assert self.process
        return list(_sshds_below(self.process.pid))

    def stop(self) -> None:
        """End sshd and the connections that it serves, not what runs behind them."""
        if self.process is None:
            return
        for pid in self.sessions():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait()
        self.process = None
        (self.folder / "log").unlink(missing_ok=True)

    def hop(self) -> Hop:
        return Hop("127.0.0.1", self.port, self.user, self.host_key)

    def endpoint(self) -> Endpoint:
        return Endpoint((self.hop(),))


@contextmanager
def running_sshd(
    folder: Path, *options: str, before: tuple[str, ...] = (), login: str = ""
) -> Iterator[Sshd]:
    """An sshd that accepts the server's key."""
    folder.mkdir(parents=True, exist_ok=True)
    daemon = Sshd(folder, free_port(), list(options), before, login)
    daemon.new_host_key()
    daemon.authorize(server_key.public_key())
    daemon.start()
    try:
        yield daemon
    finally:
        daemon.stop()
