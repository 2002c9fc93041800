"""Wake-ups: "look sooner". Redis carries them and may lose them; everybody also looks once a second."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cache

import redis
from celery import current_app
from django.conf import settings
from django.db import transaction

#: All topics share one Redis channel pattern, so that a process needs one subscription.
CHANNEL_PREFIX = "trainmaster:wake:"

log = logging.getLogger(__name__)


@cache
def _connection() -> redis.Redis:
    return redis.Redis.from_url(settings.REDIS_URL, socket_timeout=1, socket_connect_timeout=1)


def announce(*topics: str) -> None:
    """Tell every web process, after commit, that there is more to read about these topics.

    Topics: `log:<task id>`, `task:<id>`, `allocation:<id>`, `experiment:<id>`, `pool:<name>`, `hosts`, `experiments`.
    """
    names = sorted(set(topics))
    transaction.on_commit(lambda: _publish(names), robust=True)


def _publish(topics: list[str]) -> None:
    try:
        pipe = _connection().pipeline(transaction=False)
        for topic in topics:
            pipe.publish(CHANNEL_PREFIX + topic, "")
        pipe.execute()
    except redis.RedisError as error:  # a hint was lost; the cursor's own second finds the change
        log.info("wake-up not sent: %s", error)


def wake(task_name: str, *args: object, countdown: float | None = None) -> None:
    """Queue a Celery task by name after commit. A lost message costs a beat interval, never the work."""
    transaction.on_commit(lambda: _send(task_name, [args], countdown), robust=True)


def wake_all(task_name: str, calls: Sequence[tuple[object, ...]]) -> None:
    """The same for many calls of one task: one message each, over one connection."""
    if calls:
        transaction.on_commit(lambda: _send(task_name, calls, None), robust=True)


def _send(task_name: str, calls: Sequence[tuple[object, ...]], countdown: float | None) -> None:
    try:
        _connection().ping()  # fails at once when Redis is away, where kombu would try for 6 s
        with current_app.producer_or_acquire() as producer:
            for args in calls:
                current_app.send_task(
                    task_name,
                    args=args,
                    countdown=countdown,
                    producer=producer,
                    retry=False,
                    expires=60,
                    ignore_result=True,
                )
    except Exception as error:  # kombu wraps many transport errors; none of them may undo a committed change
        log.info("message %s not sent: %s", task_name, error)
