"""Long polls of a run: preemption, rendezvous and the exchange among a gang, held by real threads of waiters."""

import threading
import uuid
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import pytest
from django.db import connection

from accounts.models import User
from experiments.models import Experiment, Trial
from hosts.models import Host, ResourcePool, Slot
from hosts.pools import default_pool
from jobs import transitions
from jobs.models import Allocation, Member, Task
from jobs.states import Reason, StopKind
from tests.rig.api import Api, Cast, Json
from tests.rig.world import assigned

pytestmark = pytest.mark.django_db(transaction=True)
Running = tuple[Trial, Allocation, Api]
T = TypeVar("T")


@pytest.fixture(autouse=True)
def threads_give_their_connections_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The polls' threads outlive the tests; a connection kept open there would keep the test database."""
    monkeypatch.setitem(connection.settings_dict, "CONN_MAX_AGE", 0)


def in_thread(pool: ThreadPoolExecutor, function: Callable[..., T], *args: Any) -> Future[T]:
    """Call it in a thread of the pool, whose database connection is closed with it."""

    def call() -> T:
        try:
            return function(*args)
        finally:
            connection.close()

    return pool.submit(call)


def fresh(api: Api) -> Api:
    """The same person in another thread."""
    other = Api()
    other.headers = dict(api.headers)
    return other


def test_preemption_is_answered_at_once_without_waiting_time(running: Running) -> None:
    _, allocation, run = running
    assert run.get(f"allocations/{allocation.pk}/signals/preemption") == {"preempt": False}


def test_a_waiting_poll_answers_when_the_run_is_to_leave(running: Running) -> None:
    _, allocation, run = running
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(
            fresh(run).get, f"allocations/{allocation.pk}/signals/preemption?timeoutSeconds=60"
        )
        transitions.request_stop(allocation.pk, StopKind.PREEMPT, reason=Reason.PREEMPTED, actor="scheduler")
        assert waiting.result(60) == {"preempt": True}
    run.post(f"allocations/{allocation.pk}/signals/ack_preemption", {"allocationId": allocation.pk})
    assert Allocation.objects.get(pk=allocation.pk).preempt_acked_at is not None


def test_a_run_asks_for_its_own_allocation_alone(cast: Cast, running: Running) -> None:
    _, allocation, run = running
    assert run.refused("GET", "allocations/other.1/signals/preemption")[0] == 404
    path = f"allocations/{allocation.pk}/signals"
    assert cast.stranger.refused("GET", f"{path}/preemption")[0] == 401
    assert cast.vic.get(f"{path}/preemption") == {"preempt": False}
    assert cast.bob.refused("POST", f"{path}/ack_preemption")[0] == 403
    assert cast.ada.refused("POST", f"{path}/preemption")[0] == 405
    assert run.refused("GET", f"{path}/preemption?timeoutSeconds=soon")[0] == 400


def test_an_owner_who_became_a_viewer_changes_nothing_any_more(cast: Cast, running: Running) -> None:
    trial, allocation, run = running
    path = f"allocations/{allocation.pk}"
    assert cast.ada.send("POST", f"{path}/signals/ack_preemption")[0] == 200
    User.objects.filter(username="ada").update(role=User.Role.VIEWER)
    for address in (
        f"{path}/signals/ack_preemption",
        f"{path}/all_gather",
        f"{path}/notify_container_running",
        f"experiments/{trial.experiment_id}/searcher_operations",
        f"tasks/{trial.task_id}/ranks/0/stack",
    ):
        status, sentence = cast.ada.refused("POST", address, {})
        assert (status, sentence) == (403, "ada is a viewer and cannot change anything."), address
    assert run.send("POST", f"{path}/signals/ack_preemption")[0] == 200, "what runs already goes on"


def test_an_allocation_that_is_over_ends_the_poll(cast: Cast, running: Running) -> None:
    _, allocation, _ = running
    Allocation.objects.filter(pk=allocation.pk).update(state="TERMINATED")
    assert (
        cast.ada.refused("GET", f"allocations/{allocation.pk}/signals/preemption?timeoutSeconds=60")[0] == 404
    )


@pytest.fixture
def gang(cast: Cast, submit: Any) -> tuple[Allocation, Api]:
    """An allocation of two members on two hosts."""
    hosts = [
        Host.objects.create(name=f"g{n}", pool=default_pool(), address=f"10.0.0.{n}", admission="ready")
        for n in (1, 2)
    ]
    slots = [Slot.objects.create(host=host, index=0, kind="cpu") for host in hosts]
    trial = Experiment.objects.get(pk=submit()["id"]).trials.get()
    Task.objects.filter(pk=trial.task_id).update(slots=len(slots))
    placement = [(host.pk, [slot.pk]) for host, slot in zip(hosts, slots, strict=True)]
    allocation = assigned(task_id=trial.task_id, placement=placement, on_sufferance=False, actor="test")
    return allocation, Api(transitions.run_token(allocation))


def test_the_rendezvous_waits_until_every_member_is_launched(gang: tuple[Allocation, Api]) -> None:
    allocation, run = gang
    members = list(Member.objects.filter(allocation=allocation).order_by("index"))
    on_the_fast_one = [
        {"interface": "eth0", "address": "10.0.0.9"},
        {"interface": "ib0", "address": "172.16.0.2"},
    ]
    Host.objects.filter(pk=members[1].host_id).update(facts={"interfaces": on_the_fast_one})
    ResourcePool.objects.filter(pk=allocation.pool_id).update(network_interface="ib0")
    transitions.member_launched(members[0].pk, boot_id="b")
    with ThreadPoolExecutor(1) as pool:
        path = f"allocations/{allocation.pk}/resources/{members[1].run_key}/rendezvous"
        waiting = in_thread(pool, fresh(run).get, path)
        transitions.member_launched(members[1].pk, boot_id="b")
        info = waiting.result(60)["rendezvousInfo"]
    assert info == {"addresses": ["10.0.0.1", "172.16.0.2"], "rank": 1, "slots": [1, 1]}
    assert run.refused("GET", f"allocations/{allocation.pk}/resources/nobody/rendezvous")[0] == 404


def test_all_peers_get_what_all_have_given_round_after_round(gang: tuple[Allocation, Api]) -> None:
    allocation, run = gang
    barrier = threading.Barrier(2)

    def peer(rank: int) -> list[Json]:
        mine, answers = fresh(run), []
        barrier.wait(60)
        for number in range(3):
            body = {"requestUuid": str(uuid.uuid4()), "numPeers": 2, "data": {"rank": rank, "round": number}}
            answers.append(mine.post(f"allocations/{allocation.pk}/all_gather", body)["data"])
        return answers

    with ThreadPoolExecutor(2) as pool:
        both = [future.result(60) for future in [in_thread(pool, peer, rank) for rank in range(2)]]
    assert both[0] == both[1]
    for number, data in enumerate(both[0]):
        assert sorted(part["rank"] for part in data) == [0, 1]
        assert {part["round"] for part in data} == {number}


def test_a_repeated_request_gives_its_part_once(gang: tuple[Allocation, Api]) -> None:
    allocation, run = gang
    body = {"requestUuid": "one", "numPeers": 1, "data": {"a": 1}}
    for _ in range(2):
        assert run.post(f"allocations/{allocation.pk}/all_gather", body)["data"] == [{"a": 1}]
    assert run.refused("POST", f"allocations/{allocation.pk}/all_gather", {"numPeers": 0})[0] == 400
