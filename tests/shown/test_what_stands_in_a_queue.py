"""Everyone who reads a queue finds the same jobs in the same order, over random worlds."""

import random
from collections import Counter
from typing import Any

import pytest

from accounts.models import LoginToken, User
from hosts.models import PoolPlan, ResourcePool
from jobs import queue_order, shares
from jobs.models import Allocation, Job, Task
from jobs.states import AllocationState, JobState, StopKind, TaskState
from shown import pools
from shown.queue import standing
from tests.rig.api import Api

pytestmark = pytest.mark.django_db

JOBS = 40


class World:
    """Two pools of jobs in any state, with tasks and attempts in any state; and what the definition says of them."""

    def __init__(self, seed: int, scheduler: str) -> None:
        self.chance = random.Random(seed)
        self.owner = User.objects.create_user(f"user-{seed}", role=User.Role.ADMIN)
        self.pool = ResourcePool.objects.create(name=f"pool-{seed}", scheduler=scheduler)
        self.other = ResourcePool.objects.create(name=f"other-{seed}")
        self.expected: dict[str, tuple[str, bool, int, int]] = {}
        self.jobs = [self._job(number) for number in range(JOBS)]
        ids = [str(job.pk) for job in self.jobs]
        self.planned = self.chance.sample(ids, JOBS // 2)
        PoolPlan.objects.create(pool=self.pool, document={"order": self.planned})

    def _job(self, number: int) -> Job:
        chance = self.chance
        job = Job.objects.create(
            name=f"job-{number}",
            owner=self.owner,
            pool=chance.choice([self.pool, self.pool, self.other]),
            kind="COMMAND",
            entity_id=f"{self.pool.pk}-{number}",
            state=chance.choice(JobState.values),
            priority=chance.randint(1, 3),
            position=float(chance.randint(1, 5)),
        )
        tasks = [self._task(job, each) for each in range(chance.randint(0, 3))]
        attempts = [self._attempt(task) for task in tasks if chance.random() < 0.5]
        opened = [attempt for attempt in attempts if attempt.state != "TERMINATED"]
        live = [task for task in tasks if task.state in ("WAITING", "RUNNING")]
        if job.state == "ENDED" or not (opened or (job.state == "ACTIVE" and live)):
            return job
        held = sum(attempt.slots for attempt in opened)
        backfilled = opened and all(attempt.on_sufferance for attempt in opened)
        self.expected[str(job.pk)] = (
            "backfilled" if backfilled else "scheduled" if opened else "queued",
            any(attempt.stop_kind or attempt.state == "TERMINATING" for attempt in opened),
            held,
            max(held, sum(task.slots for task in live)),
        )
        return job

    def _task(self, job: Job, number: int) -> Task:
        name = f"{job.entity_id}.{number}"
        state, slots = self.chance.choice(TaskState.values), self.chance.randint(0, 4)
        return Task.objects.create(id=name, job=job, kind="COMMAND", name=name, slots=slots, state=state)

    def _attempt(self, task: Task) -> Allocation:
        return Allocation.objects.create(
            id=f"{task.pk}.1",
            task=task,
            number=1,
            pool=task.job.pool,
            slots=task.slots,
            state=self.chance.choice(AllocationState.values),
            stop_kind=self.chance.choice(StopKind.values),
            on_sufferance=self.chance.random() < 0.5,
        )

    def order(self, pool: ResourcePool) -> list[str]:
        """The queue of a pool by the words of queue/README.md."""

        def key(job: Job) -> tuple[Any, ...]:
            if pool.scheduler == "priority":
                return job.priority, job.position, job.pk
            known = str(job.pk) in self.planned
            return not known, self.planned.index(str(job.pk)) if known else 0, job.position, job.pk

        stand = [job for job in self.jobs if job.pool == pool and str(job.pk) in self.expected]
        return [str(job.pk) for job in sorted(stand, key=key)]


@pytest.mark.parametrize("scheduler", ["priority", "fair_share"])
@pytest.mark.parametrize("seed", range(6))
def test_all_readers_find_the_same_queue_in_the_same_order(seed: int, scheduler: str, client: Any) -> None:
    world = World(seed, scheduler)
    expected = world.order(world.pool)
    queue = standing.of(world.pool)
    assert [*queue.ids] == expected
    columns = zip(queue.states, queue.stopping, queue.held, queue.needed, strict=True)
    assert dict(zip(queue.ids, columns, strict=True)) == {job: world.expected[job] for job in expected}
    waiting: Counter[int] = Counter()
    for owner, slots in zip(queue.owners, queue.waiting, strict=True):
        waiting[owner] += slots
    assert +waiting == +Counter({each.user.pk: each.waiting for each in shares.by_user(world.pool, None)})
    listed = [str(job) for job in queue_order.places(world.pool)]
    assert sorted(listed) == sorted(expected)
    if scheduler == "priority":
        assert listed == expected
    rows = Api(LoginToken.issue(world.owner)).get(f"job-queues?resourcePool={world.pool.name}")["jobs"]
    assert [row["jobId"] for row in rows] == expected
    states = {
        "STATE_QUEUED": "queued",
        "STATE_SCHEDULED": "scheduled",
        "STATE_SCHEDULED_BACKFILLED": "backfilled",
    }
    for row in rows:
        found = (
            states[row["summary"]["state"]],
            row["stopping"],
            row["allocatedSlots"],
            row["requestedSlots"],
        )
        assert found == world.expected[row["jobId"]]
    numbers = pools.numbers([world.pool, world.other])
    others = [world.expected[job][0] for job in world.order(world.other)]
    assert numbers[world.other.pk].queued == others.count("queued")
    assert numbers[world.other.pk].jobs == len(others)
