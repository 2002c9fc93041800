"""A start that was planned from a snapshot, and what people edit before it is written."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.utils import timezone

from dispatch.passes import survey
from dispatch.passes.apply import apply
from hosts import pool_edits, registry
from hosts.models import Host, Slot
from jobs import held_slots, queue_edits
from jobs.models import Allocation, Job, Task
from jobs.queue_edits import Update
from scheduling.plan import decide
from tests.rig.world import make_host, submit_experiment

pytestmark = [pytest.mark.django_db, pytest.mark.survive(26)]


def moved_to_another_pool() -> None:
    pool_edits.create("other", {}, actor="user:ada")
    update = Update(str(Job.objects.get().pk), pool="other")
    queue_edits.apply([update], actor="user:ada", role="admin")


def limited() -> None:
    queue_edits.apply([Update(str(Job.objects.get().pk), max_slots=1)], actor="user:ada", role="admin")


def host_drained() -> None:
    registry.drain(Host.objects.get().pk, actor="user:root")


def host_disabled() -> None:
    registry.disable(Host.objects.get().pk, actor="user:root")


def host_moved() -> None:
    registry.change_pool(
        Host.objects.get().pk, pool_edits.create("other", {}, actor="user:a"), actor="user:a"
    )


def slot_disabled() -> None:
    held_slots.disable(Slot.objects.first().pk, drain=True, actor="user:root")  # type: ignore[union-attr]


def put_off() -> None:
    Task.objects.update(not_before=timezone.now() + timedelta(seconds=60))


def blocked() -> None:
    Task.objects.update(blocked_by="waits_for_upload")


@pytest.mark.parametrize(
    "edit",
    [
        moved_to_another_pool,
        limited,
        host_drained,
        host_disabled,
        host_moved,
        slot_disabled,
        put_off,
        blocked,
    ],
)
def test_a_start_that_an_edit_has_overtaken_is_dropped(edit: Callable[[], None]) -> None:
    make_host("gpu0", 2)
    job = submit_experiment(slots=2).job
    plan = decide(survey.take(job.pool, timezone.now()))
    assert len(plan.starts) == 1
    edit()
    assert apply(plan).started == 0 and not Allocation.objects.exists()


def test_a_start_that_nothing_has_overtaken_is_made() -> None:
    make_host("gpu0", 2)
    job = submit_experiment(slots=2).job
    queue_edits.apply([Update(str(job.pk), max_slots=2)], actor="user:ada", role="admin")
    assert apply(decide(survey.take(job.pool, timezone.now()))).started == 1
