"""Proves to runs that this is their server: a header beside each answer to a challenge (docs/protocol.md)."""

from __future__ import annotations

import contextlib
import time
from typing import NamedTuple

from django.db import InterfaceError, OperationalError
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from accounts.models import Cluster
from trainmaster.identity import CHALLENGE_HEADER, PROOF_HEADER, proof
from webui.live.threads import reading
from webui.runner_api import limits
from webui.runner_api.answers import endpoint


class _Seen(NamedTuple):
    """The cluster's row as this process read it at `at` (monotonic seconds)."""

    cluster: Cluster
    at: float


_seen: _Seen | None = None


def proving(application: ASGIApp) -> ASGIApp:
    """`application`, each of whose answers to a challenge carries the proof. Requests without one are as ever."""

    async def proved(scope: Scope, receive: Receive, send: Send) -> None:
        challenge = Headers(scope=scope).get(CHALLENGE_HEADER, "") if scope["type"] == "http" else ""
        allocation_id, _, nonce = challenge.partition(" ")
        if not nonce or len(challenge) > limits.CHALLENGE_CHARACTERS_MAX:
            await application(scope, receive, send)
            return

        async def send_with_proof(message: Message) -> None:
            if message["type"] == "http.response.start" and (cluster := await _cluster()):
                message.setdefault("headers", [])
                key = cluster.proof_key(allocation_id)
                answer = proof(key, str(cluster.cluster_id), nonce, message["status"])
                MutableHeaders(scope=message)[PROOF_HEADER] = answer
            await send(message)

        await application(scope, receive, send_with_proof)

    return proved


async def _cluster() -> Cluster | None:
    """Who this server is, also while the database is away; None if that was never known."""
    global _seen
    now = time.monotonic()
    if _seen is None or now - _seen.at > limits.CLUSTER_SEEN_SECONDS:
        with contextlib.suppress(OperationalError, InterfaceError):
            _seen = _Seen(await reading(Cluster.get), now)
    return _seen.cluster if _seen else None


@endpoint
async def identity(request: Request) -> Response:
    """GET, without a login: nothing but the proof, which a run wants to see before it sends its token."""
    return JSONResponse({})
