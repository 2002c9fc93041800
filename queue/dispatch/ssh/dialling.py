"""The chain of sshds from the server to a host, each with its pinned key, and one dial.

A dial is TCP, the host's key against the pinned one, the login. What goes wrong becomes a sentence.
"""

from __future__ import annotations

import asyncio
import errno
import getpass
import socket
from dataclasses import dataclass

import asyncssh
from django.conf import settings

from dispatch.ssh.contact_errors import (
    HostKeyChanged,
    HostKeyUnknown,
    LoginRefused,
    NotAsked,
    RemoteError,
    SshBusy,
    Unreachable,
)
from dispatch.ssh.server_key import fingerprint, openssh_line, private_key, public_key
from hosts.models import Host

#: Keepalives that may stay unanswered; the link is given up at the next one: (2 + 1) * SSH_KEEPALIVE_SECONDS.
_UNANSWERED_KEEPALIVES = 2

#: What this machine lacks, not the host: files, memory, a network.
_OWN_FAULTS = {
    errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.ENETUNREACH, errno.ENETDOWN, errno.EADDRNOTAVAIL,
}  # fmt: skip

_HOST_KEY_ALGORITHMS = [
    "ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521", "rsa-sha2-512", "rsa-sha2-256",
]  # fmt: skip


class _Client(asyncssh.SSHClient):
    """Compares the host's key with the pinned one before anything of ours is sent."""

    def __init__(self, pinned: str) -> None:
        self._pinned = pinned
        self.offered = ""
        self.spoke = False  # the other side has said its SSH version
        self._connection: asyncssh.SSHClientConnection | None = None

    def connection_made(self, conn: asyncssh.SSHClientConnection) -> None:
        self._connection = conn

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        self.offered = openssh_line(key)
        return bool(self._pinned) and self.offered == " ".join(self._pinned.split()[:2])

    def connection_lost(self, exc: Exception | None) -> None:
        self._note_version()
        self._connection = None

    def _note_version(self) -> None:
        if self._connection and self._connection.get_extra_info("server_version"):
            self.spoke = True


def _algorithms(pinned: str) -> list[str]:
    """The pinned key's own kind first, so that a host with several keys shows that one."""
    kind = pinned.split()[0] if pinned else ""
    first = [
        name
        for name in _HOST_KEY_ALGORITHMS
        if name == kind or (kind == "ssh-rsa" and name.startswith("rsa-"))
    ]
    return first + [name for name in _HOST_KEY_ALGORITHMS if name not in first]


async def dial(
    endpoint: Endpoint, tunnel: asyncssh.SSHClientConnection | None
) -> asyncssh.SSHClientConnection:
    """Connect and log in, through the open connection `tunnel` to the jump host if given. Raises RemoteError."""
    hop = endpoint.target
    client = _Client(hop.host_key)
    seconds = settings.SSH_CONNECT_TIMEOUT_SECONDS
    try:
        async with asyncio.timeout(seconds):
            return await _connect(hop, client, tunnel)
    except (asyncssh.Error, OSError, TimeoutError) as error:
        raise _explain(endpoint, client, error) from error


async def _connect(
    hop: Hop, client: _Client, tunnel: asyncssh.SSHClientConnection | None
) -> asyncssh.SSHClientConnection:
    return await asyncssh.connect(
        hop.address,
        hop.port,
        tunnel=tunnel or (),
        config=None,  # the user's ssh config was resolved where the CLI ran; the server's own must not interfere
        username=hop.user,
        client_factory=lambda: client,
        client_keys=[private_key()],
        agent_path=None,
        preferred_auth=["publickey"],
        known_hosts=([], [], []),  # nothing is trusted by itself: _Client decides
        server_host_key_algs=_algorithms(hop.host_key),
        compression_algs=None,
        keepalive_interval=settings.SSH_KEEPALIVE_SECONDS,
        keepalive_count_max=_UNANSWERED_KEEPALIVES,
        connect_timeout=settings.SSH_CONNECT_TIMEOUT_SECONDS,
        login_timeout=settings.SSH_CONNECT_TIMEOUT_SECONDS,
    )


