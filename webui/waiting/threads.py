"""Where async code runs what blocks: bounded pools of threads, so that a wait never holds one of them.

Each thread keeps its database connection between calls and gives it up when it is broken. Shipping has a pool of its
own: a flood of log lines cannot keep pages and viewers waiting for a thread. So have small requests of programs, and
catching up: a user who reads a long way back, or searches with a slow pattern, keeps only similar requests waiting.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from typing import Any, ParamSpec, TypeVar

import psycopg
from asgiref.sync import SyncToAsync, sync_to_async
from django.db import close_old_connections, connection, connections

from experiments.models import Checkpoint
from webui import environment
from webui.waiting import turns

P = ParamSpec("P")
R = TypeVar("R")
Step = Callable[[Callable[[], bytes | None]], Awaitable[bytes | None]]

_readers = ThreadPoolExecutor(int(environment.number("TRAINMASTER_LIVE_THREADS", 6)), "live")
_behind = ThreadPoolExecutor(int(environment.number("TRAINMASTER_CATCH_UP_THREADS", 2)), "catch-up")
_writers = ThreadPoolExecutor(int(environment.number("TRAINMASTER_INTAKE_THREADS", 4)), "intake")
_answering = ThreadPoolExecutor(int(environment.number("TRAINMASTER_ANSWER_THREADS", 16)), "answers")
_files = ThreadPoolExecutor(int(environment.number("TRAINMASTER_FILE_THREADS", 4)), "files")
_clouds = ThreadPoolExecutor(int(environment.number("TRAINMASTER_CLOUD_THREADS", 8)), "clouds")


async def reading(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run a function that reads the database, for viewers and polls."""
    return await _kept(_readers, function, *args, **kwargs)


async def asking(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run a function that answers a small request of a program."""
    return await _kept(_answering, function, *args, **kwargs)


async def catching_up(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run a function that reads what others have read long ago, or that may take long."""
    return await _kept(_behind, function, *args, **kwargs)


async def storing(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run a function that stores what a runner ships."""
    return await _kept(_writers, function, *args, **kwargs)


async def on_files(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run a function that works on files and touches no database."""
    return await asyncio.get_running_loop().run_in_executor(_files, lambda: function(*args, **kwargs))


async def on_clouds(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run a function that asks another server, which may let it wait, and touches no database."""
    return await asyncio.get_running_loop().run_in_executor(_clouds, lambda: function(*args, **kwargs))


async def on_storage(checkpoint: Checkpoint, function: Callable[[], R]) -> R:
    """Run a function of `experiments.stored_files` for this checkpoint: only the server's own store is its own disk."""
    is_own = checkpoint.storage.get("type", "server") == "server"
    return await on_files(function) if is_own else await on_clouds(function)


async def stepped(parts: Generator[bytes], run: Step = catching_up) -> AsyncIterator[bytes]:
    """The parts of a generator that reads the database; a thread is held for one step at a time, and none of those
    that look at what is new. `run` runs each step where the parts come from something else."""
    try:
        while (part := await run(lambda: next(parts, None))) is not None:
            if part:
                yield part
    finally:
        with suppress(ValueError):  # a step that still runs in its thread ends there
            parts.close()


async def _kept(pool: ThreadPoolExecutor, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """The thread keeps its connection as long as it works."""

    def call() -> R:
        if _has_hung_up(connection.connection):
            connection.close()
        try:
            return function(*args, **kwargs)
        except Exception:  # many are answers; to find out whether the connection is broken costs a question
            close_old_connections()
            raise

    return await _in_context(pool, call)


def _has_hung_up(idle: psycopg.Connection[Any] | None) -> bool:
    """Whether the server has closed this connection: one that nobody asks has nothing else to say."""
    if idle is None or idle.closed:
        return idle is not None
    said = select.poll()
    said.register(idle.fileno(), select.POLLIN)
    return bool(said.poll(0))


async def _in_context(pool: ThreadPoolExecutor, call: Callable[[], R]) -> R:
    """In the context of whoever asks, which an executor does not pass on: an event there says from where."""
    return await asyncio.get_running_loop().run_in_executor(pool, copy_context().run, call)


async def release_thread() -> None:
    """Give back the thread and the connection that Django's ASGI handler keeps for a request.

    Its middleware runs in a thread of the request's own, which lives until the answer is sent. A view that
    is about to wait (a long poll, a followed log) calls this first; the next synchronous call makes another.
    It also gives back the user's turn, which no request that only waits may hold.
    """
    turns.give_back()
    context = SyncToAsync.thread_sensitive_context.get(None)
    if context is None:
        return
    if context in SyncToAsync.context_to_thread_executor:
        await sync_to_async(connections.close_all)()
        SyncToAsync.context_to_thread_executor.pop(context).shutdown(wait=False)
