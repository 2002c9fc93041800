"""Messages are hints: no machine's clock judges them, and a Redis that is away, full or empty costs no row."""

import base64
import json
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis as redis_client
from celery import Celery
from django.conf import LazySettings
from django.db import connection, transaction
from django.utils import timezone

from dispatch import tasks
from dispatch.passes import pool_pass
from dispatch.watching import beat
from embedded import redis
from embedded.redis import Redis
from events import announce
from hosts.models import PoolChange, ResourcePool
from hosts.pools import default_pool, mark_dirty
from jobs.models import Allocation, SlotHold
from notifications import outbox
from tests.rig import parts
from tests.rig.web import database_url
from tests.rig.world import make_host, submit_experiment

#: kombu's name of the list of messages without a priority
QUEUE = "celery"


@pytest.fixture
def own_redis(settings: LazySettings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Redis]:
    """A Redis of this test alone, which hints go to."""
    with parts.private_folder("redis") as path, parts.running_redis(path) as server:
        settings.REDIS_URL = server.url()
        app = Celery(broker=server.url().replace("unix://", "redis+socket://", 1), set_as_current=False)
        monkeypatch.setattr(announce, "current_app", app)
        yield server
        app.close()


def client(server: Redis) -> redis_client.Redis:
    return redis_client.Redis.from_url(server.url())


def messages(server: Redis) -> list[dict[str, Any]]:
    with client(server) as asked:
        return [json.loads(each) for each in asked.lrange(QUEUE, 0, -1)]  # type: ignore[union-attr]


def make_pool(name: str) -> ResourcePool:
    """A row, and in its transaction a hint of it."""
    with transaction.atomic():
        pool = ResourcePool.objects.create(name=name)
        mark_dirty(pool.pk)
        announce.wake("dispatch.tasks.tick", pool.pk)
    return pool


@pytest.mark.survive(18)
@pytest.mark.django_db(transaction=True)
def test_a_transaction_marks_a_pool_once_and_again_if_that_was_undone() -> None:
    pool = default_pool()
    PoolChange.objects.all().delete()
    with transaction.atomic():
        mark_dirty(pool.pk)
        with transaction.atomic():
            mark_dirty(pool.pk)
        mark_dirty(pool.pk)
    assert PoolChange.objects.filter(pool=pool).count() == 1
    with transaction.atomic():
        with pytest.raises(RuntimeError), transaction.atomic():
            mark_dirty(pool.pk)
            raise RuntimeError("undone")
        mark_dirty(pool.pk)
        with transaction.atomic():
            mark_dirty(pool.pk)
    assert PoolChange.objects.filter(pool=pool).count() == 2


@pytest.mark.survive(10)
@pytest.mark.django_db(transaction=True)
def test_no_message_expires_by_the_clock_of_who_sends_or_takes_it(own_redis: Redis) -> None:
    pool = make_pool("a")
    (message,) = messages(own_redis)
    assert json.loads(base64.b64decode(message["body"]))[0] == [pool.pk]
    assert message["headers"]["expires"] is None and message["headers"]["eta"] is None


@pytest.mark.survive(22)
@pytest.mark.django_db(transaction=True)
def test_a_full_an_empty_and_an_absent_redis_undo_nothing_and_hints_flow_again(own_redis: Redis) -> None:
    with client(own_redis) as asked:
        asked.config_set("maxmemory-policy", "noeviction")
        asked.set("what others keep there", bytes(2**21))
        asked.config_set("maxmemory", "1mb")
        pools = [make_pool("while it is full")]
        assert messages(own_redis) == [], "it was not full"
        asked.config_set("maxmemory", "256mb")
        pools.append(make_pool("there is space again"))
        assert len(messages(own_redis)) == 1
        asked.flushall()
        pools.append(make_pool("it was emptied"))
        assert len(messages(own_redis)) == 1
        asked.shutdown(nosave=True)
    pools.append(make_pool("while it is away"))
    child = redis.start(own_redis, Path(own_redis.socket).parent / "redis.log")
    try:
        pools.append(make_pool("it is back"))
        assert len(messages(own_redis)) == 1
    finally:
        parts.end(child, signal.SIGTERM)
    rows = PoolChange.objects.values_list("pool_id", flat=True)
    assert set(rows) >= {pool.pk for pool in pools}, "each change is noted where a tick finds it by itself"


