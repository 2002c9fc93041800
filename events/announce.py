"""Wake-ups: "look sooner". Redis carries them and may lose them; everybody also looks once a second."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import redis
from celery import current_app, uuid
from celery.signals import after_task_publish
from django.conf import settings
from django.db import connection, transaction

from events.paced import Paced

#: All topics share one Redis channel, and those of one transaction one message, with a line for each.
CHANNEL = "trainmaster:wake"


class _Pace(NamedTuple):
    """In a burst a process sends a message at once, and then one in so many seconds. If `joined`, all calls of the
    task share messages, else those with the same arguments do; the task takes the arguments of any number of calls."""

    every_seconds: float
    joined: bool


#: what topics are paced by, all of them together
_TOPICS = ("topics", None)
#: What a joined message asks for at most.
_MOST_JOINED = 100
_PACES = {
    "dispatch.tasks.tick": _Pace(0.02, joined=False),
    # all jobs of an array may begin in Slurm at once, and each says so several times
    "dispatch.tasks.tend_cluster": _Pace(0.5, joined=False),
    "dispatch.tasks.merge_log": _Pace(0.2, joined=True),
    # a short run has ended by then, and its end has brought the lines of its start into its log
    "dispatch.tasks.merge_logs": _Pace(2.0, joined=True),
}
#: Topics that are announced in a burst share messages: each goes to every web process, which reads it.
_TOPICS_EVERY_SECONDS = 0.05

log = logging.getLogger(__name__)


@cache
def _connection(url: str) -> redis.Redis:
    return redis.Redis.from_url(url, socket_timeout=1, socket_connect_timeout=1)


class _Hints:
    """What one transaction has to tell once it is committed: every topic and every message once."""

    def __init__(self) -> None:
        self.topics: set[str] = set()
        self.calls: dict[str, dict[tuple[object, ...], None]] = {}  # task name -> arguments, in their order
        #: what is done once in a transaction -> the names of the savepoints that were open when it was done
        self.done: dict[object, list[str]] = {}

    def send(self) -> None:
        topics = [topic for topic in sorted(self.topics) if _paced.is_due(_TOPICS, topic)]
        if topics or self.calls:
            _publish(topics, self.calls)


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


def is_first(key: object) -> bool:
    """Return True for the first call with this key in a transaction, and for every call outside of one.

    A call within a savepoint counts only while that savepoint is open, since it may be rolled back later.
    """
    if not connection.in_atomic_block or getattr(connection.atomic_blocks[0], "_from_testcase", False):
        return True
    done, savepoints = _pending().done, [name for name in connection.savepoint_ids if name]
    within = done.get(key)
    if within is not None and savepoints[: len(within)] == within:
        return False
    done[key] = savepoints
    return True


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


def waiting(priority: int = 0) -> int:
    """Messages of this priority, by default of the highest. 0 if Redis does not say: sending tells why."""
    queue = str(current_app.conf.task_default_queue)
    try:
        # kombu keeps a list for each priority; that of the highest has the queue's own name
        found = _connection(settings.REDIS_URL).llen(f"{queue}\x06\x16{priority}" if priority else queue)
        return int(str(found))
    except redis.RedisError:
        return 0


def _publish(topics: list[str], calls: Mapping[str, Collection[tuple[object, ...]]]) -> None:
    try:
        server = _connection(settings.REDIS_URL)
        if topics:
            _paced.rest(_TOPICS, _TOPICS_EVERY_SECONDS)
            server.publish(CHANNEL, "\n".join(topics))
        if any(calls.values()):
            if not topics:
                server.ping()  # fails at once when Redis is away, where kombu would try for 6 s
            _send(calls)
    except Exception as error:  # kombu wraps many transport errors; none of them may undo a committed change
        log.info("update hints were not sent; waiting pages will poll instead: %s", error)


def _send(calls: Mapping[str, Iterable[tuple[object, ...]]]) -> None:
    """As Celery's `send_task`, but the queue is looked up once: that and its declaration are most of the time there."""
    app = current_app
    with app.producer_or_acquire() as producer, producer.batch():
        for name, arguments in calls.items():
            route = app.amqp.router.route({}, name)
            where = {"exchange": "", "routing_key": route.pop("queue", app.amqp.default_queue).name}
            for args in _due(name, arguments):
                headers, properties, body, _ = app.amqp.as_task_v2(
                    uuid(), name, args, argsrepr=repr(args)[:200], kwargsrepr="{}", ignore_result=True
                )
                producer.publish(body, headers=headers, retry=False, **where, **route, **properties)
                after_task_publish.send(sender=name, body=body, headers=headers, **where)


def _due(name: str, calls: Iterable[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """Those of the calls to send now; the others follow when the rest of their task is over."""
    pace = _PACES.get(name)
    if pace is None:
        return list(calls)
    keys = {args: (name, None if pace.joined else args) for args in calls}
    due = [args for args, key in keys.items() if _paced.is_due(key, args)]
    for args in due:
        _paced.rest(keys[args], pace.every_seconds)
    return due


def _send_rest(key: tuple[str, object], asked: list[Any]) -> None:
    if key == _TOPICS:
        _publish(asked, {})
    else:
        _publish([], {key[0]: list(_joined(asked))})


def _joined(calls: list[tuple[object, ...]]) -> Iterator[tuple[object, ...]]:
    """The arguments of these calls as few calls, none so long that a worker is at it for long or loses much."""
    message: dict[object, None] = {}
    size = 0
    for args in calls:
        more = sum(len(each) if isinstance(each, tuple | list) else 1 for each in args)
        if message and size + more > _MOST_JOINED:
            yield tuple(message)
            message, size = {}, 0
        message.update(dict.fromkeys(args))
        size += more
    yield tuple(message)


_paced = Paced(_send_rest)
