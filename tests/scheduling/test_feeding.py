"""What is handed next to a scheduler that others use too."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduling import feeding, reasons
from scheduling.plan import decide
from scheduling.reasons import Reason, WaitCode
from scheduling.world import HostView, PoolView, Request, SlotView, Snapshot


def host(name: str, slots: int, outside: int = 0) -> HostView:
    views = [SlotView(hash((name, n)), n, outside="bob" if n < outside else None) for n in range(slots)]
    return HostView(id=name, name=name, slots=tuple(views))


def request(name: str, slots: int = 1, **more: object) -> Request:
    plain = Request(task_id=name, job_id=name, label=name, slots=slots, position=float(name[1:]))
    return replace(plain, **more)


def fed(
    *requests: Request, hosts: tuple[HostView, ...] = (host("a", 4), host("b", 4)), most: int = 3
) -> list[str]:
    snapshot = Snapshot(now=1000.0, pool=PoolView(), hosts=hosts, requests=requests)
    return [one.task_id for one in feeding.next_ones(snapshot, decide(snapshot), most)]


def test_the_first_in_our_order_are_handed_over_whether_slots_are_free_or_not() -> None:
    full = (host("a", 4, outside=4), host("b", 4, outside=4))
    jobs = [request("j1"), request("j2", priority=50), request("j3", priority=10), request("j4", 8)]
    assert fed(*jobs) == fed(*jobs, hosts=full) == ["j3", "j1", "j4"]
    assert fed(*jobs, most=1) == ["j3"]


def test_what_was_refused_there_takes_nobodys_place() -> None:
    jobs = [request(f"j{n}") for n in range(1, 5)]
    snapshot = Snapshot(now=1000.0, pool=PoolView(), hosts=(host("a", 4),), requests=tuple(jobs))
    found = feeding.next_ones(snapshot, decide(snapshot), 2, {"j1", "j4"})
    assert [one.task_id for one in found] == ["j1", "j2", "j3", "j4"]


def test_what_waits_for_something_else_stays_here() -> None:
    waits = request("j1", blocked=reasons.blocked("its newest checkpoint is still being uploaded"))
    assert fed(waits, request("j2", 9), request("j3", 6), request("j4")) == ["j4"]


def test_a_job_has_no_more_in_hand_there_than_its_limit() -> None:
    trials = [request(f"j{n}", 2, job_id="search", max_slots=4) for n in range(5)]
    assert fed(*trials) == ["j0", "j1"]


def test_all_that_is_not_handed_over_has_a_reason() -> None:
    snapshot = Snapshot(
        now=1000.0,
        pool=PoolView(),
        hosts=(host("a", 4),),
        requests=(request("j1"), request("j2"), request("j3", 8)),
    )
    plan = decide(snapshot)
    waits = feeding.waits(plan, {"j1": Reason(WaitCode.POSITION, "waits in Slurm")}, 1)
    assert waits["j1"].sentence == "waits in Slurm"
    assert "at most 1 of this pool" in waits["j2"].sentence
    assert waits["j3"].code == WaitCode.NEVER_FITS


@pytest.mark.parametrize(("slots", "nodes"), [(0, 1), (1, 1), (4, 1), (8, 2), (12, 3), (9, 3), (10, 5)])
def test_a_request_takes_one_node_or_equal_parts_of_several(slots: int, nodes: int) -> None:
    assert feeding.nodes_of(slots, 4) == nodes
