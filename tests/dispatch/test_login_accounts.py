"""Work of users without a linked account on hosts whose login is root or may become others."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone

from accounts.models import User
from accounts.refusals import FieldRefusals, Refusal
from dispatch.keeping import deletion
from dispatch.passes import pool_pass, survey
from dispatch.runs import launch, reconcile
from dispatch.ssh import remote
from dispatch.watching import doctor
from experiments.models import Checkpoint, Experiment
from experiments.stored_files import NotHere
from hosts import login_accounts, pool_edits
from hosts.models import Host, ResourcePool
from hosts.pools import default_pool
from jobs import queue_edits
from jobs.models import Allocation, Member, Task
from jobs.queue_edits import Update
from jobs.states import MemberState
from scheduling.explain import explain
from tests.rig.world import make_host, make_user, members_of, plan_of, submit_experiment, trial_of

pytestmark = pytest.mark.django_db

ROOT = {"account": {"name": "root", "uid": 0, "switch": "root"}}
SUDO = {"account": {"name": "ml", "uid": 1000, "switch": "sudo"}}
DOCKER = {"account": {"name": "ml", "uid": 1000, "switch": "none", "root_by": "docker"}}
ALONE = {"account": {"name": "ml", "uid": 1000, "switch": "none"}}
REFUSED = (
    "its owner has no linked Unix account, so it would run as the login account, which is root or may become root on "
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
    return task.state, plan_of(default_pool())["waits"].get(task.pk, {}).get("code", "")


@pytest.mark.parametrize("facts", [ROOT, SUDO, DOCKER])
def test_a_submission_that_could_only_run_as_such_a_login_is_refused(facts: dict[str, Any]) -> None:
    host("gpu1", facts)
    with pytest.raises(Refusal) as caught:
        submit_experiment()
    assert str(caught.value) == f"{REFUSED}." and not Task.objects.exists()


def test_a_run_waits_where_the_login_may_become_root_by_docker() -> None:
    experiment = submit_experiment()
    host("gpu1", DOCKER)
    assert state_of(experiment) == ("WAITING", "lacks_account")
    pool_edits.edit("default", {"allow_login_account": True}, actor="user:root")
    assert state_of(experiment) == ("RUNNING", "")


def test_a_login_that_can_become_nobody_else_is_no_danger() -> None:
    host("gpu1", ALONE)
    assert state_of(submit_experiment()) == ("RUNNING", "")


def test_who_has_an_account_starts_there_and_who_has_none_waits_and_says_why() -> None:
    ada = make_user()
    bob = User.objects.create(username="bob", unix_user="bob")
    without = submit_experiment(owner=ada)  # there is no host yet
    host("gpu1", ROOT)
    assert state_of(without) == ("WAITING", "lacks_account")
    assert plan_of(default_pool())["waits"][trial_of(without).task_id]["sentence"] == REFUSED
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


def test_an_undo_is_no_way_around_it() -> None:
    bob = User.objects.create(username="bob", unix_user="bob")
    pool_edits.create("own", {}, actor="user:root")
    default_pool()
    experiment = submit_experiment(owner=bob)
    pool_edits.edit("default", {"shared_account": True}, actor="user:root")
    eve = User.objects.create(username="eve")
    assert queue_edits.apply([Update(experiment.job_id, pool="own")], actor="user:eve", role=eve.role)
    with pytest.raises(Refusal, match="only bob or an admin can move it there"):
        queue_edits.undo(eve)


def test_a_run_is_not_launched_where_the_rules_have_changed_since_it_was_placed() -> None:
    bob = User.objects.create(username="bob", unix_user="bob")
    host("gpu1", ROOT)
    experiment = submit_experiment(owner=bob)
    assert state_of(experiment)[0] == "RUNNING"
    (member,) = members_of(experiment)
    User.objects.filter(pk=bob.pk).update(unix_user="")
    launch.launch(member.pk)
    member.refresh_from_db()
    assert member.state == MemberState.ENDED
    assert member.allocation.exit_detail["sentence"] == f"{REFUSED}."


def test_what_was_launched_under_an_account_is_cleaned_up_and_removed_under_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bob = User.objects.create(username="bob", unix_user="bob", unix_uid=1001)
    host("gpu1", ROOT)
    experiment = submit_experiment(owner=bob)
    assert state_of(experiment)[0] == "RUNNING"
    (member,) = members_of(experiment)
    asked: list[tuple[str, dict[str, Any]]] = []

    def verb(_: Host, name: str, request: dict[str, Any], **__: Any) -> dict[str, Any]:
        asked.append((name, request))
        return {"boot_id": "b", "runs": {member.run_key: {"state": "running"}}}

    monkeypatch.setattr(remote, "verb", verb)
    launch.launch(member.pk)
    assert asked[-1][0] == "launch" and asked[-1][1]["spec"]["unix_user"] == "bob"
    assert asked[-1][1]["spec"]["unix_ids"] == {"uid": 1001, "gid": None}
    User.objects.filter(pk=bob.pk).update(unix_user="")
    reconcile.host(member.host_id)
    assert asked[-1][1]["accounts"] == {member.run_key: "bob"}
    checkpoint = Checkpoint.objects.create(
        trial=trial_of(experiment), allocation_id=member.allocation_id, state="COMPLETED", steps_completed=1,
        resources={"a": 1}, storage={"type": "gcs", "bucket": "b"}, reported_at=timezone.now(),
    )  # fmt: skip
    deletion.delete_files(checkpoint)
    assert asked[-1][0] == "discard" and asked[-1][1]["unix_user"] == "bob"
    assert asked[-1][1]["environment"] == {}, (
        "no program of the config runs under an account that was taken away"
    )

    def gone(where: Host, name: str, request: dict[str, Any], **more: Any) -> dict[str, Any]:
        if request["unix_user"] == "bob":
            raise remote.VerbFailed("no_account", "This host has no account 'bob'.")
        return verb(where, name, request, **more)

    monkeypatch.setattr(remote, "verb", gone)
    with pytest.raises(ConnectionError, match="no account 'bob'"):
        deletion.delete_files(checkpoint)
    User.objects.filter(pk=bob.pk).update(unix_user="rob")
    deletion.delete_files(checkpoint)
    assert asked[-1][1]["unix_user"] == "rob"


def test_a_launch_that_is_tried_again_is_not_under_an_account_that_was_taken_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bob = User.objects.create(username="bob", unix_user="bob")
    host("gpu1", ROOT)
    experiment = submit_experiment(owner=bob)
    assert state_of(experiment)[0] == "RUNNING"
    (member,) = members_of(experiment)
    monkeypatch.setattr(
        remote, "verb", lambda *_, **__: (_ for _ in ()).throw(remote.Unreachable("no answer"))
    )
    launch.launch(member.pk)
    User.objects.filter(pk=bob.pk).update(unix_user="rob")
    Member.objects.filter(pk=member.pk).update(launch_claimed_until=None)
    launch.launch(member.pk)
    member.refresh_from_db()
    assert member.state == MemberState.ENDED
    assert member.allocation.exit_detail["sentence"] == (
        "Its first launch was to be under the account bob; by now the jobs of its owner run under the account rob."
    )


def test_who_is_linked_with_the_login_itself_has_no_account_of_their_own() -> None:
    pool = default_pool()
    assert not login_accounts.may_run(pool, "ml", SUDO) and not login_accounts.may_run(pool, None, SUDO)
    assert login_accounts.may_run(pool, "bob", SUDO) and login_accounts.may_run(pool, None, ALONE)


def test_files_are_not_removed_as_such_a_login_either(monkeypatch: pytest.MonkeyPatch) -> None:
    """The removal runs the interpreter and the script that the job's config names."""
    experiment = submit_experiment()
    one = host("gpu1", ALONE)
    assert state_of(experiment)[0] == "RUNNING"
    Host.objects.filter(pk=one.pk).update(facts=ROOT)
    (member,) = members_of(experiment)
    checkpoint = Checkpoint.objects.create(
        trial=trial_of(experiment), allocation_id=member.allocation_id, state="COMPLETED", steps_completed=1,
        resources={"a": 1}, storage={"type": "gcs", "bucket": "b"}, reported_at=timezone.now(),
    )  # fmt: skip
    monkeypatch.setattr(remote, "verb", lambda *_, **__: pytest.fail("a host was asked"))
    with pytest.raises(NotHere, match="would run as the login account"):
        deletion.delete_files(checkpoint)


