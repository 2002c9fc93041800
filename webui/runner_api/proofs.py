"""Proves to runs that this is their server: a header beside each answer to a challenge (docs/protocol.md).

`nonce` proves it to a host that looks for an address of the server, by an HMAC that only this server can make.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import time

from django.db import Error
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from accounts.models import Cluster
from accounts.rights import Right
from trainmaster.identity import CHALLENGE_HEADER, PROOF_HEADER, proof
from webui.runner_api import limits
from webui.runner_api.answers import RefusedRequest, endpoint
from webui.waiting.threads import reading


class _ThisCluster:
    """Who this server is: read again now and then, known also while the database is away."""

    def __init__(self) -> None:
        self._known: Cluster | None = None
        self._read_at = 0.0
        self._reading: asyncio.Task[None] | None = None

    async def known(self) -> Cluster | None:
        """None if the database has never answered. Never waits long: an older answer will do."""
        if self._known is None or time.monotonic() - self._read_at > limits.CLUSTER_SEEN_SECONDS:
            if self._reading is None or self._reading.done():
                self._reading = asyncio.create_task(self._read())
            await asyncio.wait({self._reading}, timeout=limits.CLUSTER_READ_SECONDS)
        return self._known

    async def _read(self) -> None:
        with contextlib.suppress(Error):
            self._known, self._read_at = await reading(Cluster.get), time.monotonic()


_this = _ThisCluster()


def proving(application: ASGIApp) -> ASGIApp:
    """`application`, each of whose answers to a challenge carries the proof. Requests without one are as ever."""

    async def proved(scope: Scope, receive: Receive, send: Send) -> None:
        challenge = Headers(scope=scope).get(CHALLENGE_HEADER, "") if scope["type"] == "http" else ""
        allocation_id, _, nonce = challenge.partition(" ")
        if not nonce or len(challenge) > limits.CHALLENGE_CHARACTERS_MAX:
            await application(scope, receive, send)
            return

        async def send_with_proof(message: Message) -> None:
            if message["type"] == "http.response.start" and (cluster := await _this.known()):
                message.setdefault("headers", [])
                key = cluster.proof_key(allocation_id)
                answer = proof(key, str(cluster.cluster_id), nonce, message["status"])
                MutableHeaders(scope=message)[PROOF_HEADER] = answer
            await send(message)

        await application(scope, receive, send_with_proof)

    return proved


@endpoint("GET", Right.OPEN)
async def identity(request: Request) -> Response:
    """GET, without a login: nothing but the proof, which a run wants to see before it sends its token."""
    return JSONResponse({})


@endpoint("GET", Right.OPEN)
async def nonce(request: Request) -> Response:
    """GET `value`: {"hmac": hex HMAC-SHA256 of it}. No login: it proves something about the server only."""
    value = request.query_params.get("value", "")
    if not 1 <= len(value) <= limits.NONCE_CHARACTERS_MAX:
        raise RefusedRequest(400, f"value must have 1 to {limits.NONCE_CHARACTERS_MAX} characters.")
    cluster = await reading(Cluster.get)
    proof = hmac.new(cluster.nonce_key.encode(), value.encode(), hashlib.sha256).hexdigest()
    return JSONResponse({"hmac": proof, "cluster_id": str(cluster.cluster_id)})
