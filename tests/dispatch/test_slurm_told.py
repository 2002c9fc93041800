"""What jobs in Slurm tell and are told, and what is said of the time when they start."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.conf import LazySettings
from django.db.models import F
from django.utils import timezone

from dispatch.passes import pool_pass
from dispatch.ssh import doors, remote, slurm_login, slurm_node
from dispatch.ssh.contact_errors import Unreachable
from events import announce
from hosts.models import Host
from jobs import feeding
from jobs.fed_jobs import FedJob
from jobs.models import Member
from jobs.states import MemberState, Reason
from jobs.transitions import member_ended
from tests.dispatch.test_slurm_answers_settled import World, in_an_hour

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr(slurm_login, "ask", made.ask)
    monkeypatch.setattr(remote, "verb", lambda host, verb, request, **_: {"runs": made.runs})
    return made


@pytest.fixture
def woken(monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, ...]]:
    """What the cluster was to be looked at for."""
    calls: list[tuple[object, ...]] = []

    def publish(_: object, sent: Any) -> None:
        calls.extend(args for name, many in sent.items() if name == feeding.TEND for args in many)

    monkeypatch.setattr(announce, "_publish", publish)
    return calls


def begun(world: World, slots: int = 1) -> tuple[FedJob, Member]:
    row = world.fed(slots)
    world.jobs = [(row.job_id, "RUNNING", "n1", row.attempt)]
    world.runs = {f"{row.attempt}.0": {"state": "running"}}
    world.look()
    row.refresh_from_db()
    return row, Member.objects.get(allocation=row.attempt)


def test_a_run_is_reached_until_slurm_surely_has_no_job_for_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    row, member = begun(world)
    asked: list[str] = []

    def verb(_: Host, job: str, nodes: Sequence[Host], *__: object) -> dict[str, Any]:
        asked.append(job)
        return {"runs": {member.run_key: {"state": "running"}}}

    monkeypatch.setattr(slurm_node, "verb", verb)
    feeding.over(row, "", timezone.now())  # one answer
    orders = {member.run_key: {"reason": "killed"}}
    assert slurm_node.of_runs(world.login, "stop", orders)["runs"].keys() == {member.run_key}
    FedJob.objects.update(over_at=F("over_at") - timedelta(seconds=feeding.CONFIRM_SECONDS))
    for _ in range(2):
        with pytest.raises(Unreachable, match=f"no job any more in which {member.run_key} could") as error:
            slurm_node.of_runs(world.login, "stop", orders)
        assert not error.value.delivered
        FedJob.objects.update(over_at=None, ended_at=timezone.now())
    Member.objects.update(state=MemberState.ENDED)
    assert slurm_node.of_runs(world.login, "server", orders) == {"runs": {}}
    assert asked == [row.job_id]


def test_nothing_is_told_again_once_nodes_are_known_and_the_end_of_the_former_run_has_slurm_asked(
    world: World, woken: list[tuple[object, ...]]
) -> None:
    _, member = begun(world, slots=4)
    row = world.fed(slots=4)
    assert not feeding.told_begun(row.attempt)
    feeding.waits_for_nodes(row, timezone.now())
    assert feeding.told_begun(row.attempt)
    woken.clear()
    member_ended(member, code=0, signal=None, reason=Reason.COMPLETED)
    assert (world.pool.pk, True) in woken


def test_no_old_time_stands_beside_a_new_reason(world: World, settings: LazySettings) -> None:
    settings.FORECAST_SECONDS = 3600.0
    row = world.fed()
    world.jobs, world.starts = [("1", "PENDING", "", row.attempt)], {"1": in_an_hour()}
    world.look()
    world.passes()
    before = world.plan().forecast[row.task_id]
    later = (timezone.now() + timedelta(hours=5)).strftime("%Y-%m-%dT%H:%M:%S")
    world.starts = {"1": later}
    world.look()
    pool_pass.run(world.pool.pk)
    assert world.plan().forecast[row.task_id][0] > before[0] + 3600


def test_without_a_login_node_there_is_no_way(world: World) -> None:
    _, member = begun(world)
    service = SimpleNamespace(port=1)
    command = SimpleNamespace(service=service, task_id=member.allocation.task_id)
    door = doors.door_of(command)  # type: ignore[arg-type]  # what it reads of a command
    assert door is not None and door.address == "n1"
    Host.objects.filter(pk=world.login.pk).update(admission=Host.Admission.REMOVED)
    assert doors.door_of(command) is None  # type: ignore[arg-type]
