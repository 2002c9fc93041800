"""One machine under two names would give its GPUs twice: which evidence counts, and which does not."""

from typing import Any

import pytest
from django.conf import LazySettings

from dispatch.watching import doctor
from hosts import identity
from hosts.models import Host
from hosts.pools import default_pool
from tests.rig.rows import make_gang

pytestmark = [pytest.mark.django_db, pytest.mark.survive(19)]

KERNEL = {
    "boot_id": "b1",
    "hostname": "box",
    "machine": {"id": "m1", "namespaces": {"pid": 1, "net": 2, "uts": 3}},
}


def gpus(*uuids: str, mig: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    instances = [{"uuid": one, "name": "1g.10gb", "memory_mib": 1} for one in mig]
    return [
        {"index": 0, "uuid": one, "name": "H100", "memory_mib": 1, "driver": "", "mig": instances}
        for one in uuids
    ]


def make(name: str, admission: str = "ready", wanted: int | None = None, **facts: Any) -> Host:
    facts = {"cpus": {"count": 4, "usable": 4}, **facts}
    return Host.objects.create(
        name=name,
        pool=default_pool(),
        transport="local",
        admission=admission,
        wanted_slots=wanted,
        facts=facts,
    )


@pytest.mark.parametrize(
    ("first", "second", "shared"),
    [
        (gpus("A", "B"), gpus("B", "C"), ("B",)),
        (gpus("A"), gpus("B"), ()),
        (gpus("A", mig=("A1", "A2")), gpus("A", mig=("A3",)), ()),
        (gpus("A", mig=("A1", "A2")), gpus("A", mig=("A2",)), ("A2",)),
        (gpus("A"), gpus("A", mig=("A1",)), ("A",)),
        (gpus("A", mig=("A1",)), gpus("A"), ("A",)),
        ([], [], ()),
    ],
)
def test_what_two_hosts_may_share(first: list[Any], second: list[Any], shared: tuple[str, ...]) -> None:
    """Instances of one GPU may be shared out among containers; a GPU may not."""
    make("old", gpus=first)
    twin = identity.same_gpus(make("new", admission="admitting", gpus=second))
    assert (twin.gpus if twin else ()) == shared


def test_containers_of_one_machine_and_hosts_that_are_not_in_use_are_no_twins() -> None:
    for admission in ("lost", "removed", "failed"):
        make(admission, admission=admission, gpus=gpus("A"), **KERNEL)
    make("old", gpus=gpus("B"), **KERNEL)
    apart = {**KERNEL, "machine": {"id": "m1", "namespaces": {"pid": 9, "net": 9, "uts": 9}}}
    for facts in (apart, {**KERNEL, "boot_id": "another"}, {"boot_id": "b1"}):
        host = make(f"h{Host.objects.count()}", admission="admitting", gpus=gpus("A"), **facts)
        assert identity.same_gpus(host) is None and identity.same_machine(host) is None
    twin = identity.same_machine(make("again", admission="admitting", **KERNEL))
    assert twin and twin.name == "old" and "gpu1 is the same machine as old" in twin.warning("gpu1")


def test_the_younger_of_two_names_is_taken_out_whichever_is_looked_at(settings: LazySettings) -> None:
    for looked_at in ("old", "young"):
        Host.objects.all().delete()
        old, young = make("old", gpus=gpus("A")), make("young", gpus=gpus("A", "B"))
        doctor.register({"old": old, "young": young}[looked_at])
        old.refresh_from_db()
        young.refresh_from_db()
        assert (old.admission, young.admission) == ("ready", "failed")
        assert (
            young.state_reason.startswith("young has the same GPUs as old (A)") and not young.slots.exists()
        )


def test_a_number_of_cpu_slots_that_was_asked_for_is_given_without_the_gpus() -> None:
    make("old", gpus=gpus("A"))
    host = make("for-cpus", wanted=3, gpus=gpus("A"))
    doctor.register(host)
    host.refresh_from_db()
    assert host.admission == "ready" and [slot.kind for slot in host.slots.all()] == ["cpu"] * 3
    state, sentence = doctor._machine(host) or ("", "")
    assert state == "warn" and sentence.startswith("Its GPUs are slots of old")


def test_what_runs_on_a_host_that_is_taken_out_goes_on() -> None:
    make("old", gpus=gpus("A"))
    member = make_gang()[0]
    Host.objects.filter(pk=member.host_id).update(admission="ready", facts={"gpus": gpus("A")})
    member.host.refresh_from_db()
    doctor.register(member.host)
    member.refresh_from_db()
    assert member.state == "ASSIGNED" and Host.objects.get(pk=member.host_id).admission == "failed"
