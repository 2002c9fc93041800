"""What is refused because no host of the pool is large enough, and what may wait all the same."""

from __future__ import annotations

import pytest

from accounts.refusals import Refusal
from hosts.models import Host, ResourcePool
from hosts.pools import default_pool
from jobs import capacity
from tests.rig.world import make_host

pytestmark = pytest.mark.django_db


def refused(slots: int, *names: str, single_host: bool = True) -> str:
    """The sentence; empty if it may wait. `names`: the hosts that its config allows."""
    try:
        capacity.refuse_what_never_fits(default_pool(), slots, single_host=single_host, only_hosts=names)
    except Refusal as refusal:
        return str(refusal)
    return ""


def test_only_what_is_larger_than_every_host_is_refused() -> None:
    make_host("gpu1", 2)
    make_host("gpu2", 4)
    assert not refused(4) and not refused(0) and not refused(6, single_host=False)
    assert "needs 5 slots on one host; the largest host here has 4" in refused(5)


def test_hosts_that_are_off_count_and_a_pool_without_hosts_refuses_nothing() -> None:
    assert not refused(10_485)
    host = make_host("gpu1", 2)
    Host.objects.update(enabled=False, contact=Host.Contact.SILENT)
    assert not refused(2) and refused(3)
    Host.objects.filter(pk=host.pk).update(admission=Host.Admission.LOST)
    assert not refused(3)


def test_it_may_wait_while_a_host_is_being_added_or_where_the_pool_says_that_some_may_come() -> None:
    make_host("gpu1", 2)
    assert refused(3)
    added = make_host("gpu2", 0)
    Host.objects.filter(pk=added.pk).update(admission=Host.Admission.ADMITTING)
    assert not refused(3)
    added.delete()
    ResourcePool.objects.update(launch_error=False)
    assert not refused(3)


def test_hosts_that_its_config_names_are_hosts_of_its_pool() -> None:
    big = ResourcePool.objects.create(name="big")
    make_host("gpu1", 2), make_host("gpu2", 2), make_host("gpu9", 8, big)
    assert (
        not refused(2, "gpu1")
        and not refused(4, "gpu1", "gpu2", single_host=False)
        and not refused(0, "gpu2")
    )
    hosts = "the hosts of resource pool default are: gpu1 and gpu2."
    assert refused(1, "gpu1", "gpu7") == f"resources.hosts names host gpu7, which does not exist; {hosts}"
    elsewhere = "is in resource pool big, not in default"
    assert refused(0, "gpu9") == f"resources.hosts names host gpu9, which {elsewhere}; {hosts}"
    Host.objects.filter(name="gpu2").update(admission=Host.Admission.REMOVED)
    assert "names host gpu2, which does not exist" in refused(1, "gpu2")


def test_what_never_fits_on_the_hosts_that_its_config_names_is_refused_gangs_too() -> None:
    make_host("gpu1", 2), make_host("gpu2", 2), make_host("gpu3", 8)
    ResourcePool.objects.update(launch_error=False)
    for slots, names in ((3, ["gpu1"]), (8, ["gpu1", "gpu2"])):
        assert f"needs {slots} slots" in refused(slots, *names, single_host=False)
        assert "Name more or larger hosts in resources.hosts." in refused(slots, *names, single_host=False)
    Host.objects.filter(name="gpu1").update(admission=Host.Admission.ADMITTING)
    assert not refused(3, "gpu1")
