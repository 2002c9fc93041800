"""What all sockets share: the login, its end, and a task that serves the socket for as long as it is open."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any, ClassVar

from channels.consumer import get_handler_name
from channels.generic.websocket import AsyncWebsocketConsumer
from django.conf import settings
from django.db import Error

from accounts import rights
from accounts.refusals import Code, Refusal
from accounts.rights import Right
from webui.live.login import is_own_origin, user_of
from webui.refusals import STATUS
from webui.waiting.threads import reading

#: Close codes of ours: the browser goes to the login page; the server failed. A refusal: 4000 and its HTTP status.
NOT_LOGGED_IN, FAILED = 4401, 1011
#: of a close frame (RFC 6455)
REASON_BYTES = 123
#: A session that ended elsewhere (logout, deactivated user) loses its sockets within this time.
LOGIN_CHECK_SECONDS = 30.0

log = logging.getLogger(__name__)

#: user -> sockets that are open in this process
_open: Counter[int] = Counter()


class Socket(AsyncWebsocketConsumer):  # type: ignore[misc]  # channels has no types
    """A socket for people who are logged in. Subclasses write `serve`, and `hear` for what the client sends."""

    #: what opening it asks for
    rights: ClassVar[Mapping[str, Right]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "GET" not in cls.rights:
            raise TypeError(f"{cls.__name__}.rights does not say who may open it")

    async def connect(self) -> None:
        self._server: asyncio.Task[None] | None = None
        self._login_known = asyncio.Event()
        self._headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in self.scope["headers"]
        }
        self._checked_at, self._user = 0.0, 0
        if not is_own_origin(self._headers):
            await self.close()  # before it is accepted: the handshake is answered with 403
            return
        await self.accept()
        self._server = asyncio.create_task(self._serve())

    async def disconnect(self, code: int) -> None:
        if self._server is not None:
            self._server.cancel()

    async def dispatch(self, message: dict[str, Any]) -> None:
        """Channels would go to a thread at each frame of the client to close old database connections.

        None is opened there: sockets read through `reading`, whose threads see to theirs.
        """
        await getattr(self, get_handler_name(message))(message)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """Frames wait until it is known whose they are: nothing is read for a client without a login."""
        if text_data is not None and self._server is not None:
            await self._login_known.wait()
            if self._user:
                self.hear(text_data)

    async def _serve(self) -> None:
        user = 0
        try:
            user = await self.check_login()
            self._login_known.set()
            _open[user] += 1
            if _open[user] > settings.SOCKETS_PER_USER:
                raise Refusal(
                    f"You have {settings.SOCKETS_PER_USER} live views open; close some.", Code.TOO_MANY
                )
            await self.serve()
        except Closed as closed:
            await self.close(closed.code, _short(closed.reason))
        except Refusal as refusal:
            await self.close(4000 + STATUS[refusal.code], _short(str(refusal)))
        except Gone:
            return
        except asyncio.CancelledError:
            raise
        except Exception:
            log.exception("a socket on %s failed", self.scope.get("path"))
            await self.close(FAILED)
        finally:
            self._login_known.set()
            if user:
                _open[user] -= 1
                if not _open[user]:
                    del _open[user]

    async def check_login(self) -> int:
        """The user's id. Raises Closed when the session or token does not hold (any more). Looks at most every 30 s."""
        now = time.monotonic()
        if self._checked_at and now - self._checked_at < LOGIN_CHECK_SECONDS:
            return self._user
        try:
            user = await reading(user_of, self._headers)
        except Error as error:
            if not self._checked_at:
                raise
            log.info("cannot check the login of a socket: %s", error)
            return self._user
        if user is None:
            raise Closed(NOT_LOGGED_IN)
        rights.require(user, self.rights["GET"])
        self._checked_at, self._user = now, user.pk
        return self._user

    async def send(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """Waits while the client's buffer is full. Raises Gone."""
        try:
            await super().send(text_data, bytes_data)
        except OSError as error:  # what ASGI servers raise once the client has hung up
            raise Gone from error

    async def serve(self) -> None:
        raise NotImplementedError

    def hear(self, text: str) -> None:
        """A frame of the client; sockets that only speak leave it."""


class Gone(Exception):
    """The client has hung up."""


class Closed(Exception):
    """The socket is to be closed with this code."""

    def __init__(self, code: int, reason: str = "") -> None:
        super().__init__(f"closed with {code}")
        self.code, self.reason = code, reason


def _short(reason: str) -> str:
    return reason.encode()[:REASON_BYTES].decode(errors="ignore")
