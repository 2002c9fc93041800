"""A worker that takes no messages any more ends, so that another can take its place; pings alone prove nothing."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from celery import Celery
from django.db import connection

from dispatch import figures
from events import leases
from events.models import Lease
from tests.rig import parts
from tests.rig.web import ROOT, database_url
from webui.embedded import processes
from webui.embedded.redis import Redis

pytestmark = [pytest.mark.survive(21), pytest.mark.django_db(transaction=True)]

LIMIT_SECONDS = 120.0
COMMAND = [
    sys.executable, "-m", "celery", "--skip-checks", "-A", "webui", "worker", "--pool", "threads",
    "--concurrency", "2", "--without-gossip", "--without-mingle", "--loglevel", "INFO",
]  # fmt: skip


@pytest.fixture
def broker() -> Iterator[Redis]:
    """A Redis of this test alone: others leave messages."""
    with parts.private_folder("redis") as path, parts.running_redis(path) as server:
        yield server


@pytest.fixture
def worker(broker: Redis, tmp_path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    variables = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "queue")]),
        "DJANGO_SETTINGS_MODULE": "webui.settings",
        "DATABASE_URL": database_url(),
        "REDIS_URL": broker.url(),
        "TRAINMASTER_SECRET_KEY": "tests",
        "TRAINMASTER_DATA_DIR": str(tmp_path),
        "TRAINMASTER_WORKER_SIGN": str(tmp_path / "sign"),
        "TRAINMASTER_CANARY_SECONDS": "1",
    }
    with (tmp_path / "worker.log").open("wb") as log:
        process = subprocess.Popen(COMMAND, env=variables, cwd=ROOT, stdout=log, stderr=log)
    yield process
    parts.end(process, 9)


def present() -> bool:
    return figures.read().workers == 1


def test_a_deaf_worker_ends_and_one_that_hears_does_not(
    worker: "subprocess.Popen[bytes]", broker: Redis, tmp_path: Path
) -> None:
    assert processes.wait_until(present, LIMIT_SECONDS), (tmp_path / "worker.log").read_text()[-3000:]
    assert (tmp_path / "sign").exists()
    before = Lease.objects.get(name__startswith=leases.WORKER).expires_at

    def renewed() -> bool:
        return Lease.objects.get(name__startswith=leases.WORKER).expires_at > before

    assert processes.wait_until(renewed, LIMIT_SECONDS) and worker.poll() is None
    with Celery(broker=broker.url().replace("unix://", "redis+socket://", 1), set_as_current=False) as asks:
        for queues in asks.control.inspect().active_queues().values():
            for queue in queues:  # answers pings, and takes nothing
                asks.control.cancel_consumer(queue["name"])
    assert processes.wait_until(lambda: worker.poll() is not None, LIMIT_SECONDS)
    assert "This worker takes no messages" in (tmp_path / "worker.log").read_text()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE events_lease SET expires_at = expires_at - interval '2 days'")
    leases.forget_workers()
    assert not Lease.objects.exists()
