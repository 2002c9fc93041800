"""One task over REST, by its id or the beginning of it."""

from __future__ import annotations

import pytest

from accounts.refusals import Code, Refusal
from commands.states import CommandState
from dispatch.passes import pool_pass
from hosts.pools import default_pool
from jobs.models import Member, Task
from tests.commands.test_arrays import make_array
from tests.rig.api import Cast
from tests.rig.rows import make_command, make_gang
from tests.rig.world import make_host
from webui.api.tasks import find


@pytest.fixture
def member(db: None) -> Member:
    return make_gang()[0]


def another(member: Member, task_id: str) -> None:
    job = member.allocation.task.job
    Task.objects.create(id=task_id, job=job, kind=Task.Kind.COMMAND, name=task_id, slots=1)


def test_a_task_is_found_by_any_beginning_that_is_its_alone(cast: Cast, member: Member) -> None:
    task_id = member.allocation.task_id
    for given in (task_id, task_id[:8]):
        assert cast.vic.get(f"tasks/{given}")["task"]["taskId"] == task_id
    another(member, f"{task_id}9")
    assert find(task_id).pk == task_id, "a whole id is no beginning"
    with pytest.raises(Refusal, match=f"is ambiguous: it can be {task_id}, {task_id}9; give more"):
        find(task_id[:8])
    for number in range(10, 20):
        another(member, f"{task_id}{number}")
    with pytest.raises(Refusal, match="or another; give more"):
        find(task_id[:8])


def test_a_command_is_ended_by_its_task(cast: Cast, db: None) -> None:
    command = make_command()
    path = f"tasks/{command.task_id}/kill"
    assert cast.vic.refused("POST", path, {})[0] == 403
    cast.admin.post(path, {"taskId": command.task_id, "killFromRoot": False})
    command.refresh_from_db()
    assert command.state != CommandState.ACTIVE


@pytest.mark.parametrize("given", ["", "nosuch", "%", "_", "task\x00"])
def test_what_begins_no_id_is_no_task(member: Member, given: str) -> None:
    with pytest.raises(Refusal, match="not found") as refused:
        find(given)
    assert refused.value.code is Code.NOT_FOUND


def test_an_element_of_an_array_is_a_command(cast: Cast) -> None:
    make_host("gpu1", 2)
    job = make_array("0-1")
    pool_pass.run(default_pool().pk)
    task_id = job.tasks.order_by("pk")[0].pk
    assert cast.vic.get(f"tasks/{task_id}")["task"]["taskType"] == "TASK_TYPE_COMMAND"
    assert cast.vic.get("tasks/count")["commands"] == 2
