"""Test hosts with their own sshd: network namespaces where this machine allows them, else loopback ports."""

import contextlib
import os
import pwd
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from embedded import processes
from embedded.ports import LOOPBACK
from tests.rig import network, pace, parts
from tests.rig.ports import free_port

ROOT = Path(__file__).resolve().parent.parent.parent
ALICE, BOB = "alice", "bob"  # two people whose jobs must not see each other
CARRIER = "carrier"  # an ordinary account that a server logs in with
UIDS = {ALICE: 20111, BOB: 20112, CARRIER: 20113}
START_LIMIT_SECONDS = 60.0
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def sshd_program() -> str | None:
    return shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


@dataclass
class Host:
    """One host. `namespace` and `link` are None for an sshd on a loopback port of ours."""

    name: str
    address: str
    port: int
    folder: Path
    logins: tuple[str, ...]
    client_key: Path
    namespace: str | None = None
    link: str | None = None
    sshd: "subprocess.Popen[bytes] | None" = field(default=None, repr=False)

    @property
    def isolated(self) -> bool:
        """Whether it has its own address, mounts and accounts, so that links can be cut."""
        return self.namespace is not None

    @property
    def host_key(self) -> str:
        """The public key, as in known_hosts: type and base64."""
        return " ".join((self.folder / "host_key.pub").read_text().split()[:2])

    @property
    def workdir(self) -> Path:
        """/var/lib/trainmaster of the host, as this side sees it (isolated hosts only)."""
        return self.folder / "var-lib" / "trainmaster"

    def authorize(self, public_key: str, login: str | None = None) -> None:
        """Let the holder of the key in as the login (default: the first)."""
        with (self.folder / "keys" / (login or self.logins[0])).open("a") as file:
            file.write(public_key.strip() + "\n")

    def start_sshd(self) -> None:
        if self.sshd is not None and self.sshd.poll() is None:
            return
        log = self.folder / "sshd.log"
        self.sshd = processes.spawn(self._sshd_command(), log)
        if not pace.wait_until(lambda: self._greets() or not self._sshd_lives(), START_LIMIT_SECONDS):
            raise RuntimeError(f"sshd of {self.name} does not answer: {log.read_text()[-1000:]}")
        if not self._sshd_lives():
            raise RuntimeError(f"sshd of {self.name} did not start: {log.read_text()[-1000:]}")

    def stop_sshd(self, *, sessions: bool = True) -> None:
        """Kill the listener and, unless told otherwise, every open session; their work goes on."""
        open_sessions = self.sessions() if sessions else []
        if self.sshd is not None:
            parts.end(self.sshd, signal.SIGKILL)
            self.sshd = None
        for pid in open_sessions:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def sessions(self) -> list[int]:
        """The pids of the sshd processes that serve open connections."""
        if self.sshd is None:
            return []
        return [pid for pid in descendants(self.sshd.pid) if _program(pid).startswith("sshd")]

    def cut(self) -> None:
        """Pull the cable; packets are lost without a word to either side."""
        network.ip("link", "set", self._link(), "down")

    def restore(self) -> None:
        network.ip("link", "set", self._link(), "up")

    def keep_from_peers(self, apart: bool) -> None:
        """Let it reach this machine, but no other host that is kept apart too; or everybody again."""
        network.ip(
            "link", "set", "dev", self._link(), "type", "bridge_slave", "isolated", "on" if apart else "off"
        )

    def reboot(self) -> None:
        """All processes gone at once, a new boot id, sshd back."""
        assert self.namespace is not None, "only an isolated host can be rebooted"
        network.kill_all(self.namespace)
        self.sshd = None
        _write_boot_id(self.folder)
        self.start_sshd()

    def run(self, command: str, login: str | None = None) -> "subprocess.CompletedProcess[str]":
        """Run a shell command over ssh, as a user would from this machine."""
        return subprocess.run([*self.ssh(login), command], capture_output=True, text=True, check=False)

    def ssh(self, login: str | None = None) -> list[str]:
        options = [
            "-F",
            str(self.folder.parent / "ssh_config"),
            "-o",
            "BatchMode=yes",
            "-o",
            "ConnectTimeout=5",
        ]
        return ["ssh", *options, "-l", login or self.logins[0], self.name]

    def reset(self) -> None:
        """As new: link up, sshd up, no other process, an empty workdir and the first keys alone."""
        if self.namespace is not None:
            self.restore()
            self.keep_from_peers(False)
            network.kill_all(self.namespace)
            self.sshd = None
            shutil.rmtree(self.folder / "var-lib")
            _make_open(self.folder / "var-lib")
            _make_homes(self.folder)
        _write_keys(self.folder, self.logins, self.client_key)
        self.start_sshd()

    def close(self) -> None:
        if self.namespace is not None:
            network.kill_all(self.namespace)
        self.stop_sshd()

    def _link(self) -> str:
        assert self.link is not None, f"{self.name} has no link of its own that could be cut"
        return self.link

    def _sshd_lives(self) -> bool:
        return self.sshd is not None and self.sshd.poll() is None

    def _greets(self) -> bool:
        try:
            with socket.create_connection((self.address, self.port), timeout=1) as connection:
                return connection.recv(4) == b"SSH-"
        except OSError:
            return False

    def _sshd_command(self) -> list[str]:
        program = sshd_program()
        assert program is not None
        serve = [program, "-D", "-e", "-f", str(self.folder / "sshd_config")]
        if self.namespace is None:
            return serve
        mounts = _mount_script(self.folder, self.name)
        unshared = ["unshare", "--mount", "--uts", "--propagation", "private", "sh", "-euc", mounts]
        return ["ip", "netns", "exec", self.namespace, *unshared, "sh", *serve]


