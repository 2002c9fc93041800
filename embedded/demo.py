"""The demo on a running server: two hosts, one distributed training, its log in the terminal.

The hosts are on this very machine: an sshd each, on loopback, with own keys and folders.
"""

from __future__ import annotations

import getpass
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncssh
from django.core.exceptions import ImproperlyConfigured

from embedded.installation import ROOT, Server
from embedded.supervise import CannotStart, ServerPart, Supervisor
from trainmaster.client import Client

EXAMPLE = ROOT / "examples" / "digits_ddp"
CONFIG = EXAMPLE / "digits.yaml"
USER = "admin"
HOSTS_LIMIT_SECONDS = 120.0
PAUSE_LIMIT_SECONDS = 60.0
ENDED = frozenset({"COMPLETED", "CANCELED", "ERROR"})
HOST_NAMES = ("demo-1", "demo-2")
SLOTS = 2
FIRST_ADDRESS = 11  # 127.0.0.11: an address each, so that their ports cannot collide
AUTHORIZED_KEYS = "authorized_keys"
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"


@dataclass
class Demo:
    """One play. `experiment` is the id of the demo's own training once it is there."""

    data: Path
    say: Callable[[str], None]
    experiment: int | None = None
    hosts: list[DemoHost] = field(default_factory=list)
    server: Server = field(init=False)

    def wake_hosts(self, supervisor: Supervisor) -> None:
        """Start what an earlier start has added, before the server looks: it would take them for silent."""
        self.hosts = kept_hosts(self.data)
        _start(supervisor, self.hosts)

    def play(self, server: Server) -> int:
        """Add the hosts, train, follow. Returns 0 when the training has completed."""
        self.server = server
        token = self._token()
        self.environment = {
            **self.server.environment,
            "TRAINMASTER_MASTER": self.server.url,
            "TRAINMASTER_TOKEN": token,
            "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}",
        }
        pin = self.server.certificate.sha256 if self.server.certificate else None
        if self.server.certificate:
            self.environment["TRAINMASTER_MASTER_CERT_FILE"] = str(self.server.certificate.certificate)
        self.client = Client(self.server.url, token=token, cert_sha256=pin, retry_limit_seconds=10)
        self._add_hosts()
        self._train()
        return self._follow()

    def pause(self) -> None:
        """Pause our own training, if it still runs, and wait until it has saved and let go of the hosts."""
        if self.experiment is None or self._state() in {"PAUSED", *ENDED}:
            return
        self.say(
            f"Pausing the demo's experiment {self.experiment}: it saves a checkpoint and stops, which "
            "takes a few seconds. `make demo` resumes it."
        )
        self.client.post(f"/api/v1/experiments/{self.experiment}/pause")
        try:
            self._wait(lambda: not self._held(), PAUSE_LIMIT_SECONDS, "the training to save and stop")
        except CannotStart as error:
            self.say(str(error))

    # --- hosts ----------------------------------------------------------------------------------------------

    def _add_hosts(self) -> None:
        known = {host["name"]: host for host in self.client.hosts()}
        if not self.hosts:
            self.hosts = make_hosts(self.data, self._local_ones(known))
            _start(self.server.supervisor, self.hosts)
        key = self.client.server_key()
        for host in self.hosts:
            if host.sshd is not None:
                host.authorize(key)
            if host.name not in known:
                self.client.add_host(_wanted(host))
        if self.hosts[0].sshd is None:
            self.say("No sshd on this machine: the hosts demo-1 and demo-2 are local and run without SSH.")
        else:
            places = " and ".join(f"{host.name} ({host.address} port {host.port})" for host in self.hosts)
            self.say(f"The hosts are {places}, each with its own sshd on this machine.")
        self._wait(self._hosts_ready, HOSTS_LIMIT_SECONDS, "the hosts to get ready")

    def _local_ones(self, known: dict[str, Any]) -> bool:
        """Whether the hosts are local ones: as at the first start, whatever has been installed since."""
        for name in HOST_NAMES:
            if name in known:
                return bool(known[name]["transport"] == "local")
        return sshd_program() is None

    def _hosts_ready(self) -> bool:
        ready = True
        for name in HOST_NAMES:
            host = self.client.host(name)
            if host["state"] in ("failed", "suspended", "lost"):
                raise CannotStart(f"The demo's host {name} is {host['state']}: {host['stateReason']}")
            ready = ready and host["state"] == "ready" and len(host["slots"]) > 0
        return ready

    def _held(self) -> bool:
        """Whether our hosts still work for us."""
        slots = [slot for name in HOST_NAMES for slot in self.client.host(name)["slots"]]
        return any(slot["heldBy"] for slot in slots)

    # --- training -------------------------------------------------------------------------------------------

    def _train(self) -> None:
        """Go on with the training that an earlier Ctrl-C has paused, or submit a new one."""
        note = self.data / "demo" / "experiment.json"
        if note.exists():
            self.experiment = json.loads(note.read_text())["id"]
            if self._state() == "PAUSED":
                self.say(f"Resuming experiment {self.experiment}, which was paused.")
                self.client.post(f"/api/v1/experiments/{self.experiment}/activate")
                return
            if self._state() not in ENDED:
                self.say(f"Experiment {self.experiment} kept running.")
                return
        self.experiment = self._submit()
        note.write_text(json.dumps({"id": self.experiment}))

    def _submit(self) -> int:
        self.say(f"$ trainmaster experiment create {CONFIG.relative_to(ROOT)} {EXAMPLE.relative_to(ROOT)}")
        output = self.data / "demo" / "create.out"
        with output.open("wb") as file:
            code = self._cli("experiment", "create", str(CONFIG), str(EXAMPLE), output=file.fileno())
        text = output.read_text()
        self.say(text.rstrip())
        found = re.search(r"[Ee]xperiment (\d+)", text)
        if code != 0 or found is None:
            raise CannotStart("The demo's experiment could not be submitted; see the lines above.")
        return int(found[1])

    def _follow(self) -> int:
        """Show the log until the training has ended; 0 when it has completed."""
        assert self.experiment is not None
        self.say(f"Page of this experiment: {self.server.url}/experiments/{self.experiment}")
        self._cli("experiment", "logs", "--follow", str(self.experiment))
        self.server.supervisor.serve(
            lambda: self._state() in ENDED
        )  # the log's end is not yet the experiment's
        self.say(f"Experiment {self.experiment} is {self._state()}.")
        return 0 if self._state() == "COMPLETED" else 1

    def _state(self) -> str:
        if self.experiment is None:
            return ""
        state = self.client.experiment(self.experiment)["experiment"]["state"]
        return str(state).removeprefix("STATE_")

    # --- means ----------------------------------------------------------------------------------------------

    def _cli(self, *arguments: str, output: int | None = None) -> int:
        command = [sys.executable, "-m", "trainmaster.cli.main", *arguments]
        return self.server.supervisor.run(command, self.environment, ROOT, output)

    def _token(self) -> str:
        command = [sys.executable, str(ROOT / "manage.py"), "login_token", USER]
        done = subprocess.run(
            command, env=self.server.environment, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise CannotStart(f"The demo cannot log in as {USER}: {done.stderr.strip()}")
        return done.stdout.strip()

    def _wait(self, condition: Callable[[], bool], limit_seconds: float, what: str) -> None:
        self.server.supervisor.serve(condition, limit_seconds)
        if not condition():
            raise CannotStart(f"Timed out after {limit_seconds:.0f} s waiting for {what}.")


def _start(supervisor: Supervisor, hosts: list[DemoHost]) -> None:
    """All at once, then wait for each."""
    own = [(host, host.sshd) for host in hosts if host.sshd is not None]
    for _, sshd in own:
        supervisor.start(sshd)
    for host, sshd in own:
        supervisor.wait_ready(sshd.name, host.answers, 20)


def _wanted(host: DemoHost) -> dict[str, Any]:
    """The request that adds the host."""
    wanted = {
        "name": host.name,
        "python": sys.executable,
        "workdir": str(host.workdir),
        "slots": SLOTS,
        "allowLoginAccount": True,  # it is this machine, and the login of whoever plays
    }
    if host.sshd is None:
        return {**wanted, "transport": "local"}
    where = {"address": host.address, "port": host.port, "user": host.login, "hostKey": host.host_key}
    return {**wanted, **where, "transport": "ssh"}


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


def kept_hosts(data: Path) -> list[DemoHost]:
    """Both hosts with their sshd as an earlier start made them, which the server will look for; none otherwise."""
    if sshd_program() is None or not all((home / "port").exists() for home in _homes(data)):
        return []
    return make_hosts(data, local=False)


def make_hosts(data: Path, local: bool) -> list[DemoHost]:
    """Both hosts, the same at every start: keys and ports are kept in the data folder."""
    program = None if local else sshd_program()
    if not local and program is None:
        raise ImproperlyConfigured(
            "The demo's hosts were added with their own sshd, but sshd is no longer installed. "
            "Install openssh-server again."
        )
    return [_make(home, number, program) for number, home in enumerate(_homes(data))]


def _homes(data: Path) -> list[Path]:
    return [data / "demo" / name for name in HOST_NAMES]


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
