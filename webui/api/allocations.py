"""What the processes of a run ask the server for: preemption, rendezvous, an exchange among the gang."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import inf
from typing import Annotated, Any, ParamSpec, TypeVar

from django.db import transaction
from django.http import HttpRequest
from pydantic import Field

from accounts import rights
from accounts.models import User
from accounts.rights import Right
from events.announce import announce
from events.prepared import Prepared
from events.wakeups import wakeups
from jobs import leaving
from jobs.models import Allocation, Member
from jobs.states import AllocationState, MemberState, StopKind
from webui.api.answers import Answer, Body
from webui.api.async_views import Principal, async_view, json_body
from webui.api.errors import BadRequest, Conflict, Missing
from webui.models import GatherPart
from webui.query import number
from webui.waiting.threads import reading, release_thread

#: How long a peer waits for its gang before it is told that some are missing.
GANG_WAIT_SECONDS = 600.0
LONGEST_POLL_SECONDS = 600.0
MAX_PEERS = 65_536

P = ParamSpec("P")
T = TypeVar("T")


class PreemptionAnswer(Answer):
    """Whether the run should save a checkpoint and exit."""

    preempt: bool


class RendezvousRecord(Answer):
    """The members of the gang in rank order, and the caller's index among them."""

    addresses: list[str]
    rank: int
    slots: list[int]


class RendezvousAnswer(Answer):
    rendezvous_info: RendezvousRecord


class GatherBody(Body):
    """A peer's data. Requests with the same UUID count once."""

    num_peers: Annotated[int, Field(ge=1, le=MAX_PEERS)]
    request_uuid: Annotated[str, Field(min_length=1, max_length=64)]
    data: Any = None


class GatheredAnswer(Answer):
    """The data of each peer."""

    data: list[Any]


def own_allocation(who: Principal, allocation_id: str, *, changes: bool) -> Allocation:
    """The allocation, to its own run; to people for reading, and to its owner and admins for writing."""
    allocation = Allocation.objects.select_related("task__job__owner").filter(pk=allocation_id).first()
    if allocation is None or (isinstance(who, Allocation) and who.pk != allocation_id):
        raise Missing(f"allocation {allocation_id} not found")
    if isinstance(who, User) and changes:
        rights.require_owner(who, allocation.task.job, f"allocation {allocation_id}")
    return allocation


async def poll(
    topic: str, seconds: float, look: Callable[P, T | None], *args: P.args, **kwargs: P.kwargs
) -> T | None:
    """What `look` reads, looked for again at each wake-up of the topic; None after the time. Holds no thread."""
    deadline = time.monotonic() + seconds
    with wakeups().watch(topic) as watch:
        while True:
            found = await reading(look, *args, **kwargs)
            left = deadline - time.monotonic()
            if found is not None or left <= 0:
                return found
            await release_thread()
            await watch.wait(min(left, 1.0))


@async_view("GET", Right.READ | Right.RUN, polled=True)
async def preemption(request: HttpRequest, who: Principal, allocation_id: str) -> PreemptionAnswer:
    """Whether the run should save a checkpoint and exit; answers as soon as it should. `timeoutSeconds`: up to 600."""
    if isinstance(who, Allocation) and who.pk != allocation_id:
        raise Missing(f"allocation {allocation_id} not found")
    asked = number(request.GET, "timeoutSeconds", -inf, inf) or 0.0
    seconds = min(max(asked, 0.0), LONGEST_POLL_SECONDS)
    if isinstance(who, Allocation) and seconds == 0:  # read as it is now, to find out who asks
        return PreemptionAnswer(preempt=who.stop_kind != StopKind.NONE)
    found = await poll(f"allocation:{allocation_id}", seconds, _must_leave, allocation_id)
    return PreemptionAnswer(preempt=found is not None)


def _must_leave(allocation_id: str) -> bool | None:
    """True, or None as long as it may stay. Raises Missing."""
    allocation = _orders.find(allocation_id)
    if allocation is None:
        raise Missing(f"allocation {allocation_id} not found")
    if allocation.state == AllocationState.TERMINATED:
        raise Missing(f"allocation {allocation_id} has ended")
    return True if allocation.stop_kind != StopKind.NONE else None


_orders = Prepared(lambda: Allocation.objects.only("state", "stop_kind"), "pk", "no allocation")


