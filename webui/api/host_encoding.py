"""A host's record: how it is reached, what was found there, who holds which slot."""

from __future__ import annotations

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from dispatch.server_key import fingerprint
from hosts import observe
from hosts.models import Host
from webui.api import encoding
from webui.api.agents import OutsiderRecord
from webui.api.answers import Pagination, Time
from webui.api.slots import CleaningRecord, HolderRecord, Holds
from webui.api.views import Json


class KeyRecord(TypedDict):
    """Fingerprints of the pinned key, and of the one that is offered instead with the key itself."""

    state: Literal["unknown", "pinned", "changed"]
    fingerprint: str | None
    offered: NotRequired[str]
    offeredKey: NotRequired[str]


class JumpRecord(TypedDict):
    address: str
    port: int
    user: str
    hostKey: KeyRecord


class InterpreterRecord(TypedDict):
    """A Python of the host; null: it has no torch, or torch no CUDA."""

    path: str
    kind: Literal["path", "conda", "pyenv", "opt", "venv"]
    version: str
    prefix: str
    torch: str | None
    cuda: str | None
    torch_error: NotRequired[str]


class HostSlotRecord(TypedDict):
    index: int
    kind: str
    uuid: str
    brand: str
    memoryMb: int | None
    enabled: bool
    draining: bool
    missing: bool
    heldBy: HolderRecord | None
    cleaning: CleaningRecord | None
    outside: OutsiderRecord | None


class CheckRecord(TypedDict):
    name: str
    state: Literal["ok", "warn", "fail"]
    sentence: str


class DoctorRecord(TypedDict):
    """What the doctor found, null: not yet."""

    checks: list[CheckRecord]
    at: Time | None


class HostRecord(TypedDict):
    """Nothing in it is secret: keys are public ones."""

    id: str
    name: str
    state: str
    stateReason: str
    pool: str
    transport: Literal["ssh", "local"]
    address: str
    port: int
    user: str
    jumps: list[JumpRecord]
    gangAddress: str
    hostKey: KeyRecord
    python: str
    activate: str
    workdir: str
    interpreters: list[InterpreterRecord]
    slots: list[HostSlotRecord]
    doctor: DoctorRecord
    enabled: bool
    draining: bool
    serverRoute: Literal["", "url", "seen", "tunnel"]
    lastSeenAt: Time | None
    lastHeartbeatAt: Time | None
    clockSkewSeconds: float | None
    registeredAt: Time
    addedBy: str


class HostAnswer(TypedDict):
    host: HostRecord


class HostsAnswer(TypedDict):
    hosts: list[HostRecord]
    pagination: Pagination


def encode_host(host: Host, holds: Holds) -> Json:
    """The whole record. Nothing in it is secret: keys are public ones."""
    return {
        "id": str(host.pk),
        "name": host.name,
        "state": observe.state_of(host),
        "stateReason": host.why_not_used or host.contact_error,
        "pool": host.pool.name,
        "transport": host.transport,
        "address": host.address,
        "port": host.port,
        "user": host.login_user,
        "jumps": [_jump(jump) for jump in host.jumps],
        "gangAddress": host.gang_address,
        "hostKey": _key_state(host.host_key, host.offered_host_key),
        "python": host.python,
        "activate": host.activate,
        "workdir": host.workdir,
        "interpreters": host.facts.get("interpreters") or [],
        "slots": [_slot(slot, holds) for slot in sorted(host.slots.all(), key=lambda slot: slot.index)],
        "doctor": host.doctor or {"checks": [], "at": None},
        "enabled": host.enabled,
        "draining": host.draining,
        "serverRoute": host.server_route,
        "lastSeenAt": encoding.time(host.last_seen_at),
        "lastHeartbeatAt": encoding.time(host.last_heartbeat_at),
        "clockSkewSeconds": host.clock_skew_seconds,
        "registeredAt": encoding.time(host.registered_at),
        "addedBy": host.added_by,
    }


def _jump(jump: Json) -> Json:
    return {
        "address": jump.get("address", ""),
        "port": jump.get("port", 22),
        "user": jump.get("user", ""),
        "hostKey": _key_state(jump.get("host_key") or "", jump.get("offered_host_key") or ""),
    }


def _key_state(pinned: str, offered: str) -> Json:
    """Fingerprints of the pinned key and of the one that was offered instead."""
    state = "changed" if pinned and offered and pinned != offered else "pinned" if pinned else "unknown"
    row: Json = {"state": state, "fingerprint": fingerprint(pinned) if pinned else None}
    if offered:
        row["offered"] = fingerprint(offered)
        row["offeredKey"] = offered
    return row


def _slot(slot: Any, holds: Holds) -> Json:
    return {
        "index": slot.index,
        "kind": slot.kind,
        "uuid": slot.uuid,
        "brand": slot.brand,
        "memoryMb": slot.memory_mb,
        "enabled": slot.enabled,
        "draining": slot.draining,
        "missing": slot.missing,
        "heldBy": holds.encode(slot),
        "cleaning": holds.encode_cleaning(slot),
        "outside": slot.outside or None,
    }
