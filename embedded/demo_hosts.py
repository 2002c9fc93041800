"""Two hosts for the demo on this very machine: an sshd each, on loopback, with own keys and folders."""

import getpass
import os
import shutil
import signal
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

import asyncssh
from django.core.exceptions import ImproperlyConfigured

from embedded.supervise import ServerPart

NAMES = ("demo-1", "demo-2")
SLOTS = 2
FIRST_ADDRESS = 11  # 127.0.0.11: an address each, so that their ports cannot collide
AUTHORIZED_KEYS = "authorized_keys"
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"


@dataclass(frozen=True)
class DemoHost:
    """One host. `sshd` is None for a local one, which needs no login."""

    name: str
    address: str
    port: int
    workdir: Path
    login: str
    host_key: str
    sshd: ServerPart | None

    def authorize(self, key: str) -> None:
        """Let the holder of this public key in, and nobody else."""
        (self.workdir.parent / AUTHORIZED_KEYS).write_text(key.strip() + "\n")

    def answers(self) -> bool:
        if self.sshd is None:
            return True
        try:
            with socket.create_connection((self.address, self.port), timeout=1) as connection:
                return connection.recv(4) == b"SSH-"
        except OSError:
            return False


def sshd_program() -> str | None:
    """An sshd may be run by absolute path only."""
    return shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


def kept(data: Path) -> list[DemoHost]:
    """Both hosts with their sshd as an earlier start made them, which the server will look for; none otherwise."""
    if sshd_program() is None or not all((home / "port").exists() for home in _homes(data)):
        return []
    return make(data, local=False)


def make(data: Path, local: bool) -> list[DemoHost]:
    """Both hosts, the same at every start: keys and ports are kept in the data folder."""
    program = None if local else sshd_program()
    if not local and program is None:
        raise ImproperlyConfigured(
            "The demo's hosts were added with their own sshd, but sshd is no longer installed. "
            "Install openssh-server again."
        )
    return [_make(home, number, program) for number, home in enumerate(_homes(data))]


def _homes(data: Path) -> list[Path]:
    return [data / "demo" / name for name in NAMES]


def _make(home: Path, number: int, program: str | None) -> DemoHost:
    name, workdir = home.name, home / "work"
    workdir.mkdir(parents=True, exist_ok=True)
    if program is None:
        return DemoHost(name, "", 0, workdir, "", "", None)
    login, address = getpass.getuser(), f"127.0.0.{FIRST_ADDRESS + number}"
    port, host_key = _port(home, address), _host_key(home)
    lines = [
        f"Port {port}",
        f"ListenAddress {address}",
        f"HostKey {home / 'host_key'}",
        f"AuthorizedKeysFile {home / AUTHORIZED_KEYS}",
        f"AllowUsers {login}",
        f"SetEnv PATH={Path(sys.executable).parent}:{SYSTEM_PATH}",
        "PidFile none",
        "UsePAM no",
        "StrictModes no",  # the data folder may lie below a folder that a group may write
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
        "PermitRootLogin prohibit-password",
        "UseDNS no",
    ]
    (home / "sshd_config").write_text("\n".join([*lines, ""]))
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # as its service would
    sshd = ServerPart(
        name, [program, "-D", "-e", "-f", str(home / "sshd_config")], on_parent_death=signal.SIGTERM
    )
    return DemoHost(name, address, port, workdir, login, host_key, sshd)


def _host_key(home: Path) -> str:
    """The public half, as a known_hosts line has it; the key is made at the first call."""
    path = home / "host_key"
    if not path.exists():
        key = asyncssh.generate_private_key("ssh-ed25519")
        scratch = home / "host_key.new"
        scratch.touch(mode=0o600)
        scratch.write_bytes(key.export_private_key())
        scratch.rename(path)
    return " ".join(asyncssh.read_private_key(path).export_public_key().decode().split()[:2])


def _port(home: Path, address: str) -> int:
    """The port of the first start, since the server has stored it; any free one at that first start."""
    path = home / "port"
    wanted = int(path.read_text()) if path.exists() else 0
    with socket.socket() as attempt:
        attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            attempt.bind((address, wanted))
        except OSError as error:
            raise ImproperlyConfigured(
                f"The demo's host {home.name} uses port {wanted} on {address}, which is already in use. "
                f"Stop that process, or remove {home} and run `trainmaster host remove {home.name}`."
            ) from error
        path.write_text(str(attempt.getsockname()[1]))
        return int(attempt.getsockname()[1])
