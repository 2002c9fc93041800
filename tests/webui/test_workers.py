"""A real worker whose Redis is full, emptied and restarted, whose connections to PostgreSQL are cut, and which at last
takes no messages any more: it goes on within seconds, and in the end it leaves its place to another."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import redis as redis_client
from celery import Celery
from django.db import connection
from pytest_django.plugin import DjangoDbBlocker

from dispatch.keeping import figures
from embedded import folder, redis
from embedded.redis import Redis
from events import leases
from events.models import Lease
from hosts.models import PoolChange, ResourcePool
from hosts.pools import default_pool, mark_dirty
from tests.rig import pace, parts
from tests.rig.web import ROOT, database_url

pytestmark = pytest.mark.django_db(transaction=True)

LIMIT_SECONDS = 60.0
#: between two messages of a worker to itself. Two that are lost end it, and after Redis was away it takes Celery 2 s
#: to ask for a new connection: that must not look like deafness.
CANARY_SECONDS = 4
CELERY = [sys.executable, "-m", "celery", "--skip-checks", "-A"]
WORKER = [
    "webui",
    "worker",
    "--pool",
    "threads",
    "--concurrency",
    "2",
    "--without-gossip",
    "--without-mingle",
    "--without-heartbeat",
]


class Broker:
    """A Redis of this file alone (others leave messages), which can be started again."""

    def __init__(self, server: Redis, log: Path) -> None:
        self.url = server.url()
        self._server, self._log = server, log
        self._child = redis.start(server, log)

    def client(self) -> redis_client.Redis:
        return redis_client.Redis.from_url(self.url)

    def restart(self) -> None:
        self.end()
        self._child = redis.start(self._server, self._log)

    def end(self) -> None:
        parts.end(self._child, signal.SIGTERM)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("worker") / "worker.log"


@pytest.fixture(scope="module")
def broker(log: Path) -> Iterator[Broker]:
    with parts.private_folder("redis") as path:
        owner = parts.databases_account()
        running = Broker(redis.prepare(folder.prepare(path, owner), owner), log.with_name("redis.log"))
        yield running
        running.end()


@pytest.fixture(scope="module")
def worker(
    broker: Broker, log: Path, django_db_setup: None, django_db_blocker: DjangoDbBlocker
) -> Iterator["subprocess.Popen[bytes]"]:
    """A worker, with its beat."""
    with django_db_blocker.unblock():
        url = database_url()
    variables = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "queue")]),
        "DJANGO_SETTINGS_MODULE": "webui.settings",
        "DATABASE_URL": url,
        "REDIS_URL": broker.url,
        "TRAINMASTER_SECRET_KEY": "tests",
        "TRAINMASTER_DATA_DIR": str(log.parent),
        "TRAINMASTER_WORKER_SIGN": str(log.with_name("sign")),
        "TRAINMASTER_CANARY_SECONDS": str(CANARY_SECONDS),
    }
    with log.open("wb") as file:
        worker = subprocess.Popen([*CELERY, *WORKER], env=variables, cwd=ROOT, stdout=file, stderr=file)
    yield worker
    parts.end(worker, signal.SIGKILL)


def tick(broker: Broker) -> None:
    with Celery(broker=broker.url.replace("unix://", "redis+socket://", 1), set_as_current=False) as sends:
        for _ in range(20):
            sends.send_task("dispatch.tasks.tick", queue="trainmaster", ignore_result=True)


def wait_planned(log: Path, what: str) -> None:
    """Note a change, and wait for a pass that sees it."""
    pool = default_pool()
    mark_dirty(pool.pk)

    def planned() -> bool:
        connection.close()  # it may be one of those that were cut
        return not PoolChange.objects.filter(pool=pool).exists()

    assert pace.wait_until(planned, LIMIT_SECONDS), f"{what}\n{log.read_text()[-3000:]}"


@pytest.mark.survive(22)
def test_redis_full_emptied_and_restarted(
    worker: "subprocess.Popen[bytes]", broker: Broker, log: Path
) -> None:
    wait_planned(log, "at first")
    with closing(broker.client()) as asked:
        worker.send_signal(
            signal.SIGSTOP
        )  # so that there are messages for it, and then no space to take them
        tick(broker)
        asked.set("what others keep there", bytes(2**21))
        asked.config_set("maxmemory-policy", "noeviction")
        asked.config_set("maxmemory", "1mb")
        worker.send_signal(signal.SIGCONT)
        assert pace.wait_until(lambda: "used memory" in log.read_text(), LIMIT_SECONDS), "nobody noticed"
        asked.config_set("maxmemory", "256mb")
        wait_planned(log, "after it was full")
        asked.flushall()
        wait_planned(log, "after it was emptied")
    broker.restart()
    wait_planned(log, "after it was restarted")
    assert worker.poll() is None


@pytest.mark.survive(23)
def test_connections_to_postgresql_are_cut_again_and_again(
    worker: "subprocess.Popen[bytes]", log: Path
) -> None:
    for number in range(5):
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        wait_planned(log, f"cut {number}")
    assert worker.poll() is None
    assert ResourcePool.objects.count() == 1


@pytest.mark.survive(21)
def test_a_deaf_worker_ends_and_one_that_hears_does_not(
    worker: "subprocess.Popen[bytes]", broker: Broker, log: Path
) -> None:
    """The last of the tests of this worker, which it ends."""
    assert pace.wait_until(lambda: figures.read().workers == 1, LIMIT_SECONDS), log.read_text()[-3000:]
    assert log.with_name("sign").exists() and worker.poll() is None
    with Celery(broker=broker.url.replace("unix://", "redis+socket://", 1), set_as_current=False) as asks:
        for queues in asks.control.inspect().active_queues().values():
            for queue in queues:  # answers pings, and takes nothing
                asks.control.cancel_consumer(queue["name"])
    assert pace.wait_until(lambda: worker.poll() is not None, LIMIT_SECONDS)
    assert "This worker receives no messages" in log.read_text()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE events_lease SET expires_at = expires_at - interval '2 days'")
    leases.forget_workers()
    assert not Lease.objects.filter(name__startswith=leases.WORKER).exists()
