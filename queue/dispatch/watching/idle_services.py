"""Ends shells, notebooks and TensorBoards that nobody has used for as long as their idle timeout.

What passes through the server is noted when it passes (commands.services.used). Only when that is long ago is a
notebook itself asked whether its kernels are at work, so nobody is asked in vain. Many are asked side by side, each for
a bounded time, so that a silent host, or a notebook that dribbles its answer, delays nobody.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import quote, urlencode
from uuid import UUID

import httpcore
from django.conf import settings
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from commands import services
from commands.models import Command, Service
from dispatch.going_on import going_on
from dispatch.ssh import doors
from dispatch.ssh.doors import Backend
from jobs.models import Job
from trainmaster import bounded_json

log = logging.getLogger(__name__)

_ACTOR = "server"
#: for all that one notebook is asked, the way to it included
_ANSWER_SECONDS = 20.0
_ANSWER_BYTES = 4 * 1024 * 1024
_SESSIONS_MAX = 50


class Unanswered(Exception):
    """A notebook did not say whether it is idle; the message is a sentence."""


def stop_unused() -> None:
    """Look at all whose time has come."""
    due = list(services.unused())
    asked: dict[UUID, tuple[doors.Door, Command]] = {}
    for service in due:
        with going_on(f"the way to {service.command_id}"):
            door = doors.door_of(service.command) if service.command.kind == Job.Kind.NOTEBOOK else None
            if door is not None:
                asked[service.command_id] = door, service.command
    answers = asyncio.run(_ask_all(asked)) if asked else {}
    for service in due:
        with going_on(f"the idle timeout of {service.command_id}"):
            _settle(service, answers.get(service.command_id))


def _settle(service: Service, answer: datetime | Unanswered | None) -> None:
    if isinstance(answer, Unanswered):
        log.info("cannot check whether notebook %s is idle: %s", service.command_id, answer)
    elif answer is None or not services.was_used(service, answer):
        services.stop_unused(service.command, actor=_ACTOR)


async def _ask_all(
    asked: Mapping[UUID, tuple[doors.Door, Command]],
) -> dict[UUID, datetime | Unanswered | None]:
    """When each was at work last; SERVICES_ASKED_AT_ONCE at a time."""
    places = asyncio.Semaphore(settings.SERVICES_ASKED_AT_ONCE)

    async def ask(door: doors.Door, command: Command) -> datetime | Unanswered | None:
        async with places:
            try:
                async with asyncio.timeout(_ANSWER_SECONDS):
                    return await _active_at(door, command)
            except TimeoutError:
                return Unanswered(f"no answer within {_ANSWER_SECONDS:g} s")
            except (doors.RemoteError, OSError, httpcore.NetworkError, httpcore.ProtocolError) as error:
                return Unanswered(str(error) or type(error).__name__)
            except Unanswered as error:
                return error
            except (
                Exception
            ) as error:  # the task's owner can answer what he likes, and it must not reach the others
                return Unanswered(f"the answer is not a notebook's: {error!r}")

    found = await asyncio.gather(*(ask(door, command) for door, command in asked.values()))
    return dict(zip(asked, found, strict=True))


async def _active_at(door: doors.Door, command: Command) -> datetime | None:
    """When the notebook was at work last, in the sense of its `notebook_idle_type`; now, if it is."""
    kind = command.config.get("notebook_idle_type") or "kernels_or_terminals"
    base = f"/proxy/{command.pk}/api"
    async with httpcore.AsyncConnectionPool(max_connections=1, network_backend=Backend(door)) as pool:
        kernels = await _json(pool, f"{base}/kernels")
        if kind == "kernel_connections":
            return timezone.now() if any(kernel.get("connections") for kernel in kernels) else None
        if kind == "kernels_or_terminals":
            return timezone.now() if kernels or await _json(pool, f"{base}/terminals") else None
        if any(kernel.get("execution_state") == "busy" for kernel in kernels):
            return timezone.now()
        return await _last_deed(pool, base, kernels)


async def _last_deed(
    pool: httpcore.AsyncConnectionPool, base: str, kernels: list[dict[str, Any]]
) -> datetime | None:
    """When somebody did something last: in a kernel, in a terminal, or by saving a notebook that has a kernel.

    Jupyter's own last activity counts what an open page asks every few seconds by itself.
    """
    found = [each.get("last_activity") for each in [*kernels, *await _json(pool, f"{base}/terminals")]]
    for session in (await _json(pool, f"{base}/sessions"))[:_SESSIONS_MAX]:
        try:
            about = await _json(pool, f"{base}/contents/{quote(session['path'])}", content="0")
        except Unanswered:  # removed or renamed since
            continue
        found.append(about.get("last_modified"))
    times = (parse_datetime(str(each or "")) for each in found)
    return max((each for each in times if each is not None), default=None)


async def _json(pool: httpcore.AsyncConnectionPool, path: str, **query: str) -> Any:
    """What the notebook answers. Raises Unanswered, ValueError."""
    body = b""
    asked = urlencode({"no_track_activity": "1", **query})
    async with pool.stream("GET", f"http://localhost{path}?{asked}") as answer:
        if answer.status != 200:
            raise Unanswered(f"{path} was answered with {answer.status}")
        async for block in answer.aiter_stream():
            body += block
            if len(body) > _ANSWER_BYTES:
                raise Unanswered(f"{path} was answered with more than {_ANSWER_BYTES} bytes")
    return bounded_json.loads(body)
