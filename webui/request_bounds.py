"""What one request, and one user's requests together, may take of a web process before Django sees them.

Django writes a body to disk before any login is checked, so what is too large is refused before that. Beyond
OPEN_REQUEST_BYTES whoever sends must be logged in, and not be logging in; nobody sends more than REQUEST_BYTES, and
nobody many large requests at once. Of one user's requests, Django gets a few at a time.
"""

from __future__ import annotations

import math
import time
from collections import Counter

from django.conf import settings
from django.db import DatabaseError
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from accounts.models import token_hash
from webui.api.authentication import bearer_tokens, by_token
from webui.live.login import cookie, user_of_session
from webui.waiting.threads import reading
from webui.waiting.turns import Turn, Turns

#: where people log in: nothing long is sent there
_LOGINS = frozenset({"/login", "/api/v1/auth/login"})

#: how long, and for how many logins, a process remembers whose they are
_KNOWN_SECONDS, _KNOWN_MAX = 60.0, 10_000


class Bounded:
    """An ASGI application whose HTTP requests are held to the bounds."""

    def __init__(self, application: ASGIApp) -> None:
        self._application = application
        self.large: Counter[str] = Counter()  # large requests under way, by login
        self.turns = Turns()
        self.users = KnownUsers()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        request = _Request(self, scope, receive, send)
        try:
            if not await request.may_begin():
                await _answer(scope, receive, send, *request.why_not())
                return
            await self._application(scope, request.receive, request.send)
            if request.is_too_late:
                most = settings.REQUESTS_AT_ONCE_PER_USER
                sentence = (
                    f"You have more requests under way than the {most} that are served at once; try again."
                )
                await _answer(scope, receive, send, 429, sentence)
        except DatabaseError:  # Django answers those of its own
            await _answer(scope, receive, send, 503, "The database is unavailable or busy; try again.")
        finally:
            request.end()


class _Request:
    """What is known of one request while it is under way."""

    def __init__(self, bounds: Bounded, scope: Scope, receive: Receive, send: Send) -> None:
        self._bounds, self._scope, self._receive, self._send = bounds, scope, receive, send
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        self._declared = int(declared) if declared.isdigit() else 0
        self._received = 0
        self._limit = settings.OPEN_REQUEST_BYTES
        self._login = ""  # of a large request
        self._is_one_too_many = False
        self._user = ""  # of a request that has its turn
        self._turn: Turn | None = None
        self.is_too_late = False  # its turn did not come

    async def may_begin(self) -> bool:
        return await self._allows(self._declared)

    async def receive(self) -> Message:
        message = await self._receive()
        self._received += len(message.get("body", b""))
        is_whole = message["type"] == "http.request" and not message.get("more_body", False)
        # Django takes a disconnect as the end of the request and answers nobody
        if not await self._allows(self._received) or (is_whole and not await self._has_its_turn()):
            return {"type": "http.disconnect"}
        return message

    async def send(self, message: Message) -> None:
        if self._turn is not None and message["type"] == "http.response.start":
            self._turn.give_back()  # what follows may be a stream that never ends
        await self._send(message)

    def why_not(self) -> tuple[int, str]:
        """Status and sentence for a request that may not begin."""
        if self._is_one_too_many:
            most = settings.UPLOADS_PER_USER
            return 429, f"You have {most} large requests under way; send this one when one of them is done."
        without = "" if self._login else " without a login"
        return 413, f"The request has {self._declared:,} bytes; allowed{without}: at most {self._limit:,}."

    def end(self) -> None:
        if self._turn is not None:
            self._turn.give_back()
            self._bounds.turns.leave(self._user)
        if self._login:
            self._bounds.large[self._login] -= 1
            self._bounds.large += Counter()  # forgets those that have none

    async def _allows(self, size: int) -> bool:
        if size > self._limit and not self._login and (login := await _login_of(self._scope)):
            self._login = login
            self._is_one_too_many = self._bounds.large[login] >= settings.UPLOADS_PER_USER
            self._bounds.large[login] += 1
            self._limit = settings.REQUEST_BYTES
        return size <= self._limit and not self._is_one_too_many

    async def _has_its_turn(self) -> bool:
        if self._turn is None and (user := await self._bounds.users.of(self._scope)):
            try:
                self._turn = await self._bounds.turns.take(user)
            except TimeoutError:
                self.is_too_late = True
            else:
                self._user = user
        return not self.is_too_late


class KnownUsers:
    """Who sends, read from the database once in a while for each login: this only chooses the line to wait in."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, str]] = {}

    async def of(self, scope: Scope) -> str:
        """The user as a word; empty for requests without a login, or while the database is unavailable."""
        headers = Headers(scope=scope)
        sent = " ".join(bearer_tokens(headers)) or cookie(headers, settings.SESSION_COOKIE_NAME)
        if not sent:
            return ""
        login = token_hash(sent)
        seen_at, user = self._known.get(login, (-math.inf, ""))
        if time.monotonic() - seen_at > _KNOWN_SECONDS:
            try:
                user = await _login_of(scope)
            except DatabaseError:
                return ""
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            self._known[login] = time.monotonic(), user
        return user


async def _login_of(scope: Scope) -> str:
    """Who sends, as a word that tells logins apart; empty for whoever is not logged in, or is logging in."""
    if scope["path"] in _LOGINS:
        return ""
    headers = Headers(scope=scope)
    if bearer_tokens(headers):
        who = await reading(by_token, headers)
    else:
        who = await reading(user_of_session, cookie(headers, settings.SESSION_COOKIE_NAME))
    return f"{type(who).__name__} {who.pk}" if who else ""


async def _answer(scope: Scope, receive: Receive, send: Send, status: int, sentence: str) -> None:
    await JSONResponse({"message": sentence}, status_code=status)(scope, receive, send)