@async_view("POST", Right.EDIT | Right.RUN)
async def ack_preemption(request: HttpRequest, who: Principal, allocation_id: str) -> None:
    """The run has received the signal: its exit with code 0 means that it saved, not that it is done."""
    await reading(own_allocation, who, allocation_id, changes=True)
    await reading(leaving.acknowledged, allocation_id)


@async_view("GET", Right.READ | Right.RUN)
async def rendezvous(
    request: HttpRequest, who: Principal, allocation_id: str, resources_id: str
) -> RendezvousAnswer:
    """Addresses of the gang and the caller's rank in it, when every member has been launched."""
    await reading(own_allocation, who, allocation_id, changes=False)
    topic = f"allocation:{allocation_id}"
    found = await poll(topic, GANG_WAIT_SECONDS, _rendezvous, allocation_id, resources_id)
    if found is None:
        raise Conflict(f"some members of {allocation_id} were not launched within {GANG_WAIT_SECONDS:.0f} s.")
    return RendezvousAnswer(rendezvous_info=found)


def _rendezvous(allocation_id: str, resources_id: str) -> RendezvousRecord | None:
    members = list(
        Member.objects.select_related("host", "allocation__pool")
        .filter(allocation_id=allocation_id)
        .order_by("index")
    )
    ranks = [member.index for member in members if resources_id in {member.run_key, str(member.index)}]
    if not ranks:
        raise Missing(f"allocation {allocation_id} has no resources {resources_id}")
    if any(member.state == MemberState.ENDED for member in members):
        raise Conflict(f"a member of {allocation_id} has already ended; the gang cannot meet.")
    if any(member.state == MemberState.ASSIGNED for member in members):
        return None
    interface = members[0].allocation.pool.network_interface
    return RendezvousRecord(
        addresses=[member.host.peer_address(interface) for member in members],
        rank=ranks[0],
        slots=[member.slots for member in members],
    )


@async_view("POST", Right.EDIT | Right.RUN, body=GatherBody)
async def all_gather(request: HttpRequest, who: Principal, allocation_id: str) -> GatheredAnswer:
    """The data of every peer of the gang, when all have sent theirs."""
    return await _gather(who, allocation_id, "all_gather", json_body(request))


@async_view("POST", Right.EDIT | Right.RUN, body=GatherBody)
async def notify_container_running(
    request: HttpRequest, who: Principal, allocation_id: str
) -> GatheredAnswer:
    """As allgather, for each peer's host name."""
    return await _gather(who, allocation_id, "containers", json_body(request))


async def _gather(who: Principal, allocation_id: str, purpose: str, body: dict[str, Any]) -> GatheredAnswer:
    await reading(own_allocation, who, allocation_id, changes=True)
    part = await reading(_give, allocation_id, purpose, body)
    data = await poll(f"gather:{allocation_id}", GANG_WAIT_SECONDS, _round, part)
    if data is None:
        raise Conflict(
            f"not all {part.peers} peers of {allocation_id} connected within {GANG_WAIT_SECONDS:.0f} s."
        )
    return GatheredAnswer(data=data)


@transaction.atomic
def _give(allocation_id: str, purpose: str, body: dict[str, Any]) -> GatherPart:
    peers, request_uuid = body.get("numPeers"), str(body.get("requestUuid") or "")
    if not isinstance(peers, int) or not 1 <= peers <= MAX_PEERS:
        raise BadRequest(f"numPeers: found {peers}; allowed: 1 or more.")
    if not 1 <= len(request_uuid) <= 64:
        raise BadRequest("requestUuid: required, at most 64 characters.")
    part, _ = GatherPart.objects.get_or_create(
        allocation_id=allocation_id,
        request_uuid=request_uuid,
        defaults={"peers": peers, "purpose": purpose, "data": body.get("data") or {}},
    )
    announce(f"gather:{allocation_id}")
    return part


def _round(part: GatherPart) -> list[Any] | None:
    """The data of the part's round. Each peer gives one part a round, so rounds are runs of `peers` parts."""
    same = GatherPart.objects.filter(allocation_id=part.allocation_id, purpose=part.purpose, peers=part.peers)
    before = same.filter(pk__lt=part.pk).count()
    first = before - before % part.peers
    rows = list(same.order_by("pk").values_list("data", flat=True)[first : first + part.peers])
    if len(rows) == part.peers:
        return rows
    if Allocation.objects.filter(pk=part.allocation_id, state=AllocationState.TERMINATED).exists():
        raise Missing(f"allocation {part.allocation_id} has ended")
    return None
