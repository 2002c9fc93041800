"""The web process: runners and static files before Django, pages and REST in Django, sockets in Channels."""

from __future__ import annotations

import math
import time
from collections import Counter
from io import BytesIO
from typing import Any, cast

from channels.routing import ProtocolTypeRouter
from django.conf import settings
from django.core.handlers.asgi import ASGIHandler, ASGIRequest
from django.db import DatabaseError
from starlette.responses import JSONResponse
from starlette.routing import Mount, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from accounts.models import token_hash
from webui import docs_site
from webui.api.authentication import bearer_tokens, by_token
from webui.assets import Assets
from webui.live.login import user_of_session
from webui.live.routing import websocket_application
from webui.proxy import entry
from webui.runner_api.proofs import proving
from webui.runner_api.routes import application as runner_application
from webui.waiting.threads import reading
from webui.waiting.turns import Turns

#: where people log in: nothing long is sent there
_LOGINS = frozenset({"/login", "/api/v1/auth/login"})

#: how long, and for how many logins, a process remembers whose they are
_KNOWN_SECONDS, _KNOWN_MAX = 60.0, 10_000


def bounded(application: ASGIApp) -> ASGIApp:
    """Refuse bodies that are too large before Django writes them to disk, as it does before any login is checked.

    Beyond OPEN_REQUEST_BYTES whoever sends must be logged in, and not be logging in; nobody sends more than
    REQUEST_BYTES, and nobody many large requests at once. Of one user's requests, Django gets a few at a time.
    """

    under_way: Counter[str] = Counter()
    turns = Turns()
    users = KnownUsers()

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal under_way
        if scope["type"] != "http":
            await application(scope, receive, send)
            return
        received, limit, login, is_one_too_many = 0, settings.OPEN_REQUEST_BYTES, "", False

        user, turn, is_too_late = "", None, False

        async def allows(size: int) -> bool:
            nonlocal limit, login, is_one_too_many
            if size > limit and not login and (login := await _login_of(scope)):
                is_one_too_many = under_way[login] >= settings.UPLOADS_PER_USER
                under_way[login] += 1
                limit = settings.REQUEST_BYTES
            return size <= limit and not is_one_too_many

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            is_whole = message["type"] == "http.request" and not message.get("more_body", False)
            # Django takes a disconnect as the end of the request and answers nobody
            if not await allows(received) or (is_whole and not await has_its_turn()):
                return {"type": "http.disconnect"}
            return message

        async def has_its_turn() -> bool:
            nonlocal user, turn, is_too_late
            if turn is None and (who := await users.of(scope)):
                try:
                    turn = await turns.take(who)
                except TimeoutError:
                    is_too_late = True
                else:
                    user = who
            return not is_too_late

        async def sent(message: Message) -> None:
            if turn is not None and message["type"] == "http.response.start":
                turn.give_back()  # what follows may be a stream that never ends
            await send(message)

        async def refuse(status: int, sentence: str) -> None:
            await JSONResponse({"message": sentence}, status_code=status)(scope, receive, send)

        declared = dict(scope["headers"]).get(b"content-length", b"0")
        try:
            if not declared.isdigit() or await allows(int(declared)):
                await application(scope, counted, sent)
                if is_too_late:
                    most = settings.REQUESTS_AT_ONCE_PER_USER
                    await refuse(
                        429,
                        f"You have more requests under way than the {most} that are served at once; try again.",
                    )
            elif is_one_too_many:
                most = settings.UPLOADS_PER_USER
                await refuse(
                    429, f"You have {most} large requests under way; send this one when one of them is done."
                )
            else:
                without = "" if login else " without a login"
                sentence = f"The request has {int(declared):,} bytes; allowed{without}: at most {limit:,}."
                await refuse(413, sentence)
        except DatabaseError:  # Django answers those of its own
            await refuse(503, "The database is unavailable or busy; try again.")
        finally:
            if turn is not None:
                turn.give_back()
                turns.leave(user)
            if login:
                under_way[login] -= 1
                under_way += Counter()  # forgets those that have none

    return guarded


class KnownUsers:
    """Who sends, read from the database once in a while for each login: this only chooses the line to wait in."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, str]] = {}

    async def of(self, scope: Scope) -> str:
        """The user as a word; empty for requests without a login, or while the database is unavailable."""
        request = ASGIRequest(cast(Any, scope), BytesIO())
        session = request.COOKIES.get(settings.SESSION_COOKIE_NAME, "")
        sent = " ".join(bearer_tokens(request)) or session
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
    request = ASGIRequest(cast(Any, scope), BytesIO())
    if bearer_tokens(request):
        who = await reading(by_token, request)
    else:
        who = await reading(user_of_session, request.COOKIES.get(settings.SESSION_COOKIE_NAME, ""))
    return f"{type(who).__name__} {who.pk}" if who else ""


def build(django_application: ASGIHandler) -> ProtocolTypeRouter:
    """The ASGI application. Nothing starts or ends with it; Starlette's router says so to those who ask."""
    http = Router(
        [Mount("/runner/v1", runner_application), Mount("/static", Assets()), *docs_site.routes()],
        redirect_slashes=False,
        default=bounded(cast(ASGIApp, django_application)),
    )
    proved = entry.before(proving(http))  # what a task's own pages answer is the task's, and is never proved
    return ProtocolTypeRouter(
        {"http": proved, "lifespan": http, "websocket": entry.before(websocket_application)}
    )
