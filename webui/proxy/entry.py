"""`/proxy/<task>/…`: what listens in a task, through the server and behind its login.

In front of Django, whose handler keeps a thread for each request: a notebook holds dozens open. Who may not, or comes
too early or too late, gets the console's page about the task, and a program gets a status and a sentence. Where tasks
have an origin of their own (webui.proxy.origin), browsers are handed over to it, and nothing else is served there.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from html import escape
from urllib.parse import parse_qs, quote

from django.conf import settings
from django.db import Error
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from accounts.rights import Right, declares
from webui.live import login
from webui.proxy import access
from webui.proxy import login as proxy_login
from webui.proxy import origin as proxy_origin
from webui.proxy.access import NoLonger, ProxyAnswer, Visit, Visitor
from webui.proxy.headers import Headers, answer_headers, guards, request_headers
from webui.proxy.requests import Exchange, Unanswered
from webui.proxy.sockets import Tunnelled
from webui.waiting.threads import reading

log = logging.getLogger(__name__)

PREFIX = "/proxy/"
#: on the origin of tasks: where the console sends a browser with a ticket
ENTRANCE = "/proxy/+enter"
_ENTER_ANEW = "No longer logged in to this task: open it from the console."
_ELSEWHERE = "Use this task at {}; open its address again."
_UNKNOWN_HOST = (
    "The console cannot be used at this host name. Use another, or add it to TRAINMASTER_ALLOWED_HOSTS."
)
#: of answers with a ticket or a login in them
_UNKEPT = {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}


def own_cookies() -> frozenset[str]:
    """Names of the console's cookies, which no task hears or sets."""
    ours = {settings.SESSION_COOKIE_NAME, settings.CSRF_COOKIE_NAME, "messages"}
    return frozenset(ours | {proxy_login.COOKIE, proxy_login.CONSOLE_COOKIE})


@dataclass(frozen=True)
class Asked:
    """What a request or a WebSocket asks for. `rest` is behind the task's `base`, as the browser spelled it."""

    service_id: str
    has_slash: bool
    rest: str
    query: str
    headers: dict[str, str]
    #: scheme and host at which the browser asked
    origin: str
    #: on the origin of tasks
    apart: bool

    @property
    def scheme(self) -> str:
        """`http` or `https`, of a WebSocket too."""
        return self.origin.partition(":")[0]

    @property
    def alone(self) -> bool:
        """Whether nothing but this task is on the origin: neither the console nor another task."""
        return self.apart and proxy_origin.is_per_task()

    @property
    def base(self) -> str:
        return f"{PREFIX}{self.service_id}/"

    @property
    def target(self) -> str:
        return f"{self.base}{self.rest}{self.query}"


def before(application: ASGIApp) -> ASGIApp:
    """The application, with the addresses of tasks taken out before it, and all of the origin of tasks."""

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in {"http", "websocket"}:
            await application(scope, receive, send)
        elif scope["path"].startswith(PREFIX):
            await serve(scope, receive, send)
        elif not proxy_origin.is_here(_headers(scope)):
            await application(scope, receive, send)
        elif scope["type"] == "http":
            nothing = JSONResponse(
                {"message": "This address serves only tasks; the console is at another address."}, 404
            )
            await nothing(scope, receive, send)
        else:
            await receive()
            await send({"type": "websocket.close", "code": 1008})

    return guarded


@declares({"*": Right.EDIT})  # of the task's owner and admins, as `access` says; with any method
async def serve(scope: Scope, receive: Receive, send: Send) -> None:
    """One request, or one WebSocket, to a task."""
    asked = asked_of(scope)
    if scope["type"] == "websocket":
        visitor = Visitor(asked.service_id, asked.headers, asked.apart, "origin" not in asked.headers)
        rest = asked.rest + asked.query
        await Tunnelled(visitor, asked.base, rest, asked.scheme, scope, receive, send).run(own_cookies())
        return
    try:
        answer = await _answer(asked, scope, receive, send)
    except Error as error:
        log.warning("the database is unavailable or busy: %s", error)
        answer = JSONResponse({"message": "The database is unavailable or busy; try again."}, 503)
    if answer is not None:
        # in a frame of the task's pages it must be as bound as they are
        answer.raw_headers += guards(asked.base, asked.origin, asked.alone)
        await answer(scope, receive, send)


async def _answer(asked: Asked, scope: Scope, receive: Receive, send: Send) -> Response | None:
    """What the server itself answers; None where the task's program has."""
    if asked.apart and scope["path"] == ENTRANCE:
        return await reading(_entered, asked)
    if not asked.has_slash:
        return RedirectResponse(asked.base + asked.query, 307)
    visitor = Visitor(asked.service_id, asked.headers, asked.apart)
    visit = await reading(access.visit, visitor)
    # a service worker would answer the task's addresses itself, with pages that no policy binds
    foreign = asked.headers.get("service-worker") == "script" or (
        scope["method"] not in {"GET", "HEAD", "OPTIONS"} and not login.is_own_origin(asked.headers)
    )
    if foreign or visit.answer != ProxyAnswer.OPEN:
        return _refusal(Visit(ProxyAnswer.FORBIDDEN) if foreign else visit, asked, scope["method"])
    if is_elsewhere(asked.headers, asked.apart):
        return await reading(_handed_over, asked, visit, scope["method"])
    return await _carry(visit, visitor, asked, scope, receive, send)


