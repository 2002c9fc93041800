"""The process's one reader of wake-ups: every waiter of this process shares its Redis subscription.

A wake-up says "look sooner" and may be lost, so every waiter looks again after LOOK_AGAIN_SECONDS at the
latest. After each reconnect all waiters are woken, for there is no telling what was missed.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import redis.asyncio as redis
from django.conf import settings
from redis.exceptions import RedisError

from events.announce import CHANNEL

#: What a lost wake-up may cost.
LOOK_AGAIN_SECONDS = 1.0
RECONNECT_SECONDS_MIN, RECONNECT_SECONDS_MAX = 0.1, 3.0
#: A connection over which nothing has come for this long is asked whether it lives, then given up.
PING_AFTER_SECONDS = 5.0
SILENT_AFTER_SECONDS = 15.0

log = logging.getLogger(__name__)


class Watch:
    """What has been announced about some topics since the last look."""

    def __init__(self, topics: frozenset[str]) -> None:
        self.topics = topics
        self._woken: set[str] = set()
        self._event = asyncio.Event()

    def wake(self, topic: str) -> None:
        self._woken.add(topic)
        self._event.set()

    async def wait(self, timeout_seconds: float = LOOK_AGAIN_SECONDS) -> frozenset[str]:
        """The topics that were announced, at once if there are some; empty after the timeout."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                await self._event.wait()
        woken = frozenset(self._woken)
        self._woken.clear()
        self._event.clear()
        return woken


class Wakeups:
    """Waiters by topic, and the task that reads for all of them."""

    def __init__(self) -> None:
        self._watches: dict[str, set[Watch]] = {}
        self._reader: asyncio.Task[None] | None = None
        self.connected = False

    @contextmanager
    def watch(self, *topics: str) -> Iterator[Watch]:
        """Begin to watch *before* the first look at the database: nothing falls between look and wait."""
        watch = Watch(frozenset(topics))
        for topic in watch.topics:
            self._watches.setdefault(topic, set()).add(watch)
        if self._reader is None or self._reader.done():
            self._reader = asyncio.get_running_loop().create_task(self._read_for_ever(), name="wake-ups")
        try:
            yield watch
        finally:
            for topic in watch.topics:
                self._watches[topic].discard(watch)
                if not self._watches[topic]:
                    del self._watches[topic]

    def wake(self, topic: str) -> None:
        """Wake this process's waiters of the topic."""
        for watch in self._watches.get(topic, ()):
            watch.wake(topic)

    def _wake_all(self) -> None:
        for topic in list(self._watches):
            self.wake(topic)

    async def _read_for_ever(self) -> None:
        failures = 0
        while True:
            started = time.monotonic()
            try:
                await self._read()
            except (RedisError, OSError) as error:
                level = logging.WARNING if self.connected or failures == 0 else logging.DEBUG
                log.log(level, "cannot receive wake-ups; polling every second instead: %s", error)
            self.connected = False
            failures = 0 if time.monotonic() - started > RECONNECT_SECONDS_MAX else failures + 1
            longest = min(RECONNECT_SECONDS_MAX, RECONNECT_SECONDS_MIN * 2.0 ** min(failures, 10))
            await asyncio.sleep(random.uniform(longest / 2, longest))

    async def _read(self) -> None:
        client = redis.Redis.from_url(settings.REDIS_URL, socket_connect_timeout=2)
        async with client, client.pubsub() as subscription:
            await subscription.subscribe(CHANNEL)
            self.connected = True
            self._wake_all()
            heard = time.monotonic()
            while time.monotonic() - heard < SILENT_AFTER_SECONDS:
                message = await subscription.get_message(timeout=PING_AFTER_SECONDS)
                if message is None:
                    await subscription.ping()
                    continue
                heard = time.monotonic()
                if message["type"] == "message":
                    for topic in message["data"].decode().splitlines():
                        self.wake(topic)
            raise OSError(f"no message from Redis for {SILENT_AFTER_SECONDS} s")


_by_loop: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Wakeups] = weakref.WeakKeyDictionary()


def wakeups() -> Wakeups:
    """The reader of the running event loop: one per process, as a web process has one loop."""
    return _by_loop.setdefault(asyncio.get_running_loop(), Wakeups())
