"""Rows for tests of the queue: a pool with hosts that answer, people, and experiments submitted the real way."""

import uuid
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from django.utils import timezone

from accounts.models import User
from dispatch.passes import kept_plan, survey
from events import presence
from events.models import Presence
from events.presence import Part, Whole
from experiments import submit
from experiments.config import parse
from experiments.models import Experiment, Project, Trial
from hosts.models import Host, PoolPlan, ResourcePool, Slot
from hosts.pools import default_pool
from jobs import assigning
from jobs.models import Allocation, Member
from submissions import contexts

CONFIG = """
name: {name}
entrypoint: python3 train.py
hyperparameters: {{}}
searcher: {{name: single, metric: loss, max_length: {{batches: 10}}}}
max_restarts: {max_restarts}
resources: {{slots_per_trial: {slots}{priority}{max_time}{hosts}}}
"""


def make_user(name: str = "ada", role: str = User.Role.EDITOR) -> User:
    return User.objects.get_or_create(username=name, defaults={"role": role})[0]


def make_host(name: str, slots: int, pool: ResourcePool | None = None) -> Host:
    """A ready, reachable host with CPU slots."""
    host = Host.objects.create(
        name=name,
        pool=pool or default_pool(),
        transport=Host.Transport.LOCAL,
        admission=Host.Admission.READY,
        contact=Host.Contact.REACHABLE,
        last_seen_at=timezone.now(),
        address=f"10.0.0.{Host.objects.count() + 1}",
    )
    for index in range(slots):
        Slot.objects.create(host=host, index=index, kind=Slot.Kind.CPU)
    return host


def be_whole(seconds: float = 7 * 24 * 3600.0) -> Whole:
    """Every part of the control plane has been there for so long, without a gap."""
    for part in Part:
        presence.stamp(part)
    now = presence.database_now()
    Presence.objects.update(since=now - timedelta(seconds=seconds), stamped_at=now)
    found = presence.whole()
    assert found is not None
    return found


def plan_of(pool: ResourcePool) -> dict[str, Any]:
    """What is kept of the last pass of a pool: the plan and the forecast."""
    kept = kept_plan.read(pool.pk)
    return {**kept.document, **kept.forecast}


def keep_plan(pool: ResourcePool, **parts: Any) -> None:
    """Keep these parts as the plan and the forecast of its last pass, a moment after the one before."""
    futures = {name: parts.pop(name) for name in ("forecast", "forecast_of", "unknown") if name in parts}
    waits = [(reason, [task_id]) for task_id, reason in parts.pop("waits", {}).items()]
    kept = {"document": {**parts, "waits": waits}, "changes": {}, "written_at": None}
    if futures:
        kept |= {"forecast": futures, "forecast_at": None}
    PoolPlan.objects.update_or_create(pool=pool, defaults=kept)
    ResourcePool.objects.filter(pk=pool.pk).update(
        planned_at=(pool.planned_at or timezone.now()) + timedelta(seconds=1)
    )
    pool.refresh_from_db()


def survey_that_keeps(pool: ResourcePool) -> None:
    """Take a survey as a pass does, from what this process has kept of the last one: it must be one of all rows."""
    now = timezone.now()
    kept, whole = (
        replace(one, requests=tuple(sorted(one.requests, key=lambda request: request.task_id)))
        for one in (survey.take(pool, now, keep=True), survey.take(pool, now))
    )
    assert kept == whole


def make_project() -> Project:
    """The project that is always there."""
    return Project.objects.get(pk=1)


def submit_experiment(
    *,
    slots: int = 1,
    name: str = "test",
    max_restarts: int = 5,
    priority: int | None = None,
    max_time: str | int | None = None,
    hosts: Sequence[str] = (),
    owner: User | None = None,
    activate: bool = True,
    depends_on: Sequence[str] = (),
) -> Experiment:
    """One trial, submitted as the API does."""
    text = CONFIG.format(
        name=name,
        slots=slots,
        max_restarts=max_restarts,
        priority=f", priority: {priority}" if priority else "",
        max_time=f", max_time: {max_time}" if max_time else "",
        hosts=f", hosts: [{', '.join(hosts)}]" if hosts else "",
    )
    text += f"depends_on: {list(depends_on)}\n" if depends_on else ""
    return submit.create(
        owner=owner or make_user(),
        config=parse(text),
        original=text,
        context=contexts.empty(),
        project=make_project(),
        parent=None,
        activate=activate,
        idempotency_key=None,
        actor="user:ada",
    )


def trial_of(experiment: Experiment) -> Trial:
    return Trial.objects.select_related("task").get(experiment=experiment)


def attempt_of(experiment: Experiment) -> Allocation:
    """The newest attempt of the experiment's only trial."""
    return Allocation.objects.filter(task__trial__experiment=experiment).latest("number")


def members_of(experiment: Experiment) -> list[Member]:
    return list(attempt_of(experiment).members.order_by("index"))


def assigned(
    *,
    task_id: str,
    placement: Sequence[tuple[uuid.UUID, Sequence[int]]],
    on_sufferance: bool,
    actor: str,
) -> Allocation:
    """The attempt of one assignment. Raises Stale, having changed nothing, if an edit or another attempt came first."""
    made = assigning.assign_all([assigning.Assignment(task_id, placement, on_sufferance)], actor=actor)
    if not made:
        raise assigning.Stale(f"task {task_id} is no longer waiting for slots, or its host has no free port")
    return Allocation.objects.get(pk=made[0].id)
