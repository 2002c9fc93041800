"""Wake-ups: "look sooner". Redis carries them and may lose them; everybody also looks once a second."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import cache

import redis
from celery import current_app
from django.conf import settings
from django.db import connection, transaction

#: All topics share one Redis channel, and those of one transaction one message, with a line for each.
CHANNEL = "trainmaster:wake"

log = logging.getLogger(__name__)


@cache
def _connection(url: str) -> redis.Redis:
    return redis.Redis.from_url(url, socket_timeout=1, socket_connect_timeout=1)


class _Hints:
    """What one transaction has to tell once it is committed: every topic and every message once."""

    def __init__(self) -> None:
        self.topics: set[str] = set()
        self.calls: dict[str, dict[tuple[object, ...], None]] = {}  # task name -> arguments, in their order

    def send(self) -> None:
        _publish(sorted(self.topics), self.calls)


def _pending() -> _Hints:
    """The hints of the transaction under way; outside of one, hints that are sent when the caller is done."""
    for entry in connection.run_on_commit:  # a rollback has emptied it
        hints = getattr(entry[1], "__self__", None)
        if isinstance(hints, _Hints):
            return hints
    hints = _Hints()
    if connection.in_atomic_block:
        transaction.on_commit(hints.send, robust=True)
    return hints


def announce(*topics: str) -> None:
    """Tell every web process, after commit, that there is more to read about these topics.

    Topics: `log:<task id>`, `task:<id>`, `allocation:<id>`, `experiment:<id>`, `pool:<id>`, `plan:<pool id>`,
    `hosts`, `experiments` (which there are, and their states), `progress` (how far and how good they are), `templates`.
    """
    hints = _pending()
    hints.topics.update(topics)
    if not connection.in_atomic_block:
        hints.send()


def wake(task_name: str, *args: object) -> None:
    """Queue a Celery task by name after commit. A lost message costs a beat interval, never the work."""
    wake_all(task_name, [args])


def wake_all(task_name: str, calls: Sequence[tuple[object, ...]]) -> None:
    """Queue many calls of one task by name after commit: one message each, in one round trip to the broker."""
    if not calls:
        return
    hints = _pending()
    hints.calls.setdefault(task_name, {}).update(dict.fromkeys(calls))
    if not connection.in_atomic_block:
        hints.send()


def waiting() -> int:
    """Messages of the highest priority, which go first. 0 if Redis does not say: sending tells why."""
    try:
        return int(str(_connection(settings.REDIS_URL).llen(current_app.conf.task_default_queue)))
    except redis.RedisError:
        return 0


def _publish(topics: list[str], calls: Mapping[str, Iterable[tuple[object, ...]]]) -> None:
    try:
        pipe = _connection(settings.REDIS_URL).pipeline(transaction=False)
        if topics:
            pipe.publish(CHANNEL, "\n".join(topics))
        pipe.ping()  # fails at once when Redis is away, where kombu would try for 6 s
        pipe.execute()
        if any(calls.values()):
            _send(calls)
    except Exception as error:  # kombu wraps many transport errors; none of them may undo a committed change
        log.info("update hints were not sent; waiting pages will poll instead: %s", error)


def _send(calls: Mapping[str, Iterable[tuple[object, ...]]]) -> None:
    with current_app.producer_or_acquire() as producer, producer.batch():
        for name, arguments in calls.items():
            for args in arguments:
                current_app.send_task(name, args=args, producer=producer, retry=False, ignore_result=True)
