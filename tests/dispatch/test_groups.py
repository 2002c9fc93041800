"""Groups that share a pool, from the rule to the pass: what is guaranteed, past use, renamed and deleted groups."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from accounts import user_groups
from accounts.refusals import FieldRefusals, Refusal
from dispatch.passes import pool_pass, preview, survey
from hosts import pool_edits
from hosts.models import ResourcePool
from hosts.pools import default_pool
from jobs import past_use, queue_edits
from jobs.models import UsageRecord
from jobs.states import StopKind
from tests.rig.world import attempt_of, make_host, make_user, plan_of, submit_experiment, trial_of

pytestmark = pytest.mark.django_db
ROOT = "user:root"


def run_pass() -> None:
    pool_pass.run(default_pool().pk)


def group_of(name: str, *users: str, parent: str = "") -> None:
    user_groups.create(name, parent=parent, add=[make_user(user) for user in users], actor=ROOT)


def share(**shares: object) -> None:
    pool_edits.edit("default", {"group_shares": shares}, actor=ROOT)


def test_a_group_gets_its_guarantee_back_and_explain_says_what_is_borrowed() -> None:
    make_host("gpu1", 4)
    group_of("vision", "ada")
    group_of("speech", "bob")
    share(vision={"guarantee": 2}, speech={"guarantee": 2, "limit": 3})
    borrowers = [submit_experiment(slots=1, owner=make_user("ada"), priority=1) for _ in range(5)]
    run_pass()
    waits = submit_experiment(slots=2, owner=make_user("bob"), priority=90)
    run_pass()
    stopped = [attempt_of(each).stop_kind == StopKind.PREEMPT for each in borrowers[:4]]
    assert sum(stopped) == 2
    found = preview.blockers(borrowers[4].job, timezone.now())
    sentences = [reason.sentence for reason in found[trial_of(borrowers[4]).task_id]]
    assert (
        "group vision holds 4 slots, 2 of them guaranteed; 2 are borrowed and may be reclaimed" in sentences
    )
    assert "being freed by" in plan_of(default_pool())["waits"][trial_of(waits).task_id]["sentence"]


def test_a_preview_names_the_group_from_which_a_slot_is_taken() -> None:
    make_host("gpu1", 2)
    group_of("vision", "ada")
    group_of("speech", "bob")
    for _ in range(2):
        submit_experiment(slots=1, owner=make_user("ada"))
    run_pass()
    waits = submit_experiment(slots=1, owner=make_user("bob"))
    edit = [queue_edits.Update(str(waits.job_id), priority=30)]
    found = preview.of(edit, actor="user:bob", role="editor", now=timezone.now())
    assert [(stop.username, stop.group) for stop in found.stops] == [("ada", "vision")]


def test_past_use_counts_with_the_half_life_of_the_pool() -> None:
    make_host("gpu1", 4)
    group_of("vision", "ada")
    share(vision={"weight": 2})
    now, pool, ada = timezone.now(), default_pool(), make_user("ada")
    for key, ended in (("a", 0), ("b", 7)):
        UsageRecord.objects.create(
            run_key=key, kind="TRIAL", owner=ada, pool=pool, slots=4, labels=[], workspace="",
            started_at=now - timedelta(days=ended + 7), ended_at=now - timedelta(days=ended),
        )  # fmt: skip
    found = past_use.averages(pool.pk, timedelta(days=7), now)
    assert found == {ada.pk: pytest.approx(4 * 0.75)}, "4 slots through the last two half-lives"
    taken = survey.take(pool, now).pool.shares["vision"]
    assert (taken.weight, taken.usage) == (2, pytest.approx(3.0))
    pool_edits.edit("default", {"usage_half_life_seconds": 0}, actor=ROOT)
    assert survey.take(default_pool(), now).pool.shares["vision"].usage == 0.0


def test_rules_follow_the_name_of_a_group_and_keep_it_from_being_deleted() -> None:
    make_host("gpu1", 4)
    group_of("vision", "ada")
    share(vision={"guarantee": 2})
    group = user_groups.named("vision")
    with pytest.raises(Refusal, match="Group vision cannot be deleted: pool default gives it a share"):
        user_groups.delete(group, actor=ROOT)
    user_groups.change(group, name="sight", actor=ROOT)
    assert ResourcePool.objects.get().group_shares == {"sight": {"guarantee": 2}}
    share()
    user_groups.delete(user_groups.named("sight"), actor=ROOT)


@pytest.mark.parametrize(
    ("shares", "sentence"),
    [
        ({"vision": {"guarantee": 5}}, "The groups are guaranteed 5 slots; the pool has 4."),
        ({"vision": {"guarantee": 3, "limit": 2}}, "the limit of group vision is below its guarantee"),
        ({"moon": {"guarantee": 1}}, "there is no group moon"),
        ({"vision": {"slots": 1}}, "allowed for group vision: guarantee, limit and weight, not slots"),
        ({"vision": {"weight": 0}}, "the weight of group vision must be a number above 0"),
        ({"vision": {"guarantee": "two"}}, "the guarantee of group vision must be a whole number of slots"),
        ({"vision": 3}, "allowed: what each group gets, such as"),
        (
            {"research": {"guarantee": 2}, "speech": {"guarantee": 3}},
            "The teams of research are guaranteed 3 slots, more than its own 2.",
        ),
        ({"speech": {"guarantee": 3}, "research": {"limit": 2}}, "more than its limit of 2."),
        ({"speech": {"guarantee": 3}, "vision": {"guarantee": 2}}, "The groups are guaranteed 5 slots"),
    ],
)
def test_shares_that_cannot_be_kept_are_refused(shares: dict[str, object], sentence: str) -> None:
    make_host("gpu1", 4)
    group_of("vision")
    group_of("research")
    group_of("speech", parent="research")
    with pytest.raises(FieldRefusals) as refused:
        share(**shares)
    assert sentence in refused.value.errors["group_shares"]
    assert ResourcePool.objects.get().group_shares == {}
