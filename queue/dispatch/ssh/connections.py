"""Open SSH connections: one asyncio thread per process keeps them, everybody else asks from outside.

One connection per endpoint, shared by all callers. Dials are bounded per sshd and per jump host, sessions per
connection; only "SSH limit" refusals are retried here, with jitter. A broken or half-open link (two keepalives
unanswered) drops its own connection alone; whoever waited on it gets `Unreachable`.
"""

from __future__ import annotations

import asyncio
import random
import socket
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

import asyncssh
from django.conf import settings

from dispatch.ssh import local, relay
from dispatch.ssh.contact_errors import ForwardRefused, NotAsked, SshBusy, Unreachable, WayRefused
from dispatch.ssh.dialling import Endpoint, dial
from dispatch.ssh.relay import Relay
from dispatch.ssh.ssh_session import (
    LOOPBACK,
    CommandAnswer,
    Ends,
    Forward,
    Link,
    carry,
    execute,
    no_session,
    pair,
    refusal,
)
from dispatch.ssh.threads import PerProcess
from dispatch.ssh.verb_channel import Channels, on_this_machine

_Result = TypeVar("_Result")

#: A caller's own limit is kept inside the thread; this much later the thread itself must be stuck.
THREAD_SLACK_SECONDS = 5.0
_REAP_EVERY_SECONDS = 30.0
#: What sshd takes before it tells us how much of it was read (its window).
_IN_FLIGHT_BYTES = 2 * 1024 * 1024
#: tcpmux, which nobody has
_SILENT_PORT = 1


def sending_seconds(size: int) -> float:
    """How long so many bytes take over the slowest link that is waited for (SSH_LEAST_BYTES_PER_SECOND)."""
    return size / float(settings.SSH_LEAST_BYTES_PER_SECOND)


@dataclass
class _Order:
    """A command on its way; `begun` once the host may have started it."""

    command: str
    stdin: bytes
    #: called whenever the host has taken more of `stdin`
    moved: Callable[[], None]
    begun: bool = False


