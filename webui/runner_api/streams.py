"""Batches, heartbeats and the long poll for signals of one gang member."""

from __future__ import annotations

import asyncio
import logging
import math
import time
import weakref
import zlib
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import Error
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from accounts.rights import Right
from dispatch.runs import detached, heartbeats, intake
from events.wakeups import LOOK_AGAIN_SECONDS, wakeups
from jobs.models import Allocation
from webui.query import as_number
from webui.runner_api import access, limits
from webui.runner_api.answers import (
    RefusedRequest,
    answer_of,
    endpoint,
    read_body,
    read_object,
    token_of,
    too_large,
    whole,
)
from webui.waiting.threads import reading, storing

log = logging.getLogger(__name__)
_JOBS_KEPT = 1024


class Pending:
    """Batches that this process has in memory. More than the limits allow are sent away, not queued."""

    def __init__(self) -> None:
        self.batches = 0
        self.bytes = 0

    @contextmanager
    def one(self, size: int) -> Iterator[None]:
        if self.batches >= limits.PENDING_BATCHES or self.bytes + size > limits.PENDING_BYTES:
            sentence = "The server is still storing many batches; send this one later."
            raise RefusedRequest(429, sentence, retry_after=limits.RETRY_AFTER_SECONDS)
        self.batches += 1
        self.bytes += size
        try:
            yield
        finally:
            self.batches -= 1
            self.bytes -= size


_pending = Pending()


@endpoint("POST", Right.RUN)
async def batch(request: Request) -> Response:
    """POST: whole records from byte `offset` of the outbox on."""
    token, allocation_id, index = token_of(request), *_member(request)
    offset = _offset(request)
    announced = request.headers.get("content-length", "")
    size = int(announced) if announced.isdecimal() else limits.BATCH_BYTES_SENT
    if size > limits.BATCH_BYTES_SENT:
        raise too_large(limits.BATCH_BYTES_SENT)
    sender = await _sender(token, allocation_id, index)
    share = budgets.admit(sender.job_id)
    with _pending.one(size), share.one():
        sent = await read_body(request, limits.BATCH_BYTES_SENT)
        coding = request.headers.get("content-encoding", "identity").lower()
        async with share.at_work:
            stored, taken = await storing(_store, sender.member_id, offset, sent, coding)
        share.take(taken)
        return answer_of(stored)


def _store(member_id: int, offset: int, sent: bytes, coding: str) -> tuple[intake.Intake, int]:
    """The answer, and how many bytes of the outbox the batch was."""
    body = unpacked(sent, coding)
    return _unless_over(member_id, lambda: intake.store(member_id, offset, body)), len(body)


def _unless_over(member_id: int, work: Callable[[], intake.Intake]) -> intake.Intake:
    """The work; an attempt that was given up in silence is opened again for it. Raises Over."""
    try:
        return work()
    except intake.Over:
        if not detached.reopen(member_id):
            raise
        return work()


def unpacked(sent: bytes, coding: str) -> bytes:
    """The body without its content coding. Raises RefusedRequest (400, 413, 415)."""
    if coding == "identity":
        return sent
    if coding != "gzip":
        raise RefusedRequest(415, f"Content-Encoding is {coding!r}; allowed: gzip, identity.")
    inflate = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        content = inflate.decompress(sent, limits.BATCH_BYTES_UNPACKED)
    except zlib.error as error:
        raise RefusedRequest(400, f"The body is not gzip: {error}.") from error
    if inflate.unconsumed_tail:
        raise too_large(limits.BATCH_BYTES_UNPACKED)
    if not inflate.eof:
        raise RefusedRequest(400, "The gzip body ends too early; send the batch again.")
    return content


def _member(request: Request) -> tuple[str, int]:
    return str(request.path_params["allocation_id"]), int(request.path_params["member"])


def _offset(request: Request) -> int:
    return whole(request.query_params.get("offset", ""), "offset")


@endpoint("POST", Right.RUN)
async def heartbeat(request: Request) -> Response:
    """POST: the runner lives, and this is the state of its spool."""
    token, allocation_id, index = token_of(request), *_member(request)
    sender = await _sender(token, allocation_id, index)
    said = await read_object(request, limits.SMALL_BODY_BYTES)

    def note() -> intake.Intake:
        return _unless_over(sender.member_id, lambda: heartbeats.heartbeat(sender.member_id, said))

    return answer_of(await storing(note))


async def _sender(token: str, allocation_id: str, index: int) -> access.Sender:
    """Who sends: known before the body is read, so that nobody else has one read here. Raises RefusedRequest, Over."""
    if (known := access.known_sender(token, allocation_id, index)) is not None:
        return known
    return await storing(access.sender_of, token, allocation_id, index)


State = tuple[str, str]  # state and what kind of stop was asked for
_GONE: State = ("", "")


class Changes:
    """Looks once a second at the orders of all allocations that are polled here, in one query.

    Wake-ups make long polls answer at once; a lost one costs a second, and a thousand polls still one query.
    """

    def __init__(self) -> None:
        self._watched: Counter[str] = Counter()
        self._seen: dict[str, State] = {}
        self._task: asyncio.Task[None] | None = None

    @contextmanager
    def watching(self, allocation_id: str) -> Iterator[None]:
        """As long as this lasts, changes of the allocation are announced in this process."""
        self._watched[allocation_id] += 1
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._look_while_watched(), name="signals")
        try:
            yield
        finally:
            self._watched[allocation_id] -= 1
            if not self._watched[allocation_id]:
                del self._watched[allocation_id]

    async def _look_while_watched(self) -> None:
        while self._watched:
            await asyncio.sleep(LOOK_AGAIN_SECONDS)
            try:
                now = await reading(_states, list(self._watched))
            except Error as error:
                log.info("cannot check for orders: %s", error)
                continue
            for allocation_id in self._watched:
                if self._seen.get(allocation_id) != now.get(allocation_id, _GONE):
                    wakeups().wake(f"allocation:{allocation_id}")
            self._seen = {name: now.get(name, _GONE) for name in self._watched}


