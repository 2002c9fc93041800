"""A sweep in which one row or one step breaks: the others get theirs all the same."""

from datetime import timedelta

import pytest
from django.conf import LazySettings
from django.db import OperationalError, connection
from django.utils import timezone

from dispatch import tasks
from dispatch.going_on import going_on
from dispatch.runs import reconcile, stop
from hosts import registry
from hosts.models import Host
from jobs import transitions
from jobs.models import Allocation, Member
from jobs.states import AllocationState, MemberState, Reason, StopKind
from tests.dispatch.test_time_limits import running
from tests.rig.world import attempt_of, make_host

pytestmark = pytest.mark.django_db


def breaks(table: str, key: str) -> None:
    """From now on no change of this row is stored."""
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute(
            "CREATE FUNCTION pg_temp.break() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION 'this row is broken'; END $$"
        )
        cursor.execute(
            f"CREATE TRIGGER broken BEFORE UPDATE ON {table} FOR EACH ROW "
            f"WHEN (OLD.id::text = '{key}') EXECUTE FUNCTION pg_temp.break()"
        )


@pytest.fixture
def two() -> tuple[str, str]:
    """Two attempts that run under a limit, on a host each; no change of the first can be stored."""
    make_host("gpu1", 1)
    make_host("gpu2", 1)
    bad, good = (attempt_of(running()).pk for _ in range(2))
    Host.objects.update(contact=Host.Contact.SILENT)  # so that no worker is asked to ask them
    return bad, good


def stop_kind(allocation_id: str) -> str:
    return str(Allocation.objects.get(pk=allocation_id).stop_kind)


def test_the_limit_of_the_others_is_watched(two: tuple[str, str]) -> None:
    Allocation.objects.update(started_at=timezone.now() - timedelta(hours=5))
    breaks("jobs_allocation", two[0])
    stop.watch_limits(timezone.now())
    assert [stop_kind(each) for each in two] == [StopKind.NONE, StopKind.PREEMPT]


def test_the_others_on_disabled_hosts_are_stopped(two: tuple[str, str]) -> None:
    for host_id in Member.objects.values_list("host_id", flat=True):
        registry.disable(host_id, actor="user:admin")
    breaks("jobs_allocation", two[0])
    reconcile.leave_disabled_hosts()
    assert [stop_kind(each) for each in two] == [StopKind.NONE, StopKind.STOP]


def test_the_others_are_concluded_and_stopped(two: tuple[str, str]) -> None:
    Member.objects.update(state=MemberState.ENDED, exit_reason=Reason.COMPLETED, ended_at=timezone.now())
    make_host("gpu3", 1)
    overdue = attempt_of(running())
    transitions.request_stop(overdue.pk, StopKind.PREEMPT, reason=Reason.PREEMPTED, actor="server")
    Allocation.objects.filter(pk=overdue.pk).update(stop_deadline_at=timezone.now() - timedelta(seconds=1))
    breaks("jobs_allocation", two[0])
    reconcile.forgotten()
    bad, good = (Allocation.objects.get(pk=each).state for each in two)
    assert bad != AllocationState.TERMINATED and good == AllocationState.TERMINATED
    assert stop_kind(overdue.pk) == StopKind.STOP


def test_a_step_that_breaks_is_logged_and_the_next_ones_are_done(
    two: tuple[str, str], settings: LazySettings, caplog: pytest.LogCaptureFixture
) -> None:
    settings.HOST_SILENT_AFTER_SECONDS = -1.0
    Allocation.objects.update(started_at=timezone.now() - timedelta(hours=5))
    talkative = make_host("gpu3", 1)
    Host.objects.filter(pk=talkative.pk).update(contact=Host.Contact.REACHABLE)
    breaks("hosts_host", str(talkative.pk))
    tasks.sweep()
    assert "note_silence" in caplog.text and "this row is broken" in caplog.text
    assert [stop_kind(each) for each in two] == [StopKind.PREEMPT, StopKind.PREEMPT]


@pytest.mark.survive(23)
def test_a_database_that_is_away_ends_it() -> None:
    with pytest.raises(OperationalError), going_on("a step"):
        raise OperationalError("the connection is closed")
