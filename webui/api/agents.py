"""Hosts as the published client knows them: agents with slots."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from rest_framework import serializers
from rest_framework.request import Request

from accounts.rights import Right
from hosts import registry
from hosts.models import Host, Slot
from jobs import held_slots
from shown.hosts import rows
from shown.hosts.rows import HostRow, SlotRow
from webui.api import encoding
from webui.api.answers import Answer, Maybe, Pagination, Stored, Time
from webui.api.errors import Missing, existing
from webui.api.permissions import actor
from webui.api.slots import (
    CleaningRecord,
    DeviceRecord,
    HolderRecord,
    SlotStats,
    container_state,
    device,
    encode_cleaning,
    encode_holder,
    is_draining,
    is_enabled,
    stats,
)
from webui.api.views import ApiView


class ContainerRecord(Answer):
    """What runs on a slot: a member of an allocation (`parent`), or work outside the queue."""

    id: str
    parent: str = ""
    state: str
    devices: list[DeviceRecord]
    permission_denied: bool = False


class OutsiderRecord(Answer):
    """Who uses a GPU outside the queue, as reported by the host's kernel."""

    user: str | None
    pid: int | None
    command: str | None


class AgentSlotRecord(Answer):
    """`container`, and which work holds the slot: `heldBy` for work of the queue, `outside` for other work.

    `cleaning`: processes left by an ended run.
    """

    id: str
    device: DeviceRecord
    enabled: bool
    draining: bool
    missing: bool
    container: ContainerRecord | None = None
    held_by: Maybe[HolderRecord] = None
    cleaning: Maybe[CleaningRecord] = None
    outside: Maybe[Stored[OutsiderRecord]] = None


class AgentRecord(Answer):
    """`slots` by index and `containers` by id; empty where they are excluded."""

    id: str
    registered_time: Time
    enabled: bool
    draining: bool
    addresses: list[str]
    resource_pools: list[str]
    version: str
    slot_stats: SlotStats
    slots: dict[str, AgentSlotRecord] = {}
    containers: dict[str, ContainerRecord] = {}


class AgentAnswer(Answer):
    agent: AgentRecord


class AgentsAnswer(Answer):
    agents: list[AgentRecord]
    pagination: Pagination


class AgentSlotAnswer(Answer):
    slot: AgentSlotRecord


class AgentSlotsAnswer(Answer):
    slots: list[AgentSlotRecord]


def host_named(name: str) -> Host:
    """The host of this name. Raises Missing."""
    return existing(rows.present(), "host", name=name)


def row_named(name: str) -> HostRow:
    """The host of this name with its slots. Raises Missing."""
    return rows.of([host_named(name)], aux=False)[0]


def encode_slot(row: SlotRow) -> AgentSlotRecord:
    slot = row.slot
    return AgentSlotRecord(
        id=str(slot.index),
        device=device(slot),
        enabled=is_enabled(slot),
        draining=is_draining(slot),
        missing=slot.missing,
        container=_container(row),
        held_by=encode_holder(row),
        cleaning=encode_cleaning(row),
        outside=None if row.hold or row.cleaned else slot.outside or None,
    )


def _container(row: SlotRow) -> ContainerRecord | None:
    """The published client knows neither cleaning nor outsiders: to it they are containers."""
    parent, state = "", "STATE_RUNNING"
    if row.hold:
        key, parent, state = row.hold.run_key, row.hold.allocation_id, container_state(row.hold)
    elif row.cleaned:
        key, parent = f"being cleaned up after {row.cleaned.allocation_id}", row.cleaned.allocation_id
    elif row.slot.outside:
        key = f"outside the queue: {outsider(row.slot)}"
    else:
        return None
    return ContainerRecord(id=key, parent=parent, state=state, devices=[device(row.slot)])


def outsider(slot: Slot) -> str:
    """Who uses the slot without the queue, as the sampler saw it."""
    user, pid, command = (slot.outside.get(name) for name in ("user", "pid", "command"))
    return " ".join(filter(None, [str(user or "someone"), f"pid {pid}" if pid else "", str(command or "")]))


