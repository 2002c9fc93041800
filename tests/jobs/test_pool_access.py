"""Pools that are for some groups and workspaces alone."""

from __future__ import annotations

import pytest
from django.test import Client

from accounts import user_groups
from accounts.models import User
from accounts.refusals import Code, FieldRefusals, Refusal
from commands import submit
from commands.config import check
from experiments.models import Project, Workspace
from hosts import pool_edits
from hosts.models import ResourcePool
from hosts.pools import default_pool
from jobs import queue_edits
from shown import pools
from submissions import contexts
from tests.rig.html import Html
from tests.rig.world import make_project, make_user, submit_experiment

pytestmark = pytest.mark.django_db
ROOT = "user:root"


@pytest.fixture
def closed() -> ResourcePool:
    """A pool for the department research and the workspace speech; ada is in a team of research."""
    user_groups.create("research", actor=ROOT)
    user_groups.create("vision", parent="research", add=[make_user("ada")], actor=ROOT)
    speech = Workspace.objects.create(name="speech")
    rule = {"groups": ["research"], "workspaces": [speech.pk]}
    return pool_edits.create("closed", {"open_to": rule}, actor=ROOT)


def command(owner: User, workspace: int) -> str:
    config = check({"entrypoint": ["true"], "resources": {"resource_pool": "closed", "slots": 0}})
    made = submit.create(
        owner=owner, config=config, context=contexts.store([]), workspace_number=workspace, idempotency_key=None,
        actor=f"user:{owner.username}",
    )  # fmt: skip
    return made.job.pool.name


def test_a_submission_needs_a_group_or_a_workspace_that_the_pool_is_for(closed: ResourcePool) -> None:
    speech = Workspace.objects.get(name="speech")
    assert command(make_user("ada"), 1) == "closed"
    assert command(make_user("bob"), speech.pk) == "closed"
    with pytest.raises(Refusal) as refused:
        command(make_user("bob"), 1)
    assert (str(refused.value), refused.value.code, refused.value.field) == (
        f"Pool closed is only for group research and workspace {speech.pk}; bob is in no group. Choose another pool.",
        Code.FORBIDDEN,
        "pool",
    )


def test_a_move_asks_for_the_owner_and_the_workspace_of_the_job(closed: ResourcePool) -> None:
    theirs = submit_experiment(owner=make_user("bob"))
    move = queue_edits.Update(theirs.job_id, pool="closed")
    with pytest.raises(Refusal, match="Pool closed is only for group research"):
        queue_edits.apply([move], actor="user:bob", role=User.Role.EDITOR)
    Project.objects.filter(pk=theirs.project_id).update(workspace=Workspace.objects.get(name="speech"))
    queue_edits.apply([move], actor="user:bob", role=User.Role.EDITOR)
    theirs.job.refresh_from_db()
    assert theirs.job.pool == closed


def test_menus_do_not_offer_a_pool_that_is_for_others(closed: ResourcePool) -> None:
    default_pool(), make_project()
    pool_edits.edit("closed", {"open_to": {"groups": ["research"]}}, actor=ROOT)
    for name, offered in (("ada", ["closed", "default"]), ("bob", ["default"])):
        assert [pool.name for pool in pools.choices(make_user(name))] == offered
        client = Client()
        client.force_login(make_user(name), backend="django.contrib.auth.backends.ModelBackend")
        assert ('value="closed"' in Html(client.get("/tasks/+new?type=shell").content)) is (
            "closed" in offered
        )


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        ({"groups": ["moon"]}, "there is no group moon"),
        ({"workspaces": [999]}, "there is no workspace 999"),
        ({"groups": "vision"}, "allowed for groups: a list of names"),
        ({"workspaces": ["speech"]}, "allowed for workspaces: a list of numbers"),
        ({"users": []}, "allowed: names of groups and numbers of workspaces"),
    ],
)
def test_a_rule_that_names_nothing_is_refused(rule: dict[str, object], sentence: str) -> None:
    default_pool()
    with pytest.raises(FieldRefusals) as refused:
        pool_edits.edit("default", {"open_to": rule}, actor=ROOT)
    assert sentence in refused.value.errors["open_to"]


def test_the_rule_follows_a_groups_name_and_keeps_it_from_being_deleted(closed: ResourcePool) -> None:
    user_groups.change(user_groups.named("research"), name="labs", actor=ROOT)
    closed.refresh_from_db()
    assert closed.open_to["groups"] == ["labs"]
    pool_edits.edit("closed", {"open_to": {"groups": ["vision"]}}, actor=ROOT)
    with pytest.raises(Refusal, match="Group vision cannot be deleted: pool closed is for it"):
        user_groups.delete(user_groups.named("vision"), actor=ROOT)