def _explain(endpoint: Endpoint, client: _Client, error: Exception) -> RemoteError:
    """The typed error, with a sentence, for what went wrong with a dial."""
    client._note_version()
    if isinstance(error, asyncssh.HostKeyNotVerifiable) and client.offered:
        return _key_refused(endpoint, client.offered)
    hop = endpoint.target
    if isinstance(error, asyncssh.PermissionDenied):
        return LoginRefused(
            f"{hop} refused the server's key. Add this line to ~{hop.user}/.ssh/authorized_keys there: {public_key()}"
        )
    if (
        isinstance(error, asyncssh.ConnectionLost | ConnectionResetError | BrokenPipeError)
        and not client.spoke
    ):
        return SshBusy(
            f"{hop} accepted the connection and closed it without answering: its sshd has reached MaxStartups, "
            "or something other than sshd listens on this port."
        )
    kind = NotAsked if _is_own_fault(error) else Unreachable
    return kind(_why_unreachable(endpoint, client, error))


def _is_own_fault(error: Exception) -> bool:
    """Whether the dial did not leave this machine. A name server that is silent is not the host's fault either."""
    if isinstance(error, socket.gaierror):
        return error.errno in {socket.EAI_AGAIN, socket.EAI_SYSTEM, socket.EAI_MEMORY}
    return isinstance(error, OSError) and error.errno in _OWN_FAULTS


def _key_refused(endpoint: Endpoint, offered: str) -> RemoteError:
    hop, number = endpoint.target, len(endpoint.hops) - 1
    if not hop.host_key:
        return HostKeyUnknown(
            f"{hop} offers the key {fingerprint(offered)}, which nobody has accepted yet.",
            offered=offered,
            hop=number,
        )
    return HostKeyChanged(
        f"{hop} offers the key {fingerprint(offered)}, but {fingerprint(hop.host_key)} is pinned: it was reinstalled, "
        "or it is another machine. Nothing is sent to it until an admin accepts the new key.",
        offered=offered,
        hop=number,
    )


def _why_unreachable(endpoint: Endpoint, client: _Client, error: Exception) -> str:
    hop = endpoint.target
    jump = endpoint.jump
    if isinstance(error, asyncssh.ChannelOpenError) and jump:
        return f"The jump host {jump.target} cannot reach {hop.address} port {hop.port}: {error.reason}."
    if isinstance(error, socket.gaierror):
        return (
            f"The name {hop.address!r} is unknown ({error.strerror}). Check its spelling, or give an address."
        )
    if isinstance(error, ConnectionRefusedError):
        return f"{hop.address} refuses connections on port {hop.port}: no sshd is listening there. Check the port."
    if isinstance(error, TimeoutError):
        seconds = f"{settings.SSH_CONNECT_TIMEOUT_SECONDS:g} s"
        if client.spoke:
            return f"Logging in to {hop} took longer than {seconds}."
        where = f"{hop.address} port {hop.port}"
        return f"No sshd answered at {where} within {seconds}: the host is down, disconnected or behind a firewall."
    if isinstance(error, asyncssh.KeyExchangeFailed | asyncssh.ProtocolError | asyncssh.ProtocolNotSupported):
        return f"{hop.address} port {hop.port} does not speak a version of SSH that the server supports: {error}."
    if isinstance(error, OSError):
        return f"{hop.address} port {hop.port} cannot be reached: {error.strerror or error}."
    return f"{hop} closed the connection: {error}."


@dataclass(frozen=True)
class Hop:
    """One sshd. `host_key` is the pinned public key in OpenSSH's form; empty: not accepted yet."""

    address: str
    port: int
    user: str
    host_key: str

    def __str__(self) -> str:
        return f"{self.user}@{self.address}:{self.port}"


@dataclass(frozen=True)
class Endpoint:
    """The hops to one host, nearest to the server first; the last is the host itself."""

    hops: tuple[Hop, ...]

    @property
    def target(self) -> Hop:
        return self.hops[-1]

    @property
    def jump(self) -> Endpoint | None:
        """The way to the last jump host, or None where the host is dialled directly."""
        return Endpoint(self.hops[:-1]) if len(self.hops) > 1 else None

    def __str__(self) -> str:
        return " via ".join(str(hop) for hop in reversed(self.hops))


def endpoint_of(host: Host) -> Endpoint:
    """The chain of sshds of this host's row."""
    account = getpass.getuser()
    jumps = tuple(
        Hop(str(j["address"]), int(j.get("port") or 22), j.get("user") or account, j.get("host_key") or "")
        for j in host.jumps
    )
    own = Hop(host.address or host.name, host.port, host.login_user or account, host.host_key)
    return Endpoint((*jumps, own))
