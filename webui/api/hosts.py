"""Hosts as Trainmaster has them: adding, the host key, the doctor, decisions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal

from django.db import transaction
from pydantic import Field
from rest_framework import serializers, status
from rest_framework.request import Request

from accounts.refusals import Code, Refusal
from accounts.rights import Right
from dispatch.ssh.server_key import fingerprint, public_key
from hosts import pool_edits, registry
from hosts.models import Host
from hosts.pools import default_pool
from shown.hosts import health, rows
from shown.hosts.rows import HostRow, SlotRow
from webui.api import encoding
from webui.api.agents import OutsiderRecord, host_named, row_named
from webui.api.answers import Answer, Maybe, Pagination, Stored, Time
from webui.api.errors import BadRequest
from webui.api.job_queue import pool_named
from webui.api.permissions import actor
from webui.api.slots import CleaningRecord, HolderRecord, encode_cleaning, encode_holder
from webui.api.views import ApiView, Json

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
    lacks: Annotated[Maybe[list[str]], Field(description="modules of Determined's images")] = None


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
    health: Annotated[str, Field(description="ok, not known, quarantined, or how many slots are")]
    pool: str
    spare: Annotated[
        bool, Field(description="kept by its pool for work whose host fails; `stateReason` says more")
    ]
    transport: Annotated[
        Literal["ssh", "local", "login", "slurm"],
        Field(description="login: the login node of a Slurm pool; slurm: a node that Slurm lists"),
    ]
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
        state_reason=row.why or host.contact_error,
        spare=row.spare is not None,
        health=health.of(host, signs=0).word,
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


class Jump(serializers.Serializer[Any]):
    """A jump host on the way; the one nearest to the server comes first."""

    address = serializers.CharField(max_length=255)
    port = serializers.IntegerField(required=False, default=22)
    user = serializers.CharField(required=False, allow_blank=True, default="", max_length=64)
    hostKey = serializers.CharField(required=False, allow_blank=True, default="", max_length=8192)


class NewHost(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=128)
    transport = serializers.CharField(required=False, default="ssh")
    address = serializers.CharField(required=False, allow_blank=True, default="", max_length=255)
    port = serializers.IntegerField(required=False, default=0)
    user = serializers.CharField(required=False, allow_blank=True, default="", max_length=64)
    jumps = Jump(many=True, required=False, default=list)
    pool = serializers.CharField(required=False, allow_blank=True, allow_null=True)
    python = serializers.CharField(required=False, allow_blank=True, default="", max_length=255)
    activate = serializers.CharField(required=False, allow_blank=True, default="", max_length=4096)
    workdir = serializers.CharField(required=False, allow_blank=True, default="", max_length=255)
    slots = serializers.IntegerField(required=False, allow_null=True, default=None)
    hostKey = serializers.CharField(required=False, allow_blank=True, default="", max_length=8192)
    gangAddress = serializers.CharField(required=False, allow_blank=True, default="", max_length=255)
    allowLoginAccount = serializers.BooleanField(
        default=False,
        help_text="let the pool run jobs as login accounts that are root or may become root",
    )

    def to_internal_value(self, data: Any) -> Any:
        """null and an absent field are the same to whoever adds a host."""
        if isinstance(data, dict):
            data = {name: value for name, value in data.items() if value is not None}
        return super().to_internal_value(data)


class Hosts(ApiView):
    """List all hosts, or add one. Adding returns immediately; the host's state shows the progress."""

    rights = {"GET": Right.READ, "POST": Right.ADMIN}
    bodies = {"POST": NewHost}
    queries = {"GET": encoding.PageQuery}
    statuses = {"POST": status.HTTP_202_ACCEPTED}

    def get(self, request: Request) -> HostsAnswer:
        found = rows.of(rows.present(), aux=False)
        return encoding.page(HostsAnswer, found, self.query(request), encode_host)

    def post(self, request: Request) -> HostAnswer:
        body = self.body(request)
        pool = pool_named(body["pool"]) if body.get("pool") else default_pool()
        new = registry.NewHost(
            name=body["name"],
            transport=body["transport"],
            address=body["address"],
            port=body["port"],
            login_user=body["user"],
            jumps=[stored_jump(jump) for jump in body["jumps"]],
            gang_address=body["gangAddress"],
            host_key=_key(body["hostKey"]),
            python=body["python"],
            activate=body["activate"],
            workdir=body["workdir"],
            wanted_slots=body["slots"],
        )
        by = actor(request)
        with transaction.atomic():
            if body["allowLoginAccount"]:
                pool_edits.edit(pool.name, {"allow_login_account": True}, actor=by)
            host = _granted(lambda: registry.add(new, pool, actor=by))
        return _answer(host.name)


