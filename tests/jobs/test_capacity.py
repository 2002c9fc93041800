"""What is refused because no host of the pool is large enough, and what may wait all the same."""

from __future__ import annotations

import pytest

from accounts.refusals import Refusal
from hosts.models import Host, ResourcePool
from hosts.pools import default_pool
from jobs import capacity
from tests.rig.world import make_host

pytestmark = pytest.mark.django_db


def refused(slots: int, *, single_host: bool = True) -> str:
    """The sentence; empty if it may wait."""
    try:
        capacity.refuse_what_never_fits(default_pool(), slots, single_host=single_host)
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
