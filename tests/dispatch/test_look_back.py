"""What is looked at once a minute: how the pools stand, and which GPUs are held and idle."""

from datetime import timedelta

import pytest
from django.conf import LazySettings
from django.utils import timezone

from dispatch.keeping import pool_history
from dispatch.tasks import look_back
from dispatch.watching import idle_gpus
from hosts.models import Slot
from jobs import held_slots
from jobs.models import Member, PoolCount, SlotHold
from jobs.states import MemberState
from metrics import sample_store
from tests.rig.rows import make_gang

pytestmark = pytest.mark.django_db


def holding(*uuids: str) -> Member:
    """A member that has run for an hour on these GPUs."""
    (member,) = make_gang()
    started = timezone.now() - timedelta(hours=1)
    Member.objects.filter(pk=member.pk).update(state=MemberState.RUNNING, started_at=started)
    for index, uuid in enumerate(uuids):
        slot = Slot.objects.create(host=member.host, index=index, kind="cuda", uuid=uuid)
        SlotHold.objects.create(slot=slot, member=member)
    return member


def ship(member: Member, seconds: int, **percent: float) -> None:
    """What it measured in the last so many seconds, one batch each ten."""
    now = timezone.now().timestamp()
    for ago in range(seconds, 0, -10):
        record = {"t": [now - ago], "v": {f"gpu_util/{uuid}": [value] for uuid, value in percent.items()}}
        sample_store.store(member.allocation.task_id, member.host_id, "gpu1", [record])


def test_a_gpu_that_is_held_and_idle_is_marked_until_it_works_or_is_given_back() -> None:
    member = holding("a", "b")
    ship(member, 660, a=0.0, b=80.0)
    now = timezone.now()
    assert idle_gpus.look(now) == 1
    (hold,) = held_slots.held().select_related("slot")
    since = hold.slot.idle_since
    assert hold.slot.uuid == "a" and since is not None
    assert abs((now - since).total_seconds() - 600) < 1
    assert held_slots.of_task(member.allocation.task_id) == 1
    assert idle_gpus.look(now + timedelta(seconds=30)) == 0  # still idle, since the same time
    Member.objects.filter(pk=member.pk).update(started_at=now)  # another run has it now
    assert not held_slots.held().exists()
    Member.objects.filter(pk=member.pk).update(started_at=now - timedelta(hours=1))
    ship(member, 10, a=30.0, b=80.0)
    assert idle_gpus.look(timezone.now()) == 1 and not held_slots.held().exists()


def test_of_gpus_that_nobody_measures_nothing_is_said_and_the_look_can_be_off(settings: LazySettings) -> None:
    member = holding("a")
    assert idle_gpus.look(timezone.now()) == 0
    ship(member, 660, a=0.0)
    settings.IDLE_GPU_SECONDS = 0
    assert idle_gpus.look(timezone.now()) == 0


def test_pools_are_counted_once_a_minute_thinned_and_forgotten(settings: LazySettings) -> None:
    member = holding("a", "b")
    pool = member.allocation.pool
    look_back()
    look_back()
    (count,) = PoolCount.objects.filter(pool=pool)
    assert (count.slots, count.used_slots, count.waiting_tasks, count.seconds) == (2, 2, 0, 60)
    now = timezone.now().replace(minute=30, second=0, microsecond=0)
    settings.POOL_MINUTES_DAYS, settings.POOL_HISTORY_DAYS = 1.0, 3.0
    PoolCount.objects.all().delete()
    day_old = now - timedelta(days=1, hours=1)
    for minute in range(20):
        PoolCount.objects.create(
            pool=pool, at=day_old + timedelta(minutes=minute), slots=2, usable_slots=2, used_slots=minute // 10,
            waiting_tasks=minute, wanted_slots=0,
        )  # fmt: skip
    PoolCount.objects.create(
        pool=pool, at=now - timedelta(days=4), slots=2, usable_slots=2, used_slots=0, waiting_tasks=0, wanted_slots=0
    )  # fmt: skip
    for _ in range(2):
        pool_history.thin(now)
        rows = PoolCount.objects.order_by("at").values_list("seconds", "used_slots", "waiting_tasks")
        assert list(rows) == [(600, 0.0, 4.5), (600, 1.0, 14.5)]
    (span,) = pool_history.by_pool(day_old, now, 3600)
    (total,) = pool_history.totals(day_old, now, 3600)
    assert (span.pool, span.used, span.most_used, span.waiting, span.most_waiting) == (
        pool.name,
        0.5,
        1,
        9.5,
        14.5,
    )
    assert (total.usable, total.waiting, total.least_waiting, total.most_waiting) == (2, 9.5, 4.5, 14.5)