def _mount_script(folder: Path, name: str) -> str:
    """Give a host its own accounts, homes, /var/lib, /run, host name and boot id. `"$@"` is sshd."""
    lines = [f"hostname {name}"]
    for path in _behind_root():
        inside = folder / "root" / path.relative_to("/root")
        lines.append(f"mkdir -p {inside} && mount --bind {shlex.quote(str(path))} {inside}")
    binds = {"passwd": "/etc/passwd", "group": "/etc/group", "shadow": "/etc/shadow", "hosts": "/etc/hosts"}
    binds |= {"home": "/home", "var-lib": "/var/lib", "boot_id": "/proc/sys/kernel/random/boot_id"}
    lines += [f"mount --bind {folder / source} {target}" for source, target in binds.items()]
    lines.append(f"mount --rbind {folder / 'root'} /root")
    lines.append("mount -t tmpfs -o mode=755 tmpfs /run && mkdir /run/sshd")
    lines.append('exec "$@"')
    return "\n".join(lines)


@contextlib.contextmanager
def own_accounts(folder: Path, shells: Mapping[str, Path], rule: str) -> Iterator[tuple[str, ...]]:
    """Words before a command that is to see the accounts of hosts, on this machine, and a rule of sudo.

    `shells`: login shells that are not bash, by account.
    """
    _write_accounts(folder)
    rows = [line.split(":") for line in (folder / "passwd").read_text().splitlines()]
    lines = [":".join([*row[:-1], str(shells.get(row[0], row[-1]))]) for row in rows]
    (folder / "passwd").write_text("\n".join([*lines, ""]))
    _write_boot_id(folder)
    _make_homes(folder)
    for name in ("var-lib", "sudoers"):
        _make_open(folder / name)
    (folder / "sudoers" / "rule").write_text(rule)
    (folder / "sudoers" / "rule").chmod(0o440)
    shutil.copy("/etc/hosts", folder / "hosts")
    mounts = f"mount --bind {folder}/sudoers /etc/sudoers.d\n{_mount_script(folder, os.uname().nodename)}"
    words = [
        "unshare",
        "--mount",
        "--propagation",
        "private",
        "sh",
        "-euc",
        mounts,
        "sh",
        "sleep",
        "infinity",
    ]
    holder = subprocess.Popen(words)
    try:
        assert pace.wait_until(lambda: _program(holder.pid) == "sleep" or holder.poll() is not None, 30)
        assert holder.poll() is None, "the namespace could not be made"
        yield ("nsenter", f"--mount=/proc/{holder.pid}/ns/mnt")
    finally:
        holder.kill()
        holder.wait()


def _behind_root() -> list[Path]:
    """What the hosts' Python needs of our /root, which a host hides."""
    needed = {Path(sys.prefix), Path(sys.base_prefix), ROOT}
    return sorted({path for path in needed if path.is_relative_to("/root")})


def descendants(pid: int) -> Iterator[int]:
    """The pids of what a process has started, and of what that has."""
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for child in map(int, children.read_text().split()):
                yield child
                yield from descendants(child)


def _program(pid: int) -> str:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def _make_open(path: Path) -> None:
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o755)


def _make_homes(folder: Path) -> None:
    for name in ("home", "root"):
        shutil.rmtree(folder / name, ignore_errors=True)
        _make_open(folder / name)
    for login, uid in UIDS.items():
        home = folder / "home" / login
        home.mkdir(mode=0o700)
        os.chown(home, uid, uid)


def _write_boot_id(folder: Path) -> None:
    (folder / "boot_id").write_text(f"{uuid.uuid4()}\n")  # in place: it may be mounted


def _write_accounts(folder: Path) -> None:
    extra = [f"{login}:x:{uid}:{uid}::/home/{login}:/bin/bash" for login, uid in UIDS.items()]
    _write_after("/etc/passwd", folder / "passwd", extra)
    _write_after("/etc/group", folder / "group", [f"{login}:x:{uid}:" for login, uid in UIDS.items()])
    _write_after("/etc/shadow", folder / "shadow", [f"{login}:*:19000:0:99999:7:::" for login in UIDS])
    (folder / "shadow").chmod(0o600)


