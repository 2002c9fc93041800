"""`/proxy/<task>/…`: what listens in a task, through the server and behind its login.

In front of Django, whose handler keeps a thread for each request: a notebook holds dozens open. Who may not, or comes
too early or too late, gets the console's page about the task, and a program gets a status and a sentence.
"""

from __future__ import annotations

import logging
from urllib.parse import quote

from django.conf import settings
from django.db import Error
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from webui.live import proxy_access
from webui.live.login import is_own_origin
from webui.live.proxy_access import Answer, Visit
from webui.live.proxy_headers import Headers, answer_headers, guards, request_headers
from webui.live.proxy_http import Exchange, Unanswered
from webui.live.proxy_socket import Tunnelled
from webui.live.threads import reading

log = logging.getLogger(__name__)

PREFIX = "/proxy/"
_SENTENCES = {
    Answer.NOT_LOGGED_IN: (401, "Not logged in: log in first."),
    Answer.FORBIDDEN: (403, "This task belongs to somebody else; only its owner and admins may use it."),
    Answer.NOT_FOUND: (404, "There is no task of this id that could be used through the server."),
    Answer.WAITING: (503, "The task is not ready yet; try again in a moment."),
    Answer.ENDED: (410, "The task has ended."),
}


def own_cookies() -> frozenset[str]:
    """Names of the console's cookies, which no task hears or sets."""
    return frozenset({settings.SESSION_COOKIE_NAME, settings.CSRF_COOKIE_NAME, "messages"})


def before(application: ASGIApp) -> ASGIApp:
    """The application, with the addresses of tasks taken out before it."""

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in {"http", "websocket"} and scope["path"].startswith(PREFIX):
            await serve(scope, receive, send)
        else:
            await application(scope, receive, send)

    return guarded


async def serve(scope: Scope, receive: Receive, send: Send) -> None:
    """One request, or one WebSocket, to a task."""
    raw = scope.get("raw_path") or quote(scope["path"]).encode()
    path = raw.partition(b"?")[0]
    service_id, slash, rest = path[len(PREFIX) :].decode("latin-1").partition("/")
    service_id = service_id.replace("%3A", ":").replace("%3a", ":")
    query = b"?" + scope["query_string"] if scope["query_string"] else b""
    base = f"{PREFIX}{service_id}/"
    if scope["type"] == "websocket":
        rest += query.decode("latin-1")
        await Tunnelled(service_id, base, rest, scope, receive, send).run(own_cookies())
        return
    if not slash:
        await RedirectResponse(base + query.decode("latin-1"), 307)(scope, receive, send)
        return
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
    try:
        visit = await reading(proxy_access.visit, service_id, headers)
    except Error as error:
        log.warning("the database is away or busy: %s", error)
        busy = JSONResponse({"message": "The database is away or busy; try again."}, 503)
        await _guarded(busy, base, scope)(scope, receive, send)
        return
    # a service worker would answer the task's addresses itself, with pages that no policy binds
    foreign = headers.get("service-worker") == "script" or (
        scope["method"] not in {"GET", "HEAD", "OPTIONS"} and not is_own_origin(headers)
    )
    if foreign or visit.answer != Answer.OPEN:
        refused = Visit(Answer.FORBIDDEN) if foreign else visit
        answer = _refusal(refused, service_id, base, headers, scope)
        await _guarded(answer, base, scope)(scope, receive, send)
        return
    own = rest if visit.stripped else base.lstrip("/") + rest
    await _carry(visit, base, b"/" + own.encode("latin-1") + query, headers, scope, receive, send)


async def _carry(
    visit: Visit,
    base: str,
    target: bytes,
    headers: dict[str, str],
    scope: Scope,
    receive: Receive,
    send: Send,
) -> None:
    assert visit.door is not None
    origin = f"{scope['scheme']}://{headers.get('host', '')}"
    begun = False

    def rewritten(given: Headers) -> Headers:
        nonlocal begun
        begun = True
        return answer_headers(given, scope["path"], base, origin, own_cookies())

    sent = request_headers(scope["headers"], own_cookies(), scope["scheme"])
    try:
        await Exchange(visit.door, scope["method"], target, sent, receive).run(send, rewritten)
    except Unanswered as error:
        if begun:
            raise  # the answer breaks off, which the browser sees
        await _guarded(JSONResponse({"message": str(error)}, 502), base, scope)(scope, receive, send)


def _guarded(response: Response, base: str, scope: Scope) -> Response:
    """An answer of the server's own below a task's address: in a frame of the task's pages it must be as bound."""
    host = dict(scope["headers"]).get(b"host", b"").decode("latin-1")
    response.raw_headers += guards(base, f"{scope['scheme']}://{host}")
    return response


def _refusal(visit: Visit, service_id: str, base: str, headers: dict[str, str], scope: Scope) -> Response:
    status, sentence = _SENTENCES[visit.answer]
    reads_pages = scope["method"] == "GET" and "text/html" in headers.get("accept", "")
    if not reads_pages:
        more = {"Retry-After": "1"} if status == 503 else {}
        return JSONResponse({"message": sentence}, status, more)
    if visit.answer == Answer.NOT_LOGGED_IN:
        return RedirectResponse(f"{settings.LOGIN_URL}?next={quote(base)}", 303)
    return RedirectResponse(f"/tasks/{service_id.partition(':')[0]}", 303)