def test_a_new_account_is_seen_at_once() -> None:
    experiment = submit_experiment()
    host("gpu1", ROOT)
    assert state_of(experiment) == ("WAITING", "lacks_account")
    User.objects.filter(pk=experiment.owner_id).update(unix_user="ada")
    login_accounts.accounts_changed()
    assert state_of(experiment) == ("RUNNING", "")


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


@pytest.mark.parametrize(
    ("actor", "role", "moves"),
    [("user:eve", "editor", False), ("user:bob", "editor", True), ("user:root", "admin", True)],
)
def test_only_its_owner_and_admins_move_a_job_under_the_login_account(
    actor: str, role: str, moves: bool
) -> None:
    bob = User.objects.create(username="bob")
    experiment = submit_experiment(owner=bob)
    pool_edits.create("logins", {"allow_login_account": True}, actor="user:root")
    host("gpu1", ROOT, pool=ResourcePool.objects.get(name="logins"))
    update = [Update(experiment.job_id, pool="logins")]
    if moves:
        assert queue_edits.apply(update, actor=actor, role=role)
        return
    with pytest.raises(Refusal, match=r"bob, the owner of job .* only bob or an admin can move it there"):
        queue_edits.apply(update, actor=actor, role=role)


def test_the_doctor_says_who_would_run_as_the_login() -> None:
    ada, one = make_user(), host("gpu1", SUDO)
    User.objects.create(username="vic", role=User.Role.VIEWER)

    def said() -> tuple[str, str]:
        found = doctor._account(Host.objects.get(pk=one.pk))
        assert found is not None
        return found

    state, sentence = said()
    assert state == "fail" and sentence.startswith(
        f"Jobs of {ada.username} would run as ml, which may become root by sudo, so they are refused here. "
        "Link accounts with"
    )
    pool_edits.edit("default", {"allow_login_account": True}, actor="user:root")
    state, sentence = said()
    assert state == "warn" and sentence.startswith(
        f"Jobs of {ada.username} run as ml, which may become root by sudo"
    )
    User.objects.filter(pk=ada.pk).update(unix_user="ada")
    assert said()[0] == "ok"
    User.objects.filter(pk=ada.pk).update(unix_user="ml")
    assert said()[0] == "warn", "who is linked with the login runs as the login"
    Host.objects.filter(pk=one.pk).update(facts=DOCKER)
    assert "run as ml, which may become root by docker" in said()[1]
    Host.objects.filter(pk=one.pk).update(facts=ALONE)
    assert doctor._account(Host.objects.get(pk=one.pk)) is None


