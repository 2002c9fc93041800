"""A host's record: how it is reached, what was found there, who holds which slot."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from dispatch.ssh.server_key import fingerprint
from shown.hosts.rows import HostRow, SlotRow
from webui.api.agents import OutsiderRecord
from webui.api.answers import Answer, Maybe, Pagination, Stored, Time
from webui.api.slots import CleaningRecord, HolderRecord, encode_cleaning, encode_holder
from webui.api.views import Json

KeyState = Literal["unknown", "pinned", "changed"]


class KeyRecord(Answer):
    """Fingerprint of the pinned key; fingerprint and full key of the one offered instead."""

    state: KeyState
    fingerprint: str | None
    offered: Maybe[str] = None
    offered_key: Maybe[str] = None


class JumpRecord(Answer):
    address: str
    port: int
    user: str
    host_key: KeyRecord


class InterpreterRecord(Answer):
    """A Python on the host; null: no torch, or torch without CUDA."""

    path: str
    kind: Literal["path", "conda", "pyenv", "opt", "venv"]
    version: str
    prefix: str
    torch: str | None
    cuda: str | None
    torch_error: Annotated[Maybe[str], Field(alias="torch_error")] = None


class HostSlotRecord(Answer):
    index: int
    kind: str
    uuid: str
    brand: str
    memory_mb: int | None
    enabled: bool
    draining: bool
    missing: bool
    held_by: HolderRecord | None
    cleaning: CleaningRecord | None
    outside: Stored[OutsiderRecord] | None


class CheckRecord(Answer):
    name: str
    state: Literal["ok", "warn", "fail"]
    sentence: str


class DoctorRecord(Answer):
    """The doctor's findings; null: not checked yet."""

    checks: list[CheckRecord]
    at: Time | None


class HostRecord(Answer):
    """A host. It contains no secrets: its keys are public keys."""

    id: str
    name: str
    state: str
    state_reason: str
    pool: str
    transport: Literal["ssh", "local"]
    address: str
    port: int
    user: str
    jumps: list[JumpRecord]
    gang_address: str
    host_key: KeyRecord
    python: str
    activate: str
    workdir: str
    interpreters: Stored[list[InterpreterRecord]]
    slots: list[HostSlotRecord]
    doctor: Stored[DoctorRecord]
    enabled: bool
    draining: bool
    server_route: Literal["", "url", "seen", "tunnel"]
    last_seen_at: Time | None
    last_heartbeat_at: Time | None
    clock_skew_seconds: float | None
    registered_at: Time
    added_by: str


class HostAnswer(Answer):
    host: HostRecord


class HostsAnswer(Answer):
    hosts: list[HostRecord]
    pagination: Pagination


def encode_host(row: HostRow) -> HostRecord:
    """The whole record."""
    host = row.host
    return HostRecord.of(
        host,
        id=str(host.pk),
        state_reason=host.why_not_used or host.contact_error,
        pool=host.pool.name,
        user=host.login_user,
        jumps=[_jump(jump) for jump in host.jumps],
        host_key=_key_state(host.host_key, host.offered_host_key),
        interpreters=host.facts.get("interpreters") or [],
        slots=[_slot(each) for each in row.all_slots],
        doctor=host.doctor or {"checks": [], "at": None},
    )


def _jump(jump: Json) -> JumpRecord:
    return JumpRecord(
        address=jump.get("address", ""),
        port=jump.get("port", 22),
        user=jump.get("user", ""),
        host_key=_key_state(jump.get("host_key") or "", jump.get("offered_host_key") or ""),
    )


def _key_state(pinned: str, offered: str) -> KeyRecord:
    """Fingerprints of the pinned key and of the one that was offered instead."""
    state: KeyState = (
        "changed" if pinned and offered and pinned != offered else "pinned" if pinned else "unknown"
    )
    return KeyRecord(
        state=state,
        fingerprint=fingerprint(pinned) if pinned else None,
        offered=fingerprint(offered) if offered else None,
        offered_key=offered or None,
    )


def _slot(row: SlotRow) -> HostSlotRecord:
    return HostSlotRecord.of(
        row.slot,
        held_by=encode_holder(row),
        cleaning=encode_cleaning(row),
        outside=row.slot.outside or None,
    )
