"""Hosts as the published client knows them: agents with slots."""

from __future__ import annotations

from typing import Any, NotRequired

from django.conf import settings
from django.db.models import QuerySet
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from typing_extensions import TypedDict

from hosts import registry
from hosts.models import Host, Slot
from jobs import slot_switch
from webui.api import encoding
from webui.api.answers import Pagination, Time
from webui.api.errors import Missing
from webui.api.permissions import actor
from webui.api.slots import (
    CleaningRecord,
    DeviceRecord,
    HolderRecord,
    Holds,
    SlotStats,
    container_state,
    device,
    stats,
)
from webui.api.views import ApiView, Json


class ContainerRecord(TypedDict):
    """What runs on a slot: a member of an allocation (`parent`), or somebody outside the queue."""

    id: str
    parent: NotRequired[str]
    state: str
    devices: list[DeviceRecord]


class OutsiderRecord(TypedDict):
    """Who computes on a GPU without the queue, as far as the host's kernel tells."""

    user: NotRequired[str | None]
    pid: NotRequired[int | None]
    command: NotRequired[str | None]


class AgentSlotRecord(TypedDict):
    """`container`, and what of it is ours: `heldBy` by work of the queue, `outside` by that of others.

    `cleaning`: by processes of a run that is over.
    """

    id: str
    device: DeviceRecord
    enabled: bool
    draining: bool
    missing: bool
    container: NotRequired[ContainerRecord]
    heldBy: NotRequired[HolderRecord]
    cleaning: NotRequired[CleaningRecord]
    outside: NotRequired[OutsiderRecord]


class AgentRecord(TypedDict):
    """`slots` by index and `containers` by id, unless they are excluded."""

    id: str
    registeredTime: Time
    enabled: bool
    draining: bool
    addresses: list[str]
    resourcePools: list[str]
    version: str
    slotStats: SlotStats
    slots: NotRequired[dict[str, AgentSlotRecord]]
    containers: NotRequired[dict[str, ContainerRecord]]


class AgentAnswer(TypedDict):
    agent: AgentRecord


class AgentsAnswer(TypedDict):
    agents: list[AgentRecord]
    pagination: Pagination


class AgentSlotAnswer(TypedDict):
    slot: AgentSlotRecord


class AgentSlotsAnswer(TypedDict):
    slots: list[AgentSlotRecord]


def hosts_shown() -> QuerySet[Host]:
    """Every host that has not been taken out."""
    hosts = registry.present().select_related("pool")
    return hosts.prefetch_related("slots").order_by("name")


def host_named(name: str) -> Host:
    """The host of this name. Raises Missing."""
    host = hosts_shown().filter(name=name).first()
    if host is None:
        raise Missing(f"host {name} not found")
    return host


def encode_slot(slot: Slot, holds: Holds) -> Json:
    row: Json = {
        "id": str(slot.index),
        "device": device(slot),
        "enabled": slot.enabled and not slot.missing,
        "draining": slot.draining,
        "missing": slot.missing,
    }
    if hold := holds.by_slot.get(slot.pk):
        row["container"] = {
            "id": hold.member.run_key,
            "parent": hold.member.allocation_id,
            "state": container_state(hold),
            "devices": [device(slot)],
        }
        row["heldBy"] = holds.encode(slot)
    elif cleaned := holds.encode_cleaning(slot):  # to the published client a container of the task
        row["container"] = {
            "id": f"being cleaned up after {cleaned['allocationId']}",
            "parent": cleaned["allocationId"],
            "state": "STATE_RUNNING",
            "devices": [device(slot)],
        }
        row["cleaning"] = cleaned
    elif (
        slot.outside
    ):  # the published client knows no outsiders: to it they are a container that is no task's
        row["container"] = {
            "id": f"outside the queue: {outsider(slot)}",
            "state": "STATE_RUNNING",
            "devices": [device(slot)],
        }
        row["outside"] = slot.outside
    return row


def outsider(slot: Slot) -> str:
    """Who uses the slot without the queue, as the sampler saw it."""
    user, pid, command = (slot.outside.get(name) for name in ("user", "pid", "command"))
    return " ".join(filter(None, [str(user or "somebody"), f"pid {pid}" if pid else "", str(command or "")]))