class Pool:
    """The connections of one process. Every method runs in the asyncio thread."""

    def __init__(self) -> None:
        self._links: dict[Endpoint, Link] = {}
        self._dialling: dict[Endpoint, asyncio.Task[Link]] = {}
        self._dial_limits: dict[tuple[str, int], asyncio.Semaphore] = {}
        self._carrying: set[asyncio.Task[None]] = set()
        self._local = Channels(lambda command: on_this_machine(command, local.environment()))

    async def run(
        self, endpoint: Endpoint, command: str, stdin: bytes, timeout_seconds: float
    ) -> CommandAnswer:
        """Run a shell command; a pooled link that turns out dead before the command began is redialled once.

        The time limit starts over whenever the host takes more of `stdin`: what moves is not cut.
        """
        patience = timeout_seconds + sending_seconds(min(len(stdin), _IN_FLIGHT_BYTES))
        limit = asyncio.timeout(patience)
        loop = asyncio.get_running_loop()
        order = _Order(command, stdin, moved=lambda: limit.reschedule(loop.time() + patience))
        try:
            async with limit:
                pooled = endpoint in self._links
                try:
                    return await self._run_once(endpoint, order)
                except _NotBegun:
                    if not pooled:
                        raise
                    return await self._run_once(endpoint, order)
        except TimeoutError:
            sentence = f"{endpoint} did not answer within {patience:.3g} s."
            raise Unreachable(sentence, delivered=order.begun) from None

    async def _run_once(self, endpoint: Endpoint, order: _Order) -> CommandAnswer:
        give_up_at = time.monotonic() + settings.SSH_LIMIT_RETRY_SECONDS
        while True:
            link = await self.link(endpoint)
            link.used_at = time.monotonic()
            try:
                async with link.sessions:
                    order.begun = True
                    return await execute(link.connection, order.command, order.stdin, order.moved)
            except asyncssh.ChannelOpenError as error:
                order.begun = False
                if not link.alive:
                    raise _NotBegun(f"The link to {endpoint} broke: {error.reason}.") from error
                if link.channels.close_idle():  # an sshd that allows few sessions: commands go first
                    continue
                link.sessions.refused()
                if time.monotonic() > give_up_at:
                    raise no_session(str(endpoint), error) from error
            except (asyncssh.Error, OSError) as error:
                raise Unreachable(
                    f"The link to {endpoint} broke before the answer came: {error}.", delivered=True
                ) from error
            finally:
                link.used_at = time.monotonic()
            await asyncio.sleep(random.uniform(0.02, 0.25))

    async def call(
        self, endpoint: Endpoint | None, command: str, verb: str, stdin: bytes, timeout_seconds: float
    ) -> dict[str, Any]:
        """Do a verb on the channel that `command` opens; without an endpoint on this very machine."""
        delivered = False
        try:
            async with asyncio.timeout(timeout_seconds):
                link = await self.link(endpoint) if endpoint else None
                channel = await (link.channels if link else self._local).get(command)
                delivered = True
                if link:
                    link.used_at = time.monotonic()
                return await channel.call(verb, stdin)
        except TimeoutError:
            sentence = f"{endpoint or 'This machine'} did not answer within {timeout_seconds:g} s."
            raise Unreachable(sentence, delivered=delivered) from None

    async def link(self, endpoint: Endpoint) -> Link:
        """The open connection to this endpoint; callers at the same time share one dial and its outcome."""
        link = self._links.get(endpoint)
        if link and link.alive:
            return link
        task = self._dialling.get(endpoint)
        if task is None:
            task = asyncio.ensure_future(self._dial(endpoint))
            self._dialling[endpoint] = task
            task.add_done_callback(lambda done: self._dialled(endpoint, done))
        return await asyncio.shield(task)

    def _dialled(self, endpoint: Endpoint, task: asyncio.Task[Link]) -> None:
        self._dialling.pop(endpoint, None)
        if not task.cancelled():
            task.exception()  # every waiter may have left; mark it as seen

    async def _dial(self, endpoint: Endpoint) -> Link:
        """Dial within the bounds, again and again with jitter while sshd is at its limit."""
        give_up_at = time.monotonic() + settings.SSH_LIMIT_RETRY_SECONDS
        wait = 0.2
        while True:
            tunnel = await self._through(endpoint.jump) if endpoint.jump else None
            try:
                async with (
                    self._dial_limit(endpoint.jump or endpoint),
                    self._dial_limit(endpoint, bool(tunnel)),
                ):
                    connection = await dial(endpoint, tunnel)
                break
            except SshBusy:
                if time.monotonic() > give_up_at:
                    raise
                await asyncio.sleep(random.uniform(wait / 4, wait))
                wait = min(wait * 2, 2.0)
        link = self._links[endpoint] = Link(connection)
        return link

    async def _through(self, jump: Endpoint) -> asyncssh.SSHClientConnection:
        """The connection to a jump host. Raises RemoteError, and NotAsked when it cannot be reached."""
        try:
            return (await self.link(jump)).connection
        except Unreachable as error:
            raise NotAsked(str(error)) from error

    def _dial_limit(self, endpoint: Endpoint, wanted: bool = True) -> asyncio.Semaphore:
        """How many dials may be pending at this sshd; an unlimited one where the other bound is the same."""
        if not wanted:
            return asyncio.Semaphore()
        key = (endpoint.target.address, endpoint.target.port)
        return self._dial_limits.setdefault(key, asyncio.Semaphore(settings.SSH_PENDING_DIALS_PER_HOST))

    async def forward(
        self, endpoint: Endpoint, remote_port: int, address: str, port: int, by: Relay | None
    ) -> Forward:
        """Let the host's loopback `remote_port` (0: any free one) lead to `address:port` as seen from here.

        `by`: so does the same port at its address, for other machines.
        """
        link = await self.link(endpoint)
        try:
            listener = await link.connection.forward_remote_port(LOOPBACK, remote_port, address, port)
        except asyncssh.ChannelListenError as error:
            raise ForwardRefused(
                f"{endpoint} does not forward port {remote_port or 'any'}: it is in use, "
                "or its sshd does not allow it (AllowTcpForwarding yes or remote)."
            ) from error
        except (asyncssh.Error, OSError) as error:
            raise Unreachable(f"The link to {endpoint} broke: {error}.") from error
        passing = None
        if by is not None:
            try:
                passing = await self._relay(endpoint, link, by, listener.get_port())
            except (asyncssh.Error, OSError) as error:
                raise Unreachable(f"The link to {endpoint} broke: {error}.") from error
            finally:
                if passing is None:
                    listener.close()
        link.forwards += 1
        return Forward(link, listener, by.address if by else LOOPBACK, passing)

    async def _relay(self, endpoint: Endpoint, link: Link, by: Relay, port: int) -> relay.Running:
        give_up_at = time.monotonic() + settings.SSH_LIMIT_RETRY_SECONDS
        while True:
            try:
                return await relay.start(link.connection, by, port)
            except asyncssh.ChannelOpenError as error:
                if not link.alive:
                    raise
                if not link.channels.close_idle():  # an sshd that allows few sessions
                    link.sessions.refused()
                if time.monotonic() > give_up_at:
                    raise no_session(str(endpoint), error) from error
            await asyncio.sleep(random.uniform(0.02, 0.25))

    async def reach(self, endpoint: Endpoint, port: int, address: str) -> socket.socket:
        """A connection from the host to a port of an address, as one end of a pair of sockets."""
        while True:
            pooled = endpoint in self._links
            link = await self.link(endpoint)
            try:
                ends = await link.connection.open_connection(address, port, encoding=None)
            except asyncssh.ChannelOpenError as error:
                if link.alive:
                    raise refusal(str(endpoint), port, error, address) from error
            except (asyncssh.Error, OSError) as error:
                if not pooled:
                    raise Unreachable(f"The link to {endpoint} broke: {error}.") from error
            else:
                break
            if not pooled:
                raise Unreachable(f"The link to {endpoint} broke.")
            self.forget(endpoint)
        ours, theirs = pair()
        self._carrying.add(task := asyncio.ensure_future(self._carry(link, ends, ours)))
        task.add_done_callback(self._carrying.discard)
        return theirs

    async def _carry(self, link: Link, ends: Ends, ours: socket.socket) -> None:
        link.forwards += 1
        try:
            await carry(ends, ours)
        finally:
            link.forwards -= 1
            link.used_at = time.monotonic()

    def forget(self, endpoint: Endpoint) -> None:
        """Close the connection to this endpoint, if there is one."""
        if link := self._links.pop(endpoint, None):
            link.connection.abort()

    async def reap(self) -> None:
        """Forget closed links and close those that nobody has used for a while."""
        while True:
            await asyncio.sleep(_REAP_EVERY_SECONDS)
            oldest = time.monotonic() - settings.SSH_IDLE_SECONDS
            jumps = {endpoint.jump for endpoint in self._links}
            for endpoint, link in list(self._links.items()):
                idle = link.used_at < oldest and not link.forwards and not link.sessions.open
                if not link.alive or (idle and endpoint not in jumps):
                    del self._links[endpoint]
                    link.connection.close()


