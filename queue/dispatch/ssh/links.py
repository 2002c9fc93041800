"""One open SSH connection, and the ports that it forwards. `dispatch.ssh.connections` opens, shares and closes them."""

from __future__ import annotations

import time

import asyncssh
from django.conf import settings

from dispatch.ssh.ssh_session import SessionLimit
from dispatch.ssh.verb_channel import Channels, over_ssh


class Link:
    """One open connection and how many sessions may run on it."""

    def __init__(self, connection: asyncssh.SSHClientConnection) -> None:
        self.connection = connection
        self.sessions = SessionLimit(settings.SSH_SESSIONS_PER_HOST)
        self.used_at = time.monotonic()
        self.forwards = 0
        self.channels = Channels(lambda command: over_ssh(connection, command))

    @property
    def alive(self) -> bool:
        return not self.connection.is_closed()


class Forward:
    """A port of a host that leads back to the server, for as long as its link lives."""

    def __init__(self, link: Link, listener: asyncssh.SSHListener) -> None:
        self._link = link
        self._listener = listener

    @property
    def remote_port(self) -> int:
        return self._listener.get_port()

    @property
    def alive(self) -> bool:
        return self._link.alive

    async def close(self) -> None:
        self._link.forwards -= 1
        self._listener.close()
        await self._listener.wait_closed()