def stored_jump(jump: Json) -> Json:
    """As `Host.jumps` has it. Raises BadRequest."""
    return {
        "address": jump["address"],
        "port": jump["port"],
        "user": jump["user"],
        "host_key": _key(jump["hostKey"]),
    }


def _key(line: str) -> str:
    """A public key as it is pinned: type and key, no comment."""
    line = " ".join(line.split()[:2])
    if line:
        try:
            fingerprint(line)
        except ValueError as error:
            raise BadRequest(
                f"hostKey: {line[:40]} is not a public key in OpenSSH format (`ssh-ed25519 AAAA…`)."
            ) from error
    return line


#: what the registry calls a field, and the body
_FIELDS = {
    "wanted_slots": "slots",
    "login_user": "user",
    "host_key": "hostKey",
    "gang_address": "gangAddress",
}


def _granted(step: Callable[[], Any]) -> Any:
    """What the registry answers; a refusal names the field."""
    try:
        return step()
    except Refusal as refusal:
        if not refusal.field or refusal.code is Code.TAKEN:
            raise
        raise BadRequest(f"{_FIELDS.get(refusal.field, refusal.field)}: {refusal}") from refusal


def _answer(name: str) -> HostAnswer:
    return HostAnswer(host=encode_host(row_named(name)))


class HostPatch(serializers.Serializer[Any]):
    """The interpreter of the host's next runs, by path or by a script to source; the pool of an idle host."""

    python = serializers.CharField(required=False, allow_blank=True, max_length=255)
    activate = serializers.CharField(required=False, allow_blank=True, max_length=4096)
    pool = serializers.CharField(required=False)


class OneHost(ApiView):
    """One host. It cannot be removed while anything runs on it."""

    rights = {"GET": Right.READ, "PATCH": Right.ADMIN, "DELETE": Right.ADMIN}
    bodies = {"PATCH": HostPatch}

    def get(self, request: Request, name: str) -> HostAnswer:
        return _answer(name)

    @transaction.atomic
    def patch(self, request: Request, name: str) -> HostAnswer:
        host, body, who = host_named(name), self.body(request), actor(request)
        if pool := body.pop("pool", None):
            _granted(lambda: registry.change_pool(host.pk, pool_named(pool), actor=who))
        if body:
            _granted(lambda: registry.choose_interpreter(host.pk, **body, actor=who))
        return _answer(name)

    def delete(self, request: Request, name: str) -> None:
        host = host_named(name)
        _granted(lambda: registry.remove(host.pk, actor=actor(request)))


class HostStep(ApiView):
    """An action on a host: enable, disable (stops its work), drain, doctor (check again), lost."""

    rights = {"POST": Right.ADMIN}
    step: ClassVar[str] = ""

    def post(self, request: Request, name: str) -> HostAnswer:
        host = host_named(name)
        _granted(lambda: registry.STEPS[self.step](host.pk, actor=actor(request)))
        return _answer(name)


#: what goes on after the answer
STEPS_THAT_TAKE_TIME = {"doctor": {"POST": status.HTTP_202_ACCEPTED}}


class KeyBody(serializers.Serializer[Any]):
    """The offered key, or its fingerprint, so that only a key that was seen is accepted."""

    key = serializers.CharField(required=False, allow_blank=True, default="", max_length=8192)
    fingerprint = serializers.CharField(required=False, allow_blank=True, default="", max_length=128)


class AcceptKey(ApiView):
    """Pin the key that the host, or a jump host on the way, has offered."""

    rights = {"POST": Right.ADMIN}
    bodies = {"POST": KeyBody}
    statuses = {"POST": status.HTTP_202_ACCEPTED}

    def post(self, request: Request, name: str) -> HostAnswer:
        host, body = host_named(name), self.body(request)
        key = body["key"] or _offered(host, body["fingerprint"])
        _granted(lambda: registry.accept_key(host.pk, actor=actor(request), key=key))
        return _answer(name)


def _offered(host: Host, wanted: str) -> str:
    """The offered key of this fingerprint. Raises BadRequest when none has it."""
    keys = [host.offered_host_key, *(jump.get("offered_host_key") or "" for jump in host.jumps)]
    for key in filter(None, keys):
        if wanted and fingerprint(key) == wanted:
            return str(key)
    raise BadRequest(f"{host.name} has not offered a key with the fingerprint {wanted or '(none given)'}.")


class ServerKeyAnswer(Answer):
    public_key: str
    fingerprint: str


class ServerKey(ApiView):
    """The public key that goes into authorized_keys on the hosts."""

    rights = {"GET": Right.READ}

    def get(self, request: Request) -> ServerKeyAnswer:
        key = public_key()
        return ServerKeyAnswer(public_key=key, fingerprint=fingerprint(key))