class _NotBegun(Unreachable):
    """The link broke before the command was started, so it may be sent again."""


class _Thread:
    """The asyncio loop in a thread of its own, and the pool that lives there."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.pool = Pool()
        threading.Thread(target=self._serve, name="ssh", daemon=True).start()

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.create_task(self.pool.reap())
        self.loop.run_forever()

    def submit(self, work: Callable[[Pool], Coroutine[object, object, _Result]]) -> Future[_Result]:
        return asyncio.run_coroutine_threadsafe(work(self.pool), self.loop)


_thread = PerProcess(_Thread)


def _ask(work: Callable[[Pool], Coroutine[object, object, _Result]], timeout_seconds: float) -> _Result:
    future = _thread.get().submit(work)
    try:
        return future.result(timeout_seconds + THREAD_SLACK_SECONDS)
    except TimeoutError:
        future.cancel()
        raise NotAsked(
            f"The SSH thread did not answer within {timeout_seconds:g} s.", delivered=True
        ) from None


def run(
    endpoint: Endpoint, command: str, stdin: bytes = b"", *, timeout_seconds: float = 30
) -> CommandAnswer:
    """Run `command` in the login shell of the endpoint's account. Raises RemoteError."""
    longest = timeout_seconds + sending_seconds(len(stdin))
    return _ask(lambda pool: pool.run(endpoint, command, stdin, timeout_seconds), longest)


def call(
    endpoint: Endpoint | None, command: str, verb: str, stdin: bytes, *, timeout_seconds: float = 30
) -> dict[str, Any]:
    """Do a verb by the process that `command` starts and that stays; see Pool.call. Raises RemoteError, NotServed."""
    longest = timeout_seconds + sending_seconds(len(stdin))
    return _ask(lambda pool: pool.call(endpoint, command, verb, stdin, longest), longest)


def open_forward(
    endpoint: Endpoint, remote_port: int, address: str, port: int, by: Relay | None = None
) -> Forward:
    """A reverse port forward over the shared connection (see Pool.forward). Raises RemoteError."""

    async def work(pool: Pool) -> Forward:
        async with asyncio.timeout(settings.SSH_CONNECT_TIMEOUT_SECONDS * 2):
            return await pool.forward(endpoint, remote_port, address, port, by)

    try:
        return _ask(work, settings.SSH_CONNECT_TIMEOUT_SECONDS * 2)
    except TimeoutError:
        raise Unreachable(f"{endpoint} did not set up the tunnel in time.") from None


async def reach(endpoint: Endpoint, port: int, address: str = "127.0.0.1") -> socket.socket:
    """A connection to a port of the host's loopback, or of another address that the host reaches, over the shared
    connection, from any asyncio loop.

    What it does happens in the thread of the connections. Raises Unreachable, LoginRefused, HostKeyChanged.
    """

    async def work(pool: Pool) -> socket.socket:
        async with asyncio.timeout(settings.SSH_CONNECT_TIMEOUT_SECONDS):
            return await pool.reach(endpoint, port, address)

    try:
        return await asyncio.wrap_future(_thread.get().submit(work))
    except TimeoutError:
        raise Unreachable(f"{endpoint} did not answer in time.") from None


def way_refused(endpoint: Endpoint) -> str:
    """Why no port of the host's loopback can be reached through its sshd; "" where one could. Raises RemoteError."""

    async def work(pool: Pool) -> str:
        try:
            (await pool.reach(endpoint, _SILENT_PORT, "127.0.0.1")).close()
        except WayRefused as refusal:
            return str(refusal)
        except Unreachable:
            pass  # it was let through, and nobody listens there
        return ""

    return _ask(work, settings.SSH_CONNECT_TIMEOUT_SECONDS)


def close_forward(forward: Forward) -> None:
    _ask(lambda pool: forward.close(), settings.SSH_CONNECT_TIMEOUT_SECONDS)


def forget(endpoint: Endpoint) -> None:
    """Close the shared connection to this endpoint; the next caller dials anew."""

    async def work(pool: Pool) -> None:
        pool.forget(endpoint)

    _ask(work, settings.SSH_CONNECT_TIMEOUT_SECONDS)