def is_elsewhere(headers: dict[str, str], apart: bool) -> bool:
    """Whether a browser asks the console for what it gets on the origin of tasks. Programs that send a login token of
    their own are served anywhere: no page acts through them."""
    return bool(settings.PROXY_ORIGIN) and not apart and not login.has_token(headers)


def _handed_over(asked: Asked, visit: Visit, method: str) -> Response:
    """To the origin of the task, with a ticket for a login there. Writes the database."""
    there = proxy_origin.of_task(visit.task_id)
    if method not in {"GET", "HEAD"}:
        return JSONResponse({"message": _ELSEWHERE.format(there)}, 403)
    if not proxy_origin.is_of_console(asked.headers):
        return JSONResponse({"message": _UNKNOWN_HOST}, 400)
    number = proxy_login.ticket(asked.headers, visit.task_id, asked.origin, asked.target)
    return RedirectResponse(f"{there}{ENTRANCE}?ticket={number}", 303, _UNKEPT)


def _entered(asked: Asked) -> Response:
    """The login that a ticket is worth, as a cookie, and on to what was asked of the console. Writes the database."""
    entered = proxy_login.redeem(parse_qs(asked.query[1:]).get("ticket", [""])[0])
    if entered is None or not proxy_origin.is_of_task(asked.headers, entered.task_id):
        return JSONResponse({"message": _ENTER_ANEW}, 401, _UNKEPT)
    answer = RedirectResponse(entered.path, 303, _UNKEPT)
    base = PREFIX + entered.path.removeprefix(PREFIX).partition("/")[0] + "/"
    set_cookies = proxy_login.cookies(entered, base, asked.scheme)
    answer.raw_headers += [(b"set-cookie", cookie) for cookie in set_cookies]
    return answer


async def _carry(
    visit: Visit, visitor: Visitor, asked: Asked, scope: Scope, receive: Receive, send: Send
) -> Response | None:
    assert visit.door is not None
    begun = False

    def rewritten(given: Headers) -> Headers:
        nonlocal begun
        begun = True
        return answer_headers(given, scope["path"], asked.base, asked.origin, own_cookies(), asked.alone)

    path = "/" + asked.rest + asked.query if visit.stripped else asked.target
    sent = request_headers(scope["headers"], own_cookies(), asked.scheme)
    exchange = Exchange(visit.door, scope["method"], path.encode("latin-1"), sent, receive)
    try:
        await exchange.run(send, rewritten, access.until_it_may_not(visitor))
    except Unanswered as error:
        if begun:
            raise  # the answer breaks off, which the browser sees
        return JSONResponse({"message": str(error)}, 502)
    except NoLonger as error:
        log.info("a stream of task %s was closed: %s", visit.task_id, error)
        return None if begun else _refusal(error.visit, asked, scope["method"])
    return None


def _refusal(visit: Visit, asked: Asked, method: str) -> Response:
    status, sentence = access.SENTENCES[visit.answer]
    console = proxy_login.console_of(asked.headers) if asked.apart else ""
    lost = asked.apart and visit.answer == ProxyAnswer.NOT_LOGGED_IN
    reads_pages = method == "GET" and "text/html" in asked.headers.get("accept", "")
    if not reads_pages or (asked.apart and not console):
        more = {"Retry-After": "1"} if status == 503 else {}
        return JSONResponse({"message": _ENTER_ANEW if lost else sentence}, status, more)
    if lost:  # the console asks for a login, or hands the browser over anew
        return RedirectResponse(f"{console}{asked.target}", 303)
    about = f"/tasks/{quote(asked.service_id.partition(':')[0])}"
    if console:
        return RedirectResponse(console + about, 303)
    is_known = visit.answer != ProxyAnswer.NOT_LOGGED_IN
    return _led_on(about if is_known else f"{settings.LOGIN_URL}?next={quote(asked.base)}", sentence, status)


def _led_on(to: str, sentence: str, status: int) -> Response:
    """Return a page that takes the browser to a page of the console on the same origin.

    It is not a redirect: browsers ignore the paths in a policy once a request has been redirected, so a task's page
    could fetch an address of its own and read the console's page in the answer.
    """
    page = (
        f'<!doctype html><title>Trainmaster</title><p>{escape(sentence)} <a href="{escape(to)}">Continue</a>'
    )
    return HTMLResponse(page, status, {"Refresh": f"0; url={to}", "Cache-Control": "no-store"})


def _headers(scope: Scope) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}


def asked_of(scope: Scope) -> Asked:
    """What the scope of a request or a WebSocket below PREFIX asks for, seen from the browser: a front that ends TLS is
    believed where the settings say so."""
    raw = scope.get("raw_path") or quote(scope["path"]).encode()
    path = raw.partition(b"?")[0].decode("latin-1")
    service_id, slash, rest = path[len(PREFIX) :].partition("/")
    service_id = service_id.replace("%3A", ":").replace("%3a", ":")
    query = "?" + scope["query_string"].decode("latin-1") if scope["query_string"] else ""
    headers = _headers(scope)
    scheme = "https" if scope["scheme"] in {"https", "wss"} else "http"
    # several proxies: the outermost first
    said = headers.get("x-forwarded-proto", "").partition(",")[0].strip()
    if settings.SECURE_PROXY_SSL_HEADER and said == "https":
        scheme = "https"
    origin = f"{scheme}://{headers.get('host', '')}"
    return Asked(service_id, bool(slash), rest, query, headers, origin, proxy_origin.is_here(headers))
