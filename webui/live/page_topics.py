"""`/ws/pages?topics=experiment:7,hosts`: says {"topics", "at"} when something changed, so that pages fetch parts again.

A topic is named at once, whatever was said of others, and at most four times a second; a frame names all topics of a
change. {"at"} alone, at first and every few seconds, says that the server, the connection and the database live.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from urllib.parse import parse_qs

from django.db import Error, connection

from accounts.rights import Right
from events.wakeups import wakeups
from webui.live.sockets import Socket
from webui.waiting.threads import reading

TOPICS_MAX = 100
#: between two frames, and between two that name the same topic
APART_SECONDS, SAME_APART_SECONDS = 0.02, 0.25
PING_SECONDS = 5.0
#: Without Redis nobody says what changed, so everything is said to have changed this often.
BLIND_SECONDS = 2.0

_TOPIC = re.compile(r"[a-z]+(:[\w.@-]{1,128})?")


def topics_of(query: bytes) -> list[str]:
    """The topics of the socket's query, without what is none."""
    values = parse_qs(query.decode("latin-1")).get("topics", [])
    names = [name for value in values for name in value.split(",")]
    return sorted({name for name in names if _TOPIC.fullmatch(name)})[:TOPICS_MAX]


class PageTopics(Socket):
    """One open page."""

    rights = {"GET": Right.READ}

    async def serve(self) -> None:
        topics = topics_of(self.scope["query_string"])
        hub = wakeups()
        with hub.watch(*topics) as watch:
            await self._say(at=time.time())  # from now on nothing is missed: the page looks once more
            pinged = told = time.monotonic()
            said, waiting = dict.fromkeys(topics, 0.0), frozenset[str]()
            while True:
                woken = waiting | await watch.wait(APART_SECONDS if waiting else 1.0)
                now = time.monotonic()
                if not hub.connected and now - told >= BLIND_SECONDS:
                    woken = frozenset(topics)
                due = {topic for topic in woken if now - said[topic] >= SAME_APART_SECONDS}
                waiting = woken - due
                if due:
                    told = now
                    said |= dict.fromkeys(due, now)
                    await self._say(topics=sorted(due), at=time.time())
                if woken:
                    await asyncio.sleep(APART_SECONDS)
                if now - pinged >= PING_SECONDS:
                    pinged = now
                    await self.check_login()
                    if await database_answers():
                        await self._say(at=time.time())

    async def _say(self, **frame: object) -> None:
        await self.send(json.dumps(frame))


_answered_at = 0.0


async def database_answers() -> bool:
    """Whether it does, asked at most once in PING_SECONDS / 2 for all pages of the process."""
    global _answered_at
    if time.monotonic() - _answered_at < PING_SECONDS / 2:
        return True
    try:
        await reading(_select_1)
    except Error:
        return False
    _answered_at = time.monotonic()
    return True


def _select_1() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