def test_the_doctor_names_linked_accounts_that_can_become_root() -> None:
    like_root = {"ada": ["docker", "sudo"], "vic": ["docker"]}
    one = host("gpu1", {"account": {**ROOT["account"], "like_root": like_root}})
    User.objects.create(username="ada", unix_user="ada")
    User.objects.create(username="bob", unix_user="bob")
    User.objects.create(username="vic", unix_user="vic", role=User.Role.VIEWER)
    said = doctor._linked(Host.objects.select_related("pool").get(pk=one.pk))
    assert said is not None and said[0] == "warn"
    assert "can become root here: ada (of ada; docker and sudo). Their jobs" in said[1]
    User.objects.filter(username="ada").update(unix_user="eve")
    assert doctor._linked(Host.objects.select_related("pool").get(pk=one.pk)) is None


def test_a_change_of_users_or_rules_is_in_the_report_without_asking_the_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ada, one = make_user(), host("gpu1", SUDO)
    disk = {"name": "disk", "state": "ok", "sentence": "Enough."}
    Host.objects.filter(pk=one.pk).update(doctor={"checks": [disk], "at": timezone.now().isoformat()})
    host("gpu2", SUDO)  # never examined, so there is nothing to bring up to date
    monkeypatch.setattr(remote, "verb", lambda *_, **__: pytest.fail("a host was asked"))

    def states() -> list[tuple[str, str]]:
        doctor.judge_accounts()
        one.refresh_from_db()
        return [(check["name"], check["state"]) for check in one.doctor["checks"]]

    assert states() == [("disk", "ok"), ("account", "fail"), ("users", "ok")]
    pool_edits.edit("default", {"allow_login_account": True}, actor="user:root")
    assert states() == [("disk", "ok"), ("account", "warn"), ("users", "ok")]
    User.objects.filter(pk=ada.pk).update(unix_user="ada")
    assert states() == [("disk", "ok"), ("account", "ok"), ("users", "ok")]
    Host.objects.filter(pk=one.pk).update(facts=ALONE)
    assert states() == [("disk", "ok"), ("users", "ok")]
    assert Host.objects.get(name="gpu2").doctor == {}


def test_the_rule_is_a_switch() -> None:
    default_pool()
    with pytest.raises(FieldRefusals):
        pool_edits.edit("default", {"allow_login_account": "yes"}, actor="user:root")
