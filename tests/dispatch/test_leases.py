"""Work that one worker at a time does: it is another's soon after its worker froze, who then does no harm."""

import threading
import time
from datetime import timedelta

import pytest
from django.conf import LazySettings
from django.db import connection
from django.db.models.functions import Now

from dispatch.passes import pool_pass
from events import leases
from events.models import Lease
from hosts.pools import default_pool
from jobs.models import Allocation, SlotHold
from tests.rig.frozen import frozen_in
from tests.rig.world import make_host, submit_experiment

#: of a frozen worker's lease and transaction here; the limit of a wait is generous, for a busy machine is slow
SECONDS, LIMIT_SECONDS = 1.0, 60.0

SWEEPS = """
from events.leases import alone
with alone("sweep") as mine:
    freeze()
    print("holds" if mine.holds() else "lost")
"""
PLACES = """
from dispatch.passes import pool_pass
from hosts.pools import default_pool
apply = pool_pass.apply
def late(plan):
    done = apply(plan)
    freeze()
    return done
pool_pass.apply = late
try:
    print(pool_pass.one(default_pool().pk))
except DatabaseError:
    print("refused")
"""


@pytest.mark.survive(21)
@pytest.mark.django_db(transaction=True)
def test_a_frozen_workers_work_is_anothers_and_it_knows_when_it_wakes() -> None:
    with frozen_in(SWEEPS, TRAINMASTER_LEASE_SECONDS=str(SECONDS)) as worker:
        limit = time.monotonic() + LIMIT_SECONDS
        while (mine := leases.take("sweep", 60.0)) is None:
            assert time.monotonic() < limit, "the frozen worker still has the sweep"
            time.sleep(0.05)
        assert worker.go_on() == "lost"
        assert mine.renew(), "the late worker gave back what was ours"


@pytest.mark.survive(19, 21)
@pytest.mark.django_db(transaction=True)
def test_a_pass_that_froze_is_undone_and_another_is_made() -> None:
    make_host("gpu1", 2)
    submit_experiment(slots=2)
    with frozen_in(PLACES, TRAINMASTER_IDLE_TRANSACTION_SECONDS=str(SECONDS)) as worker:
        limit = time.monotonic() + LIMIT_SECONDS
        while pool_pass.one(default_pool().pk) is None:
            assert time.monotonic() < limit, "the frozen pass still has the pool"
            time.sleep(0.05)
        assert Allocation.objects.count() == 1
        assert worker.go_on() == "refused"
    assert Allocation.objects.count() == 1 and SlotHold.objects.count() == 2


@pytest.mark.django_db
def test_a_lease_is_one_holders_until_it_gives_it_back() -> None:
    first = leases.take("work", 60.0)
    assert first is not None and leases.take("work", 60.0) is None and first.renew()
    first.give_back()
    second = leases.take("work", 60.0)
    assert second is not None and second.fence == first.fence + 1
    first.give_back()  # late, and not its own any more
    assert not first.renew() and leases.take("work", 60.0) is None


@pytest.mark.django_db
def test_requests_that_waited_together_become_one() -> None:
    started = [leases.take("work", 60.0, every=30.0) for _ in range(2)]
    assert started[0] is not None and started[1] is None
    started[0].give_back()
    assert leases.take("work", 60.0, every=30.0) is None, "it was done a moment ago"
    assert leases.take("work", 60.0) is not None


@pytest.mark.survive(10)
@pytest.mark.django_db
def test_a_lease_from_a_future_that_was_set_back_binds_nobody() -> None:
    assert leases.take("work", 60.0) is not None
    Lease.objects.update(taken_at=Now() + timedelta(hours=1), expires_at=Now() + timedelta(hours=2))
    assert leases.take("work", 60.0) is not None


@pytest.mark.survive(19)
@pytest.mark.django_db(transaction=True)
def test_of_many_that_ask_at_once_one_gets_it(settings: LazySettings) -> None:
    settings.LEASE_SECONDS = 60.0
    got: list[int] = []
    ready = threading.Barrier(6)

    def ask() -> None:
        try:
            ready.wait()
            if (lease := leases.take("work", 60.0)) is not None:
                got.append(lease.fence)
        finally:
            connection.close()

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == [1]


@pytest.mark.django_db(transaction=True)
def test_a_lease_is_kept_through_a_wait_that_is_longer() -> None:
    lease = leases.take("work", 0.5)
    assert lease is not None
    with lease.kept():
        until = Lease.objects.get().expires_at
        limit = time.monotonic() + LIMIT_SECONDS
        while Lease.objects.get().expires_at <= until and time.monotonic() < limit:
            time.sleep(0.05)
        assert Lease.objects.get().expires_at > until
    assert lease.renew()
