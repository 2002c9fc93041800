"""Resource pools are created, edited and removed by one writer, which refuses with a sentence for each wrong field."""

import pytest

from accounts import user_groups
from accounts.refusals import FieldRefusals, Refusal
from events.models import Event
from hosts import pool_edits, registry
from hosts.models import PoolChange, ResourcePool
from hosts.pools import default_pool, default_pool_for
from jobs.accepting import pool_for
from jobs.models import Job
from jobs.states import JobState
from tests.rig.rows import make_gang
from tests.rig.world import make_host
from webui.api.job_queue import pool_named

pytestmark = pytest.mark.django_db


def make(name: str = "a100", **rules: object) -> ResourcePool:
    return pool_edits.create(name, rules, actor="user:ada")


def test_a_new_pool_has_its_rules_an_event_and_a_mark_for_the_next_pass() -> None:
    pool = make(
        scheduler="fair_share", fitting="worst", priority_floor={"editor": 20}, host_lost_after_seconds=600
    )
    pool.refresh_from_db()
    assert (pool.scheduler, pool.fitting, pool.priority_floor) == ("fair_share", "worst", {"editor": 20})
    assert PoolChange.objects.filter(pool=pool).exists()
    event = Event.objects.get(kind=Event.Kind.POOL, subject=str(pool.pk))
    assert (event.reason, event.actor) == ("created", "user:ada")
    assert default_pool().name == "default"


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("scheduler", "round_robin", "allowed: priority or fair_share"),
        ("fitting", "tight", "allowed: best or worst"),
        ("preemption", "maybe", "allowed: true or false"),
        ("default_priority", 0, "allowed: a whole number from 1 to 99"),
        ("default_priority", 100, "Found 100"),
        ("default_priority", True, "Found True"),
        ("priority_floor", {"viewer": 3}, "for editor and admin"),
        ("priority_floor", {"editor": 0}, "a priority from 1 to 99"),
        ("longest_max_time_seconds", 0, "or none: no limit"),
        ("unpreemptible_slots", -1, "or none: all of them"),
        ("min_runtime_seconds", 600, 'such as {"1": 600, "50": 0}'),
        ("min_runtime_seconds", {"0": 600}, "from a priority (1 to 99) on"),
        ("min_runtime_seconds", {"1": -1}, "seconds from a priority"),
        ("min_runtime_seconds", {"1": "10m"}, "seconds from a priority"),
        ("aux_per_host", None, "a whole number of 0 or more"),
        ("host_lost_after_seconds", 5, "only a user declares a host lost"),
        ("hang_after_seconds", 59, "a whole number of 60 or more, or none: nobody looks"),
        ("hang_do", "kill", "allowed: tell or restart or restart_elsewhere"),
        ("burn_in", "daily", "allowed: never or before_joining or weekly"),
        ("burn_in_do", "remove", "allowed: tell or quarantine"),
        ("spare_hosts", -1, "a whole number of 0 or more"),
        ("spare_hosts", 1, "Found 1; allowed: at most 0. The pool has no hosts with slots"),
        ("network_interface", "eth0; rm", "the name of one network interface"),
        ("colour", "blue", "Unknown pool field colour"),
    ],
)
def test_a_wrong_value_names_its_field_what_was_found_and_what_is_allowed(
    field: str, value: object, sentence: str
) -> None:
    with pytest.raises(FieldRefusals) as caught:
        make(**{field: value})
    assert list(caught.value.errors) == [field]
    assert sentence in caught.value.errors[field]
    assert not ResourcePool.objects.filter(name="a100").exists()


def test_every_wrong_field_is_told_at_once() -> None:
    with pytest.raises(FieldRefusals) as caught:
        pool_edits.create("a b", {"fitting": "x", "strict": 1}, actor="user:ada")
    assert set(caught.value.errors) == {"name", "fitting", "strict"}


def test_fields_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(Refusal, match="longer than the longest"):
        make(default_max_time_seconds=7200, longest_max_time_seconds=3600)
    with pytest.raises(Refusal, match="is above the limit for editors, 50"):
        make(priority_floor={"editor": 50})
    make(priority_floor={"editor": 50}, default_priority=60)


