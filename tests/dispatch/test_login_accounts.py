"""Work of users without a linked account on hosts whose login is root or may become others."""

from __future__ import annotations

from typing import Any

import pytest

from accounts.models import User
from accounts.refusals import FieldRefusals, Refusal
from dispatch.passes import pool_pass, survey
from dispatch.watching import doctor
from experiments.models import Experiment
from hosts import pool_edits
from hosts.models import Host, ResourcePool
from hosts.pools import default_pool
from jobs import queue_edits
from jobs.models import Allocation, Task
from jobs.queue_edits import Update
from scheduling.explain import explain
from tests.rig.world import make_host, make_user, submit_experiment, trial_of

pytestmark = pytest.mark.django_db

ROOT = {"account": {"name": "root", "uid": 0, "switch": "root"}}
SUDO = {"account": {"name": "ml", "uid": 1000, "switch": "sudo"}}
ALONE = {"account": {"name": "ml", "uid": 1000, "switch": "none"}}
REFUSED = (
    "its owner has no linked Unix account, so it would run as the login account, which is root or may use sudo on "
    "gpu1; an admin can link one with `trainmaster user link-with-agent-user`, or allow this with "
    "`trainmaster pool edit default --allow-login-account`"
)


def host(name: str, facts: dict[str, Any], slots: int = 2, pool: ResourcePool | None = None) -> Host:
    made = make_host(name, slots, pool)
    Host.objects.filter(pk=made.pk).update(facts=facts)
    return made


def state_of(experiment: Experiment) -> tuple[str, str]:
    """The task's state and, while it waits, its reason's code."""
    pool_pass.run(default_pool().pk)
    task = trial_of(experiment).task
    return task.state, default_pool().plan["waits"].get(task.pk, {}).get("code", "")


@pytest.mark.parametrize("facts", [ROOT, SUDO])
def test_a_submission_that_could_only_run_as_such_a_login_is_refused(facts: dict[str, Any]) -> None:
    host("gpu1", facts)
    with pytest.raises(Refusal) as caught:
        submit_experiment()
    assert str(caught.value) == f"{REFUSED}." and not Task.objects.exists()


def test_a_login_that_can_become_nobody_else_is_no_danger() -> None:
    host("gpu1", ALONE)
    assert state_of(submit_experiment()) == ("RUNNING", "")


def test_who_has_an_account_starts_there_and_who_has_none_waits_and_says_why() -> None:
    ada = make_user()
    bob = User.objects.create(username="bob", unix_user="bob")
    without = submit_experiment(owner=ada)  # there is no host yet
    host("gpu1", ROOT)
    assert state_of(without) == ("WAITING", "lacks_account")
    assert default_pool().plan["waits"][trial_of(without).task_id]["sentence"] == REFUSED
    assert state_of(submit_experiment(owner=bob)) == ("RUNNING", "")
    pool_edits.edit("default", {"allow_login_account": True}, actor="user:root")
    assert state_of(without) == ("RUNNING", "")


def test_in_a_mixed_pool_it_runs_where_it_harms_nobody() -> None:
    host("gpu1", ROOT, 4), host("gpu2", ALONE, 2)
    small, large = submit_experiment(slots=2), submit_experiment(slots=4)
    assert state_of(small) == ("RUNNING", "")
    assert state_of(large) == ("WAITING", "lacks_account")
    assert list(Allocation.objects.values_list("members__host__name", flat=True)) == ["gpu2"]
    next_one = submit_experiment(slots=2)
    assert state_of(next_one)[0] == "WAITING"
    snapshot = survey.take(default_pool(), next_one.started_at)
    sentences = [reason.sentence for reason in explain(snapshot, trial_of(next_one).task_id)]
    assert any("gpu1 (only jobs of users with a linked account run there)" in each for each in sentences)


def test_work_without_slots_is_no_exception() -> None:
    experiment = submit_experiment(slots=0)
    host("gpu1", ROOT)
    assert state_of(experiment) == ("WAITING", "lacks_account")


def test_a_shared_account_is_the_login_of_everybody() -> None:
    bob = User.objects.create(username="bob", unix_user="bob")
    default_pool()
    pool_edits.edit("default", {"shared_account": True}, actor="user:root")
    host("gpu1", ROOT)
    with pytest.raises(Refusal, match=r"^pool default runs all jobs as the login account, which is root"):
        submit_experiment(owner=bob)


def test_a_waiting_job_is_not_moved_to_where_it_would_run_as_such_a_login() -> None:
    experiment = submit_experiment()
    pool_edits.create("roots", {}, actor="user:root")
    host("gpu1", ROOT, pool=ResourcePool.objects.get(name="roots"))
    with pytest.raises(Refusal, match="has no linked Unix account"):
        queue_edits.apply([Update(experiment.job_id, pool="roots")], actor="user:root", role="admin")


@pytest.mark.parametrize(
    ("actor", "role", "moves"),
    [("user:eve", "editor", False), ("user:bob", "editor", True), ("user:root", "admin", True)],
)
def test_only_its_owner_and_admins_move_a_job_under_a_shared_account(
    actor: str, role: str, moves: bool
) -> None:
    bob = User.objects.create(username="bob", unix_user="bob")
    experiment = submit_experiment(owner=bob)
    pool_edits.create("shared", {"shared_account": True}, actor="user:root")
    update = [Update(experiment.job_id, pool="shared")]
    if moves:
        assert queue_edits.apply(update, actor=actor, role=role)
        return
    with pytest.raises(Refusal) as caught:
        queue_edits.apply(update, actor=actor, role=role)
    assert str(caught.value) == (
        f"job {str(experiment.job_id)[:8]} runs as bob, the account of bob; in resource pool shared its code and its "
        "token would lie under an account that all jobs share, so only bob or an admin can move it there"
    )


def test_the_doctor_says_who_would_run_as_the_login() -> None:
    ada, one = make_user(), host("gpu1", SUDO)
    User.objects.create(username="vic", role=User.Role.VIEWER)

    def said() -> tuple[str, str]:
        found = doctor._account(Host.objects.get(pk=one.pk))
        assert found is not None
        return found

    state, sentence = said()
    assert state == "fail" and sentence.startswith(
        f"Jobs of {ada.username} would run as ml, which may use sudo, so they are refused here. Link accounts with"
    )
    pool_edits.edit("default", {"allow_login_account": True}, actor="user:root")
    state, sentence = said()
    assert state == "warn" and sentence.startswith(f"Jobs of {ada.username} run as ml, which may use sudo")
    User.objects.filter(pk=ada.pk).update(unix_user="ada")
    assert said()[0] == "ok"
    Host.objects.filter(pk=one.pk).update(facts=ALONE)
    assert doctor._account(Host.objects.get(pk=one.pk)) is None


def test_the_rule_is_a_switch() -> None:
    default_pool()
    with pytest.raises(FieldRefusals):
        pool_edits.edit("default", {"allow_login_account": "yes"}, actor="user:root")
