import uuid

import pytest

from accounts.refusals import Refusal
from events.models import Event
from hosts import registry
from hosts.models import Host, PoolChange, ResourcePool
from hosts.pools import default_pool
from hosts.registry import NewHost
from tests.rig.rows import make_gang

pytestmark = pytest.mark.django_db


def make(name: str = "gpu1", **changes: object) -> Host:
    return registry.add(NewHost(name, address="10.0.0.1", **changes), default_pool(), actor="user:ada")  # type: ignore[arg-type]


def reasons(host: Host) -> list[str]:
    rows = Event.objects.filter(kind=Event.Kind.HOST, subject=str(host.pk)).order_by("id")
    return [row.reason for row in rows]


def test_a_new_host_waits_for_its_admission() -> None:
    host = make(port=2222, login_user="ml")
    assert (host.admission, host.contact, host.enabled) == ("admitting", "unknown", True)
    assert (host.added_by, host.port, host.login_user) == ("ada", 2222, "ml")
    assert reasons(host) == ["added"]
    assert PoolChange.objects.filter(pool=host.pool).exists()


@pytest.mark.parametrize(
    ("new", "field", "sentence"),
    [
        (NewHost("a b"), "name", "'a b' is not allowed"),
        (NewHost("ok", port=-1), "port", "The port is -1; allowed: 1 to 65535"),
        (NewHost("ok", transport="telnet"), "transport", "allowed: ssh, local"),
        (NewHost("ok", jumps=[{"port": 22}]), "jumps[0].address", "needs an address"),
        (NewHost("ok", wanted_slots=-1), "wanted_slots", "allowed: 0 to"),
        (NewHost("ok", workdir="work"), "workdir", "an absolute path"),
    ],
)
def test_a_wrong_field_is_named_and_nothing_is_kept(new: NewHost, field: str, sentence: str) -> None:
    with pytest.raises(Refusal, match=sentence) as caught:
        registry.add(new, default_pool(), actor="user:ada")
    assert caught.value.field == field and not Host.objects.exists()


def test_a_name_is_taken_once() -> None:
    make()
    with pytest.raises(Refusal, match="A host named 'gpu1' already exists"):
        make()


def test_enable_disable_and_drain_are_steps_with_events_and_repeat_without() -> None:
    host = make()
    for step in (
        registry.drain,
        registry.drain,
        registry.disable,
        registry.disable,
        registry.enable,
        registry.enable,
    ):
        step(host.pk, actor="user:ada")
    assert reasons(host) == ["added", "draining", "disabled", "enabled"]
    host.refresh_from_db()
    assert host.enabled and not host.draining


def test_a_host_that_runs_something_is_neither_moved_nor_removed() -> None:
    [member] = make_gang()
    pool = ResourcePool.objects.create(name="other")
    with pytest.raises(Refusal, match=f"while it runs {member.run_key}"):
        registry.change_pool(member.host_id, pool, actor="user:ada")
    with pytest.raises(Refusal, match="Drain or disable it"):
        registry.remove(member.host_id, actor="user:ada")


def test_a_host_without_history_is_deleted_and_one_with_it_is_hidden_and_may_come_back() -> None:
    fresh = make("fresh")
    registry.remove(fresh.pk, actor="user:ada")
    assert not Host.objects.filter(pk=fresh.pk).exists()
    [member] = make_gang()
    member.ended_at = member.allocation.assigned_at
    member.save()
    host = member.host
    registry.remove(host.pk, actor="user:ada")
    host.refresh_from_db()
    assert host.admission == Host.Admission.REMOVED and host not in registry.present()
    with pytest.raises(Refusal, match="There is no host"):
        registry.enable(host.pk, actor="user:ada")
    again = make(host.name)
    assert again.pk == host.pk and again.admission == Host.Admission.ADMITTING


def test_a_pool_change_tells_both_pools() -> None:
    host = make()
    before = host.pool_id
    PoolChange.objects.all().delete()
    pool = ResourcePool.objects.create(name="other")
    registry.change_pool(host.pk, pool, actor="user:ada")
    assert set(PoolChange.objects.values_list("pool_id", flat=True)) == {before, pool.pk}


def test_a_loss_is_declared_once() -> None:
    host = make()
    assert registry.declare_lost(host.pk, actor="user:ada")
    assert not registry.declare_lost(host.pk, actor="server")
    host.refresh_from_db()
    assert host.admission == Host.Admission.LOST and "user:ada" in host.state_reason
    assert reasons(host) == ["added", "declared_lost"]


def test_only_an_offered_key_is_accepted_the_jump_hosts_too() -> None:
    host = make(jumps=[{"address": "jump", "port": 22}])
    with pytest.raises(Refusal, match="has no key waiting"):
        registry.accept_key(host.pk, actor="user:ada")
    host.jumps[0]["offered_host_key"] = "ssh-ed25519 AAAAjump"
    host.save()
    registry.accept_key(host.pk, key="ssh-ed25519 AAAAjump comment", actor="user:ada")
    host.refresh_from_db()
    assert host.jumps == [{"address": "jump", "port": 22, "host_key": "ssh-ed25519 AAAAjump"}]
    assert reasons(host)[-1] == "key_accepted"


def test_the_doctor_looks_at_a_host_in_use_without_taking_it_out() -> None:
    host = make()
    Host.objects.filter(pk=host.pk).update(admission=Host.Admission.READY)
    registry.examine(host.pk, actor="user:ada")
    host.refresh_from_db()
    assert host.admission == Host.Admission.READY
    Host.objects.filter(pk=host.pk).update(admission=Host.Admission.FAILED, state_reason="No.")
    registry.examine(host.pk, actor="user:ada")
    host.refresh_from_db()
    assert (host.admission, host.state_reason) == ("admitting", "")


def test_a_known_interpreter_is_taken_at_once_and_an_unknown_one_is_tried_first() -> None:
    host = make()
    facts = {"interpreters": [{"path": "/opt/ml/bin/python"}]}
    Host.objects.filter(pk=host.pk).update(admission=Host.Admission.READY, facts=facts)
    assert (
        registry.choose_interpreter(host.pk, python="/opt/ml/bin/python", actor="user:ada").admission
        == "ready"
    )
    host = registry.choose_interpreter(host.pk, activate="/opt/env.sh", actor="user:ada")
    assert (host.python, host.activate, host.admission) == ("/opt/ml/bin/python", "/opt/env.sh", "ready")
    host = registry.choose_interpreter(host.pk, python="/opt/other/python", actor="user:ada")
    assert (host.python, host.activate, host.admission) == ("/opt/other/python", "", "admitting")
    with pytest.raises(Refusal, match="an absolute path"):
        registry.choose_interpreter(host.pk, python="python3", actor="user:ada")


def test_an_unknown_host_is_a_sentence() -> None:
    with pytest.raises(Refusal, match="It may have been removed"):
        registry.drain(uuid.uuid4(), actor="user:ada")