def test_a_host_at_least_is_left_beside_the_spares_and_their_slots_are_guaranteed_to_nobody() -> None:
    pool = make()
    for number, slots in enumerate((8, 8, 4, 0)):
        make_host(f"gpu{number}", slots, pool=pool)
    with pytest.raises(FieldRefusals) as caught:
        pool_edits.edit("a100", {"spare_hosts": 3}, actor="user:ada")
    assert caught.value.errors == {
        "spare_hosts": "Found 3; allowed: at most 2. The pool has 3 hosts with slots, and at least one must be left "
        "for all work. Add hosts first, or keep fewer."
    }
    assert pool_edits.edit("a100", {"spare_hosts": 1}, actor="user:ada") == ["spare_hosts"]
    user_groups.create("vision", actor="user:ada")
    shares = {"vision": {"guarantee": 13}}
    for wish in ({"group_shares": shares}, {"group_shares": shares, "spare_hosts": 1}):
        with pytest.raises(
            Refusal, match="guaranteed 13 slots; the pool has 12 beside the 8 of its spare hosts"
        ):
            pool_edits.edit("a100", wish, actor="user:ada")
    pool_edits.edit("a100", {"group_shares": {"vision": {"guarantee": 12}}}, actor="user:ada")
    with pytest.raises(FieldRefusals) as caught:
        pool_edits.edit("a100", {"spare_hosts": 2}, actor="user:ada")
    assert "Add hosts first, keep fewer spares, or guarantee less." in caught.value.errors["spare_hosts"]


def test_a_slurm_pool_keeps_no_spares() -> None:
    with pytest.raises(Refusal, match="The hosts of a Slurm pool are nodes that Slurm gives away"):
        make(slurm={"login": "login1"}, spare_hosts=1)


def test_an_edit_changes_what_is_given_and_is_noted_once() -> None:
    pool = make()
    PoolChange.objects.all().delete()
    assert pool_edits.edit("a100", {"scheduler": "fair_share", "fitting": "best"}, actor="user:ada") == [
        "scheduler"
    ]
    assert PoolChange.objects.filter(pool=pool).count() == 1
    event = Event.objects.filter(kind=Event.Kind.POOL).latest("id")
    assert event.detail["changes"] == {"scheduler": ["priority", "fair_share"]}
    assert pool_edits.edit("a100", {"scheduler": "fair_share"}, actor="user:ada") == []
    assert PoolChange.objects.filter(pool=pool).count() == 1


def test_the_default_pool_is_there_before_any_host_is() -> None:
    """As with `host add --allow-login-account`; REST and configs name pools by the same words."""
    assert not ResourcePool.objects.exists() and pool_for("default").default_compute
    ResourcePool.objects.all().delete()
    assert pool_edits.edit("default", {"allow_login_account": True}, actor="user:ada") == [
        "allow_login_account"
    ]
    assert pool_named("default").allow_login_account
    ResourcePool.objects.update(name="first")
    with pytest.raises(Refusal, match="There is no resource pool default"):
        pool_edits.edit("default", {"strict": True}, actor="user:ada")
    with pytest.raises(Refusal, match="the pools are: first"):
        pool_for("default")


def test_a_default_is_handed_over_and_never_switched_off() -> None:
    first = default_pool()
    make("aux")
    with pytest.raises(Refusal, match="make another pool the default instead"):
        pool_edits.edit(first.name, {"default_aux": False}, actor="user:ada")
    pool_edits.edit("aux", {"default_aux": True}, actor="user:ada")
    assert default_pool_for(0).name == "aux"
    assert default_pool_for(1) == default_pool() == first
    assert ResourcePool.objects.filter(default_aux=True).count() == 1
    handed = Event.objects.get(kind=Event.Kind.POOL, subject=str(first.pk), reason="changed")
    assert handed.detail["changes"] == {"default_aux": [True, False]}


def test_a_pool_in_use_is_not_removed() -> None:
    [member] = make_gang()
    pool = member.host.pool
    with pytest.raises(Refusal, match="Move its hosts"):
        pool_edits.remove(pool.name, actor="user:ada")
    member.host.pool = default_pool()
    member.host.save()
    with pytest.raises(Refusal, match="1 unfinished job is in it"):
        pool_edits.remove(pool.name, actor="user:ada")
    with pytest.raises(Refusal, match="default compute and aux pool"):
        make_idle_default()
    with pytest.raises(Refusal, match="There is no resource pool moon"):
        pool_edits.remove("moon", actor="user:ada")


def make_idle_default() -> None:
    """The default pool without hosts cannot go either."""
    registry.present().update(pool=make("elsewhere"))
    pool_edits.remove(default_pool().name, actor="user:ada")


def test_a_pool_without_history_is_deleted_and_one_with_it_is_hidden_and_may_come_back() -> None:
    make("fresh")
    pool_edits.remove("fresh", actor="user:ada")
    assert not ResourcePool.with_removed.filter(name="fresh").exists()
    [member] = make_gang()
    pool = member.host.pool
    registry.present().update(pool=default_pool())
    Job.objects.filter(pool=pool).update(state=JobState.ENDED)
    pool_edits.edit(pool.name, {"scheduler": "fair_share"}, actor="user:ada")
    pool_edits.remove(pool.name, actor="user:ada")
    assert not ResourcePool.objects.filter(name=pool.name).exists()
    assert Job.objects.select_related("pool").get().pool.name == pool.name
    again = make(pool.name)
    assert (again.pk, again.scheduler, again.removed) == (pool.pk, "priority", False)