def encode_agent(host: Host, holds: Holds, *, with_slots: bool = True) -> Json:
    slots = sorted(host.slots.all(), key=lambda slot: slot.index)
    encoded = {str(slot.index): encode_slot(slot, holds) for slot in slots}
    row: Json = {
        "id": host.name,
        "registeredTime": encoding.time(host.registered_at),
        "enabled": host.enabled,
        "draining": host.draining,
        "addresses": [host.address or "127.0.0.1"],
        "resourcePools": [host.pool.name],
        "version": settings.VERSION,
        "slotStats": stats(slots, holds),
    }
    if with_slots:
        row["slots"] = encoded
        row["containers"] = {
            slot["container"]["id"]: slot["container"] for slot in encoded.values() if "heldBy" in slot
        }
    return row


class AgentsQuery(encoding.PageQuery):
    sortBy = serializers.CharField(required=False)
    excludeSlots = serializers.BooleanField(required=False, default=False)
    excludeContainers = serializers.BooleanField(required=False, default=False)


class Agents(ApiView):
    """All hosts."""

    queries = {"GET": AgentsQuery}
    answers = {"GET": AgentsAnswer}

    def get(self, request: Request) -> Response:
        query = self.query(request)
        hosts = list(hosts_shown())
        if query["orderBy"] == "ORDER_BY_DESC":
            hosts.reverse()
        holds = Holds.of(hosts)
        with_slots = not query["excludeSlots"]
        page = encoding.page(
            hosts, query, "agents", lambda host: encode_agent(host, holds, with_slots=with_slots)
        )
        return Response(page)


class OneAgent(ApiView):
    """One host."""

    answers = {"GET": AgentAnswer}

    def get(self, request: Request, name: str) -> Response:
        host = host_named(name)
        return Response({"agent": encode_agent(host, Holds.of([host]))})


class DrainBody(serializers.Serializer[Any]):
    drain = serializers.BooleanField(required=False, default=False, allow_null=True)
    agentId = serializers.CharField(required=False)
    slotId = serializers.CharField(required=False)


class AgentEnable(ApiView):
    """Let new work be placed on a host again."""

    admin_methods = frozenset({"POST"})
    bodies = {"POST": DrainBody}
    answers = {"POST": AgentAnswer}

    def post(self, request: Request, name: str) -> Response:
        return _change(name, lambda host: registry.enable(host.pk, actor=actor(request)))


class AgentDisable(ApiView):
    """Place nothing new on a host; without `drain` what runs there is stopped."""

    admin_methods = frozenset({"POST"})
    bodies = {"POST": DrainBody}
    answers = {"POST": AgentAnswer}

    def post(self, request: Request, name: str) -> Response:
        step = registry.drain if self.body(request)["drain"] else registry.disable
        return _change(name, lambda host: step(host.pk, actor=actor(request)))


def _change(name: str, step: Any) -> Response:
    host = host_named(name)
    step(host)
    host = host_named(name)
    return Response({"agent": encode_agent(host, Holds.of([host]))})


class AgentSlots(ApiView):
    """The slots of one host."""

    answers = {"GET": AgentSlotsAnswer}

    def get(self, request: Request, name: str) -> Response:
        host = host_named(name)
        holds = Holds.of([host])
        slots = sorted(host.slots.all(), key=lambda slot: slot.index)
        return Response({"slots": [encode_slot(slot, holds) for slot in slots]})


def _slot(name: str, index: str) -> Slot:
    host = host_named(name)
    slot = host.slots.filter(index=int(index)).first() if index.isdecimal() else None
    if slot is None:
        raise Missing(f"host {name} has no slot {index}")
    return slot


class SlotEnable(ApiView):
    """Let new work be placed on a slot again."""

    admin_methods = frozenset({"POST"})
    answers = {"POST": AgentSlotAnswer}

    def post(self, request: Request, name: str, index: str) -> Response:
        slot_switch.enable(_slot(name, index).pk, actor=actor(request))
        return _slot_answer(name, index)


class SlotDisable(ApiView):
    """Place nothing new on a slot; without `drain` what runs there is stopped and tried again elsewhere."""

    admin_methods = frozenset({"POST"})
    bodies = {"POST": DrainBody}
    answers = {"POST": AgentSlotAnswer}

    def post(self, request: Request, name: str, index: str) -> Response:
        drain = bool(self.body(request)["drain"])
        slot_switch.disable(_slot(name, index).pk, drain=drain, actor=actor(request))
        return _slot_answer(name, index)


def _slot_answer(name: str, index: str) -> Response:
    slot = _slot(name, index)
    return Response({"slot": encode_slot(slot, Holds.of([slot.host]))})


class AgentSlot(ApiView):
    """One slot."""

    answers = {"GET": AgentSlotAnswer}

    def get(self, request: Request, name: str, index: str) -> Response:
        return _slot_answer(name, index)
