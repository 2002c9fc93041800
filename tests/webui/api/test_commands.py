"""Commands through REST: Determined's fields, what is refused with which sentence, who may do what."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from accounts.refusals import Refusal
from commands.models import Command
from experiments.models import Template, Workspace
from hosts.models import Host, ResourcePool
from jobs import queue_edits
from jobs.models import Job, Task
from jobs.states import JobState, TaskState
from tests.rig.api import Api, Cast, Json, uploaded
from tests.rig.world import submit_experiment


def run(by: Api, *words: str, **config: Any) -> Json:
    """The record of a new command."""
    return dict(by.post("commands", {"config": {"entrypoint": list(words) or ["true"], **config}})["command"])


def test_a_command_is_a_job_with_one_task_that_cannot_be_preempted(cast: Cast, host: Host) -> None:
    record = run(cast.ada, "python3", "-c", "print(1)", resources={"slots": 2, "priority": 7})
    command = Command.objects.select_related("job", "task").get(pk=record["id"])
    job, task = command.job, command.task
    assert (job.kind, job.entity_id, job.preemptible, job.priority) == ("COMMAND", record["id"], False, 7)
    assert (task.pk, task.kind, task.slots, task.single_host) == (record["id"], Task.Kind.COMMAND, 2, True)
    assert (task.state, job.state) == (TaskState.WAITING, JobState.ACTIVE)
    assert record["state"] == "STATE_QUEUED"
    assert record["description"] == "python3 -c 'print(1)'"
    assert record["jobId"] == str(job.pk)
    assert (record["username"], record["resourcePool"], record["workspaceId"]) == ("ada", "default", 1)


def test_a_preview_is_judged_as_a_submission_and_creates_nothing(cast: Cast, host: Host) -> None:
    config = {"entrypoint": "true", "resources": {"slots": 1}}
    answer = cast.ada.post("commands", {"config": config, "preview": True})
    assert answer["command"] is None
    assert answer["config"]["resources"]["resource_pool"] == "default"
    config["resources"] = {"slots": 100}
    status, refused = cast.ada.refused("POST", "commands", {"config": config, "preview": True})[:2]
    assert (status, "100" in str(refused)) == (400, True)
    body = {"config": {"entrypoint": "true"}, "preview": True, "workspaceId": 4711}
    assert "workspace 4711 not found" in str(cast.ada.refused("POST", "commands", body))
    assert not Command.objects.exists()


def test_the_published_clients_body_is_accepted_as_it_is(cast: Cast, host: Host) -> None:
    config = {
        "entrypoint": ["echo", "hello"],
        "bind_mounts": [{"host_path": "/tmp", "container_path": "/x"}],
        "environment": {"image": "busybox", "environment_variables": ["A=1"]},
        "resources": {"slots": 0, "shm_size": "1g"},
    }
    answer = cast.ada.post(
        "commands", {"config": config, "files": [uploaded("a.txt", "1")], "workspaceId": 1}
    )
    assert answer["warnings"] == []
    without = "environment.image and resources.shm_size have no effect on hosts without"
    assert any(without in notice for notice in answer["notices"])
    assert Command.objects.get().context.listing[0]["path"] == "a.txt"


def test_a_template_serves_commands_with_the_fields_that_they_have(cast: Cast, pool: ResourcePool) -> None:
    Template.objects.create(
        name="team",
        workspace=Workspace.objects.get(pk=1),
        config={
            "entrypoint": "python3 train.py",
            "searcher": {"name": "single", "metric": "loss"},
            "environment": {"environment_variables": ["A=1"]},
            "resources": {"slots_per_trial": 8, "priority": 5},
            "work_dir": "/srv",
        },
    )
    config = {"entrypoint": "env", "environment": {"environment_variables": ["B=2"]}}
    answer = cast.ada.post("commands", {"config": config, "template_name": "team"})
    assert answer["config"]["entrypoint"] == "env"
    assert answer["config"]["environment"]["environment_variables"]["cpu"] == ["A=1", "B=2"]
    assert answer["config"]["resources"]["priority"] == 5
    assert answer["config"]["work_dir"] == "/srv"
    assert answer["command"]["slots"] == 1
    assert cast.ada.refused("POST", "commands", {"config": config, "templateName": "no"})[0] == 404


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({}, "entrypoint: found nothing"),
        ({"entrypoint": []}, "a command, or a list of its words"),
        ({"entrypoint": "x", "slots": 1}, "slots: found an unknown field"),
        ({"entrypoint": "x", "resources": {"slots_per_trial": 1}}, "use slots"),
        ({"entrypoint": "x", "resources": {"slots": -1}}, "resources.slots: found -1"),
        ({"entrypoint": "x", "resources": {"priority": 100}}, "resources.priority: found 100"),
        ({"entrypoint": "x", "resources": {"max_time": "soon"}}, "1h30m"),
        ({"entrypoint": "x", "resources": {"resource_pool": "nowhere"}}, "nowhere does not exist"),
        ({"entrypoint": "x", "environment": {"python": "/p", "activate": "/a"}}, "not both"),
        ("entrypoint: [", "YAML"),
        (3, "must be a map"),
    ],
)
def test_a_wrong_config_is_refused_with_its_field_and_leaves_nothing(
    cast: Cast, pool: ResourcePool, config: Any, words: str
) -> None:
    status, sentence = cast.ada.refused("POST", "commands", {"config": config})
    assert status == 400
    assert words in sentence
    assert not Job.objects.exists()
    assert not Command.objects.exists()


def test_all_faults_of_a_command_are_told_at_once(cast: Cast, pool: ResourcePool) -> None:
    body = {
        "config": {"entrypoint": ["true"], "resources": {"resource_pool": "none", "slots": "x"}},
        "files": [uploaded("../x.py", "1")],
        "workspaceId": 4711,
    }
    for slots in ("x", 1):
        body["config"]["resources"]["slots"] = slots  # type: ignore[index]
        status, sentence = cast.ada.refused("POST", "commands", body)
        assert status == 400 and ("resources.slots" in sentence) is (slots == "x")
        for part in ("resource pool none does not exist", "leads outside", "workspace 4711 not found"):
            assert part in sentence
    assert not Command.objects.exists()


def test_secrets_of_the_config_are_masked(cast: Cast, pool: ResourcePool) -> None:
    variables = {"environment_variables": ["API_KEY=hush", "PLAIN=seen"]}
    record = run(cast.ada, "env", environment=variables)
    shown = cast.bob.get(f"commands/{record['id']}")["config"]["environment"]["environment_variables"]["cpu"]
    assert shown == ["API_KEY=********", "PLAIN=seen"]


@pytest.mark.parametrize("kind", ["commands", "notebooks", "shells", "tensorboards"])
def test_what_never_fits_is_refused(cast: Cast, host: Host, kind: str) -> None:
    own = {"entrypoint": "x"} if kind == "commands" else {}
    body = {"config": {"resources": {"slots": 10_485}, **own}}
    status, sentence = cast.ada.refused("POST", kind, {**body, "experimentIds": [submit_experiment().pk]})
    assert status == 400 and "request unfulfillable, please try requesting less slots" in sentence
    assert "needs 10485 slots on one host; the largest host here has 2: ask for 2 or fewer" in sentence
    assert not Command.objects.exists()


def test_what_never_fits_waits_where_larger_hosts_may_come(cast: Cast, host: Host) -> None:
    body = {"config": {"entrypoint": "x", "resources": {"slots": 3}}}
    assert cast.ada.refused("POST", "commands", body)[0] == 400
    cast.admin.patch(f"resource-pools/{host.pool.name}", {"launchError": False})
    answer = cast.ada.post("commands", body)
    assert answer["warnings"] == ["LAUNCH_WARNING_CURRENT_SLOTS_EXCEEDED"]
    assert "on one host" in answer["notices"][0]


def test_the_time_limit_comes_from_the_config_or_the_pool_and_is_bounded(
    cast: Cast, pool: ResourcePool
) -> None:
    ResourcePool.objects.filter(pk=pool.pk).update(default_max_time_seconds=60, longest_max_time_seconds=3600)
    plain, asked = run(cast.ada, "x"), run(cast.ada, "x", resources={"max_time": "30m"})
    assert Task.objects.get(pk=plain["id"]).max_time_seconds == 60
    assert Task.objects.get(pk=asked["id"]).max_time_seconds == 1800
    body = {"config": {"entrypoint": "x", "resources": {"max_time": "2h"}}}
    assert "at most 3600 s" in cast.ada.refused("POST", "commands", body)[1]


def test_the_list_is_filtered_sorted_and_paged(cast: Cast, pool: ResourcePool) -> None:
    first, second = run(cast.ada, "b"), run(cast.bob, "a")
    third = run(cast.ada, "c")
    cast.ada.post(f"commands/{third['id']}/kill")

    def ids(query: str) -> list[str]:
        return [row["id"] for row in cast.ada.get(f"commands?{query}")["commands"]]

    assert ids("") == [third["id"], second["id"], first["id"]]
    assert ids("users=ada&orderBy=ORDER_BY_ASC") == [first["id"], third["id"]]
    assert ids("sortBy=SORT_BY_DESCRIPTION") == [second["id"], first["id"], third["id"]]
    assert ids("phases=CANCELED") == [third["id"]]
    assert ids("phases=QUEUED&orderBy=ORDER_BY_DESC") == [second["id"], first["id"]]
    assert cast.ada.get(f"commands/{first['id'][:8]}")["command"]["id"] == first["id"]
    page = cast.ada.get("commands?limit=1&offset=1")
    assert [row["id"] for row in page["commands"]] == [second["id"]]
    assert page["pagination"]["total"] == 3


def test_a_waiting_command_is_killed_at_once_and_only_by_its_owner(cast: Cast, pool: ResourcePool) -> None:
    record = run(cast.ada, "sleep", "100")
    path = f"commands/{record['id']}/kill"
    assert cast.bob.refused("POST", path) == (
        403, f"command {record['id']} belongs to ada; only its owner or an admin can change it."
    )  # fmt: skip
    killed = cast.ada.post(path)["command"]
    assert (killed["state"], killed["phase"]) == ("STATE_TERMINATED", "CANCELED")
    assert killed["ending"] == "killed before it started"
    assert killed["exitStatus"] == "task was aborted before the task was started — killed before it started"
    assert cast.admin.post(path)["command"]["phase"] == "CANCELED"  # once more changes nothing
    command = Command.objects.select_related("job", "task").get()
    assert (command.task.state, command.job.state) == (TaskState.ENDED, JobState.ENDED)
    assert cast.ada.refused("POST", f"commands/{uuid.uuid4()}/kill")[0] == 404
    assert cast.ada.refused("GET", "commands/0123456789")[0] == 404  # no random id begins like this


def test_viewers_look_and_strangers_do_not(cast: Cast, pool: ResourcePool) -> None:
    record = run(cast.ada, "x")
    assert cast.vic.get(f"commands/{record['id']}")["command"]["id"] == record["id"]
    assert cast.vic.refused("POST", "commands", {"config": {"entrypoint": "x"}})[0] == 403
    assert cast.vic.refused("POST", f"commands/{record['id']}/kill")[0] == 403
    assert cast.stranger.refused("GET", "commands")[0] == 401


def test_the_priority_is_set_and_the_pool_is_not(cast: Cast, pool: ResourcePool) -> None:
    record = run(cast.ada, "x")
    path = f"commands/{record['id']}/set_priority"
    assert cast.ada.post(path, {"priority": 3})["command"]["priority"] == 3
    assert cast.ada.get(f"commands/{record['id']}")["config"]["resources"]["priority"] == 3
    for wrong in (0, 100, 1.5, "x"):
        assert "between 1 and 99" in cast.ada.refused("POST", path, {"priority": wrong})[1]
    ResourcePool.objects.create(name="other")
    with pytest.raises(Refusal, match="cancel"):
        queue_edits.apply(
            [queue_edits.Update(record["jobId"], pool="other")], actor="user:ada", role="editor"
        )


def test_an_idempotency_key_gives_the_first_command_again(cast: Cast, pool: ResourcePool) -> None:
    body = {"config": {"entrypoint": "x"}}
    first = cast.ada.post("commands", body, **{"idempotency-key": "k"})["command"]["id"]
    assert cast.ada.post("commands", body, **{"idempotency-key": "k"})["command"]["id"] == first
    assert cast.bob.post("commands", body, **{"idempotency-key": "k"})["command"]["id"] != first