@pytest.mark.survive(19, 20)
@pytest.mark.django_db(transaction=True)
def test_three_beats_and_three_workers_start_nothing_twice(own_redis: Redis) -> None:
    make_host("gpu1", 4)
    for _ in range(6):
        submit_experiment()
    ready = threading.Barrier(3)

    def worker() -> None:
        try:
            ready.wait()
            for _beat in range(3):
                tasks.tick()
                tasks.sweep()
        finally:
            connection.close()

    workers = [threading.Thread(target=worker) for _ in range(3)]
    for each in workers:
        each.start()
    for each in workers:
        each.join()
    held = list(SlotHold.objects.filter(released_at=None).values_list("slot_id", flat=True))
    assert len(held) == len(set(held)) == Allocation.objects.count() == 4
    pool_pass.run(default_pool().pk)
    assert not pool_pass.due_pools(default_pool().planned_at), "a tick with nothing to see asks one statement"


@pytest.mark.survive(21, 40)
def test_a_beat_sends_nothing_while_no_worker_takes_what_waits(own_redis: Redis) -> None:
    announce.current_app.conf.task_default_queue = QUEUE
    beating, sweep = beat.Beat(), "dispatch.tasks.sweep"
    with client(own_redis) as asked:
        for _ in range(2):
            beating.send(sweep)
        assert asked.llen(QUEUE) == 2
        asked.rpush(QUEUE, *[b"a message that nobody took"] * beat.WAITING_MAX)
        beating.send(sweep)
        assert asked.llen(QUEUE) == 2 + beat.WAITING_MAX
        asked.flushall()
        beating.send(sweep)
        assert asked.llen(QUEUE) == 1


@pytest.mark.django_db(transaction=True)
@pytest.mark.survive(18)
def test_hosts_are_asked_behind_passes_and_again_only_once_they_have_been(
    own_redis: Redis, settings: LazySettings
) -> None:
    announce.current_app.conf.task_default_queue = QUEUE
    announce.current_app.conf.task_routes = settings.CELERY_TASK_ROUTES
    for name in ("gpu1", "gpu2"):
        host = make_host(name, 1)
        host.drain_cause = host.Drain.CLEANUP
        host.save()
    with client(own_redis) as asked:
        asked.flushall()
        tasks._ask_hosts()
        assert (asked.llen(QUEUE), announce.waiting(3)) == (0, 2)
        tasks._ask_hosts()
        assert announce.waiting(3) == 2, "questions of two sweeps do not pile up"
        announce.wake("dispatch.tasks.tick")
        assert (asked.llen(QUEUE), announce.waiting(6)) == (1, 0)


@pytest.mark.django_db(transaction=True)
def test_a_beat_sends_no_tick_and_no_look_that_would_find_nothing(own_redis: Redis) -> None:
    announce.current_app.conf.task_default_queue = QUEUE
    beating = beat.Beat()

    def sent() -> list[str]:
        with client(own_redis) as asked:
            asked.flushall()
        for task in ("dispatch.tasks.tick", "notifications.tasks.look"):
            beating.send(task)
        return [each["headers"]["task"] for each in messages(own_redis)]

    pool = default_pool()
    tasks.tick()
    for _ in range(2):  # the cursor comes to the end of what has happened in two looks
        outbox.look(timezone.now())
    assert sent() == []
    mark_dirty(pool.pk)
    assert sent() == ["dispatch.tasks.tick"]
    submit_experiment()
    assert "notifications.tasks.look" in sent()


@pytest.mark.survive(23)
@pytest.mark.django_db(transaction=True)
def test_a_beat_continues_when_its_connection_to_postgresql_is_cut(own_redis: Redis) -> None:
    announce.current_app.conf.task_default_queue = QUEUE
    beating, tick = beat.Beat(), "dispatch.tasks.tick"
    default_pool()
    tasks.tick()
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        (own,) = cursor.fetchone()
    with psycopg.connect(database_url(), autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s, 5000)", [own])
    beating.send(tick)
    assert len(messages(own_redis)) == 1, "it can't know, so the task has to look"
    beating.send(tick)
    assert len(messages(own_redis)) == 1, "it knows again, over a new connection"
