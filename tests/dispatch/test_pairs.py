"""A batch of pairs that takes long is nobody else's meanwhile, and holds no connection that others need."""

import socket
import threading

import pytest
from django.db import connection
from django.utils import timezone

from dispatch.watching import pairs
from hosts import pair_checks
from hosts.models import Host, PairSearch
from hosts.pools import default_pool

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_batch_is_claimed_for_longer_than_it_can_take_and_waits_without_a_connection() -> None:
    spare = 15
    waits = 30 + 3 * (pairs.MEETING_SECONDS + spare) + pairs.ALL_REDUCE_SECONDS + spare
    assert pairs.longest_seconds() > 2 * waits, "a bad pair meets twice"
    pool = default_pool()
    with socket.create_server(("127.0.0.1", 0)) as mute:  # who dials it waits for its word
        port = mute.getsockname()[1]
        for each in range(2):
            Host.objects.create(
                name=f"gpu{each}", pool=pool, address="127.0.0.1", port=port, admission=Host.Admission.READY
            )
        pair_checks.begin(pool, actor="user:ann")
        begun = timezone.now()
        before = backends()
        worker = threading.Thread(target=work, args=(pool.pk,))
        worker.start()
        dialled, _ = mute.accept()
        claimed = PairSearch.objects.get().claimed_until
        assert claimed is not None and (claimed - begun).total_seconds() > pairs.longest_seconds()
        assert backends() <= before, "it holds none"
        dialled.close()
    worker.join(60)
    search = PairSearch.objects.get()
    assert search.ended_at is not None and search.claimed_until is None
    assert [row["hosts"] for row in search.untested] == [["gpu0", "gpu1"]]


def work(pool_id: int) -> None:
    try:
        pairs.go_on(pool_id)
    finally:
        connection.close()


def backends() -> set[int]:
    """The processes that serve this database's connections; web processes of other tests may have some."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() "
            "AND backend_type = 'client backend'"
        )
        return {pid for (pid,) in cursor.fetchall()}