def encode_agent(row: HostRow, *, with_slots: bool = True) -> AgentRecord:
    host = row.host
    encoded = [encode_slot(each) for each in row.all_slots] if with_slots else []
    held = [slot.container for slot in encoded if slot.held_by and slot.container]
    return AgentRecord.of(
        host,
        id=host.name,
        registered_time=host.registered_at,
        enabled=host.enabled and not host.draining,
        addresses=[host.address or "127.0.0.1"],
        resource_pools=[host.pool.name],
        version=settings.VERSION,
        slot_stats=stats(row.all_slots),
        slots={slot.id: slot for slot in encoded},
        containers={container.id: container for container in held},
    )


class AgentsQuery(encoding.PageQuery):
    sortBy = serializers.CharField(required=False)
    excludeSlots = serializers.BooleanField(required=False, default=False)
    excludeContainers = serializers.BooleanField(required=False, default=False)


class Agents(ApiView):
    """All hosts."""

    rights = {"GET": Right.READ}
    queries = {"GET": AgentsQuery}

    def get(self, request: Request) -> AgentsAnswer:
        query = self.query(request)
        found = rows.of(rows.present(), aux=False)
        if query["orderBy"] == "ORDER_BY_DESC":
            found.reverse()
        with_slots = not query["excludeSlots"]
        return encoding.page(AgentsAnswer, found, query, lambda row: encode_agent(row, with_slots=with_slots))


def _agent_answer(name: str) -> AgentAnswer:
    return AgentAnswer(agent=encode_agent(row_named(name)))


class OneAgent(ApiView):
    """One host."""

    rights = {"GET": Right.READ}

    def get(self, request: Request, name: str) -> AgentAnswer:
        return _agent_answer(name)


class DrainBody(serializers.Serializer[Any]):
    drain = serializers.BooleanField(required=False, default=False, allow_null=True)
    agentId = serializers.CharField(required=False)
    slotId = serializers.CharField(required=False)


class AgentEnable(ApiView):
    """Allow new work on a host again."""

    rights = {"POST": Right.ADMIN}
    bodies = {"POST": DrainBody}

    def post(self, request: Request, name: str) -> AgentAnswer:
        registry.enable(host_named(name).pk, actor=actor(request))
        return _agent_answer(name)


class AgentDisable(ApiView):
    """Place no new work on a host; without `drain`, running work is stopped."""

    rights = {"POST": Right.ADMIN}
    bodies = {"POST": DrainBody}

    def post(self, request: Request, name: str) -> AgentAnswer:
        step = registry.drain if self.body(request)["drain"] else registry.disable
        step(host_named(name).pk, actor=actor(request))
        return _agent_answer(name)


class AgentSlots(ApiView):
    """The slots of one host."""

    rights = {"GET": Right.READ}

    def get(self, request: Request, name: str) -> AgentSlotsAnswer:
        return AgentSlotsAnswer(slots=[encode_slot(slot) for slot in row_named(name).all_slots])


def _slot(name: str, index: str) -> SlotRow:
    wanted = int(index) if index.isdecimal() else None
    slot = next((each for each in row_named(name).all_slots if each.slot.index == wanted), None)
    if slot is None:
        raise Missing(f"host {name} has no slot {index}")
    return slot


class SlotEnable(ApiView):
    """Allow new work on a slot again."""

    rights = {"POST": Right.ADMIN}

    def post(self, request: Request, name: str, index: str) -> AgentSlotAnswer:
        registry.switch_slot(_slot(name, index).slot.pk, enabled=True, actor=actor(request))
        return _slot_answer(name, index)


class SlotDisable(ApiView):
    """Place no new work on a slot; without `drain`, running work is stopped and retried elsewhere."""

    rights = {"POST": Right.ADMIN}
    bodies = {"POST": DrainBody}

    def post(self, request: Request, name: str, index: str) -> AgentSlotAnswer:
        drain = bool(self.body(request)["drain"])
        held_slots.disable(_slot(name, index).slot.pk, drain=drain, actor=actor(request))
        return _slot_answer(name, index)


def _slot_answer(name: str, index: str) -> AgentSlotAnswer:
    return AgentSlotAnswer(slot=encode_slot(_slot(name, index)))


class AgentSlot(ApiView):
    """One slot."""

    rights = {"GET": Right.READ}

    def get(self, request: Request, name: str, index: str) -> AgentSlotAnswer:
        return _slot_answer(name, index)