def _states(allocation_ids: list[str]) -> dict[str, State]:
    rows = Allocation.objects.filter(pk__in=allocation_ids).values_list("pk", "state", "stop_kind")
    return {pk: (state, stop_kind) for pk, state, stop_kind in rows}


_by_loop: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Changes] = weakref.WeakKeyDictionary()


def changes() -> Changes:
    return _by_loop.setdefault(asyncio.get_running_loop(), Changes())


@endpoint("GET", Right.RUN)
async def signals(request: Request) -> Response:
    """GET: a long poll. It answers when there are orders that the runner does not have, or after `wait` s."""
    token, allocation_id, index = token_of(request), *_member(request)
    have = frozenset(filter(None, request.query_params.get("have", "").split(",")))
    until = time.monotonic() + _wait_seconds(request)

    def look() -> intake.Intake:
        sender = access.sender_of(token, allocation_id, index)
        return _unless_over(sender.member_id, lambda: intake.signals(sender.member_id, allocation_id, have))

    with wakeups().watch(f"allocation:{allocation_id}") as watch, changes().watching(allocation_id):
        while True:
            orders = await reading(look)
            given = {name for name, order in (("preempt", orders.preempt), ("stop", orders.stop)) if order}
            left = until - time.monotonic()
            if given - have or left <= 0:
                return answer_of(orders)
            # `changes` looks once a second for all polls of this process, so each may wait for its wake-up
            await _woken_or_gone(request, watch.wait(left))


async def _woken_or_gone(request: Request, wake: Coroutine[Any, Any, object]) -> None:
    """Wait for the wake-up; a runner that hangs up meanwhile ends the poll."""
    waiting = asyncio.create_task(wake)
    gone = asyncio.create_task(_disconnected(request))
    try:
        await asyncio.wait({waiting, gone}, return_when=asyncio.FIRST_COMPLETED)
        if gone.done() and not waiting.done():
            raise ClientDisconnect
    finally:
        waiting.cancel()
        gone.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _wait_seconds(request: Request) -> float:
    text = request.query_params.get("wait", "0")
    seconds = as_number(text)
    if seconds is None or seconds < 0:
        raise RefusedRequest(400, f"wait is {text!r}; it must be a number of seconds, 0 or more.")
    return min(seconds, limits.LONG_POLL_SECONDS_MAX)


class Share:
    """One job's bucket of bytes (unpacked, as they count in its streams), and its batches that are here now.

    A batch is let in while there is something in the bucket, and may take more than there is: then the job's next
    ones are told to come when the debt is paid.
    """

    def __init__(self, now: float) -> None:
        self._left = settings.LOG_BURST_BYTES
        self._at = now
        #: a turn among the job's own batches: those of one task are stored one after the other anyway
        self.at_work = asyncio.Semaphore(limits.JOB_BATCHES_AT_WORK)
        self.waiting = 0

    def is_full(self, now: float) -> bool:
        self._fill(now)
        return self._left >= settings.LOG_BURST_BYTES and not self.waiting

    def seconds_of_debt(self, now: float) -> float:
        self._fill(now)
        return max(0.0, -self._left / settings.LOG_BYTES_PER_SECOND)

    def take(self, size: int) -> None:
        self._left -= size

    def _fill(self, now: float) -> None:
        self._left = min(
            settings.LOG_BURST_BYTES, self._left + (now - self._at) * settings.LOG_BYTES_PER_SECOND
        )
        self._at = now

    @contextmanager
    def one(self) -> Iterator[None]:
        """A batch is here: from before its body has arrived, which may take long."""
        self.waiting += 1
        try:
            yield
        finally:
            self.waiting -= 1


class Budgets:
    """The shares of the jobs that have shipped lately, so that a flood of one slows neither pages nor other jobs."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._shares: dict[UUID, Share] = {}

    def admit(self, job_id: UUID) -> Share:
        """The job's share. Raises RefusedRequest (429) while it is in debt or has as many batches here as it may."""
        now = self._clock()
        share = self._shares.get(job_id)
        if share is None:
            self._forget_idle(now)
            share = self._shares[job_id] = Share(now)
        debt = share.seconds_of_debt(now)
        if debt > 0:
            raise RefusedRequest(
                429,
                f"This job ships more than {settings.LOG_BYTES_PER_SECOND:,.0f} bytes per second; "
                "further data waits on its host.",
                retry_after=math.ceil(debt),
            )
        if share.waiting >= limits.JOB_PENDING_BATCHES:
            sentence = "The server is still storing many batches of this job; send this one later."
            raise RefusedRequest(429, sentence, retry_after=limits.RETRY_AFTER_SECONDS)
        return share

    def _forget_idle(self, now: float) -> None:
        if len(self._shares) >= _JOBS_KEPT:
            self._shares = {job: share for job, share in self._shares.items() if not share.is_full(now)}


budgets = Budgets()
