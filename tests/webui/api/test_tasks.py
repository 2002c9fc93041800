"""One task over REST, by its id or the beginning of it."""

from __future__ import annotations

from typing import Any

import pytest

from accounts.refusals import Code, Refusal
from commands.states import CommandState
from dispatch.passes import pool_pass
from hosts.pools import default_pool
from jobs.models import Member, Task
from tests.commands import test_outcomes
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


def test_the_id_of_an_array_is_taken_where_that_of_a_command_is(cast: Cast) -> None:
    make_host("gpu1", 2)
    job = make_array("0-1")
    array, path = job.entity_id, f"commands/{job.entity_id}"
    [listed] = cast.vic.get("commands")["commands"]
    assert listed["array"]["id"] == array
    assert cast.vic.get(path)["command"]["id"] == listed["id"] == cast.vic.get(path[:-4])["command"]["id"]
    cast.admin.post(f"{path}/set_priority", {"priority": 7})
    job.refresh_from_db()
    assert job.priority == 7
    first, second = [each["id"] for each in cast.vic.get(f"commands?arrayId={array}")["commands"]]
    cast.admin.post(f"commands/{first.replace('-', '')}/kill")
    assert cast.vic.get(f"arrays/{array}")["array"]["canceled"] == 1
    assert cast.vic.get(f"commands/{second}")["command"]["phase"] == "QUEUED"
    cast.admin.post(f"{path}/kill")
    assert cast.vic.get(f"arrays/{array}")["array"]["canceled"] == 2
    assert cast.vic.refused("GET", f"shells/{array}")[0] == 404


def test_schedules_are_listed_by_page(cast: Cast, settings: Any) -> None:
    command = str(test_outcomes.make_command().pk)
    settings.SCHEDULES_PER_USER = 2
    for name in ("a", "b"):
        cast.admin.post("schedules", {"name": name, "commandId": command, "cron": "0 3 * * *"})
    page = cast.vic.get("schedules?limit=1&offset=1")
    assert [each["name"] for each in page["schedules"]] == ["b"] and page["pagination"]["total"] == 2
    status, body = cast.admin.refused(
        "POST", "schedules", {"name": "c", "commandId": command, "cron": "0 3 * * *"}
    )
    assert status == 409 and "admin has 2 schedules; allowed: at most 2. Delete one first." in str(body)