def _write_after(source: str, target: Path, extra: list[str]) -> None:
    target.write_text("\n".join([Path(source).read_text().rstrip("\n"), *extra, ""]))


def _write_keys(folder: Path, logins: tuple[str, ...], client_key: Path) -> None:
    keys = folder / "keys"
    keys.mkdir(exist_ok=True)
    for login in logins:
        (keys / login).write_text(client_key.with_suffix(".pub").read_text())


def make_key(path: Path) -> Path:
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", path.name, "-f", str(path)], check=True
    )
    return path


def _write_sshd_config(host: Host) -> None:
    lines = [
        f"Port {host.port}",
        f"ListenAddress {host.address}",
        f"HostKey {host.folder / 'host_key'}",
        f"PidFile {host.folder / 'sshd.pid'}",
        f"AuthorizedKeysFile {host.folder}/keys/%u .ssh/authorized_keys",
        f"SetEnv PATH={Path(sys.executable).parent}:{SYSTEM_PATH}",
        "UsePAM no",
        "StrictModes no",
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
        "PermitRootLogin prohibit-password",
        "UseDNS no",
        "PrintMotd no",
        "Subsystem sftp internal-sftp",
    ]
    (host.folder / "sshd_config").write_text("\n".join([*lines, ""]))


class HostRig:
    """Makes hosts gpu1, gpu2, … on demand and takes them all away again."""

    def __init__(self, fallback_folder: Path) -> None:
        self.network: network.Network | None
        try:
            self.network = network.make()
            self.folder = self.network.folder
            self.refusal = ""
        except network.NotAllowed as error:
            self.network, self.folder, self.refusal = None, fallback_folder, str(error)
        self.client_key = make_key(self.folder / "client_key")
        self.hosts: list[Host] = []

    @property
    def server_address(self) -> str:
        """Where the hosts see this machine."""
        return self.network.address if self.network else LOOPBACK

    def take(self, count: int) -> list[Host]:
        """The first `count` hosts, as new."""
        while len(self.hosts) < count:
            self.hosts.append(self._make(len(self.hosts) + 1))
        self._write_client_files()
        for host in self.hosts[:count]:
            host.reset()
        return self.hosts[:count]

    def _make(self, number: int) -> Host:
        name = f"gpu{number}"
        folder = self.folder / name
        folder.mkdir(mode=0o711)
        make_key(folder / "host_key")
        if self.network is not None:
            namespace, address, link = self.network.add(number)
            host = Host(name, address, 22, folder, ("root", *UIDS), self.client_key, namespace, link)
            _write_accounts(folder)
            _write_boot_id(folder)
            _make_open(folder / "var-lib")
            _make_homes(folder)
        else:
            if os.geteuid() == 0:
                Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # as sshd's own service would
            me = pwd.getpwuid(os.geteuid()).pw_name
            host = Host(name, LOOPBACK, free_port(), folder, (me,), self.client_key)
        _write_sshd_config(host)
        return host

    def _write_client_files(self) -> None:
        """ssh_config and known_hosts for the tests' own ssh, and the names in every host's /etc/hosts."""
        entries, keys, names = [], [], ["127.0.0.1 localhost"]
        for host in self.hosts:
            entries += [
                f"Host {host.name}",
                f"  HostName {host.address}",
                f"  Port {host.port}",
                f"  User {host.logins[0]}",
            ]
            keys.append(
                f"[{host.address}]:{host.port} {host.host_key}"
                if host.port != 22
                else f"{host.address} {host.host_key}"
            )
            names.append(f"{host.address} {host.name}")
        common = [
            f"IdentityFile {self.client_key}",
            "IdentitiesOnly yes",
            f"UserKnownHostsFile {self.folder}/known_hosts",
        ]
        config = [*entries, "Host *", *(f"  {line}" for line in [*common, "StrictHostKeyChecking yes"]), ""]
        (self.folder / "ssh_config").write_text("\n".join(config))
        (self.folder / "known_hosts").write_text("\n".join([*keys, ""]))
        for host in self.hosts:
            (host.folder / "hosts").write_text("\n".join([*names, ""]))

    def close(self) -> None:
        for host in self.hosts:
            host.close()
        if self.network is not None:
            self.network.close()


def processes_with_marker(run_key: str) -> list[int]:
    """The pids, as this machine counts them, of every process of a run on any test host."""
    marker = f"TRAINMASTER_RUN={run_key}".encode()
    found = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            pid = int(environ.parent.name)
            if marker in environ.read_bytes().split(b"\0") and processes.identify(pid) is not None:
                found.append(pid)
    return sorted(found)
