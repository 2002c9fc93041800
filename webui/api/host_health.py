"""The health of hosts: what is reported and measured there, by burn-ins too, and what is out of use because of it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field
from rest_framework import serializers, status
from rest_framework.request import Request

import commands.burn_in
from accounts.rights import Right
from jobs import quarantine
from shown.hosts import burn_in, group_burn_in, health
from webui.api import group_burn_ins
from webui.api.agents import host_named, row_named
from webui.api.answers import Answer, Maybe, Time
from webui.api.permissions import actor, person
from webui.api.views import ApiView


class OutOfUseRecord(Answer):
    """A slot in quarantine, or the whole host (slot: null). `returns` says how it comes back."""

    slot: int | None
    sentence: str
    since: Time
    returns: str


class OverruledRecord(Answer):
    """A slot, or the whole host (slot: null), that stays in use until then whatever is reported of it."""

    slot: int | None
    until: Time
    reason: str
    by: str


class SignRecord(Answer):
    """A fault. `source`: kernel (`line` is what it wrote) or measured (`line` is what was measured).

    `action`: nothing, program, restart, reset, reboot, vendor; `done`: what the server did.
    """

    at: Time
    slot: int | None
    source: str
    kind: str
    code: int
    device: str
    action: str
    sentence: str
    done: str
    line: str


class FigureRecord(Answer):
    """What was measured. `median`: of `hosts` other hosts of the pool with the same GPU; null: fewer than three."""

    slot: int | None
    measure: str
    name: str
    value: float
    unit: str
    median: float | None
    hosts: int
    verdict: Annotated[str, Field(description="ok, slow, bad, or unknown without a median")]


class BurnInRecord(Answer):
    """The last burn-in that has ended, judged soon after that; `openId`: the one that waits or runs, else empty."""

    command_id: str
    submitted_at: Time
    ended_at: Maybe[Time] = None
    judged_at: Maybe[Time] = None
    open_id: str
    figures: list[FigureRecord]
    findings: list[str]


class HealthAnswer(Answer):
    """`kernelLog`: where the kernel's log is read (kmsg, journal, dmesg; empty: nowhere).

    `denied`: what cannot be read there, and why. `groupBurnIn`: the last one together with other hosts, and those of
    its rates that are of this host.
    """

    state: str
    out_of_use: list[OutOfUseRecord]
    overruled: list[OverruledRecord]
    signs: list[SignRecord]
    burn_in: BurnInRecord | None
    group_burn_in: group_burn_ins.GroupBurnInRecord | None
    kernel_log: str
    denied: str


class BurnInAnswer(Answer):
    command_id: str


class HostHealth(ApiView):
    """What is out of use on a host because of faults, and the newest 50 faults reported or measured there."""

    rights = {"GET": Right.READ}

    def get(self, request: Request, name: str) -> HealthAnswer:
        return _answer(name)


class QuarantineBody(serializers.Serializer[Any]):
    slot = serializers.IntegerField(
        required=False, allow_null=True, default=None, help_text="null: the whole host"
    )
    reason = serializers.CharField(max_length=500, help_text="a sentence for everybody whose work waits")


class ReleaseBody(serializers.Serializer[Any]):
    slot = serializers.IntegerField(
        required=False, allow_null=True, default=None, help_text="null: the whole host"
    )
    hours = serializers.FloatField(
        required=False, allow_null=True, default=None,
        help_text="for so long no fault takes it out of use again, 720 at most; null: the next one may",
    )  # fmt: skip
    reason = serializers.CharField(
        required=False, allow_blank=True, default="", max_length=500, help_text="why; needed with hours"
    )


class HostQuarantine(ApiView):
    """Take a host, or one slot of it, out of use. What runs there ends in its own time."""

    rights = {"POST": Right.ADMIN}
    bodies = {"POST": QuarantineBody}

    def post(self, request: Request, name: str) -> HealthAnswer:
        body = self.body(request)
        quarantine.by_hand(host_named(name).pk, body["slot"], body["reason"], actor=actor(request))
        return _answer(name)


class HostRelease(ApiView):
    """Let a host, or one slot of it, back into use, whatever has been reported of it."""

    rights = {"POST": Right.ADMIN}
    bodies = {"POST": ReleaseBody}

    def post(self, request: Request, name: str) -> HealthAnswer:
        body = self.body(request)
        hours, reason = body["hours"], body["reason"]
        quarantine.release(
            host_named(name).pk, body["slot"], actor=actor(request), hours=hours, reason=reason
        )
        return _answer(name)


class HostBurnIn(ApiView):
    """Measure a host, by a job of the lowest priority; one that has not ended yet is not doubled."""

    rights = {"POST": Right.ADMIN}
    statuses = {"POST": status.HTTP_202_ACCEPTED}

    def post(self, request: Request, name: str) -> BurnInAnswer:
        user = person(request)
        command = commands.burn_in.ask(host_named(name).pk, owner=user, actor=actor(request))
        return BurnInAnswer(command_id=str(command.pk))


def _answer(name: str) -> HealthAnswer:
    host = row_named(name).host
    found = health.of(host)
    measured, together = burn_in.of(host), group_burn_in.newest_of(host)
    return HealthAnswer(
        state=found.word,
        out_of_use=[OutOfUseRecord.of(each) for each in found.out],
        overruled=[OverruledRecord.of(each) for each in found.overruled],
        signs=[SignRecord.of(each, slot=each.slot.index if each.slot else None) for each in found.signs],
        burn_in=None if measured is None else _burn_in(measured),
        group_burn_in=None if together is None else group_burn_ins.record(together),
        kernel_log=found.source,
        denied=found.denied,
    )


def _burn_in(shown: burn_in.BurnInRows) -> BurnInRecord:
    return BurnInRecord(
        command_id=shown.command_id,
        submitted_at=shown.submitted_at,
        ended_at=shown.ended_at,
        judged_at=shown.judged_at,
        open_id=shown.open_id,
        figures=[FigureRecord.of(each) for each in shown.rows],
        findings=shown.findings,
    )
