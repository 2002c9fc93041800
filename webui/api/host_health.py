"""The health of hosts: faults that are reported and measured there, and what is out of use because of them."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request

from accounts.rights import Right
from jobs import quarantine
from shown.hosts import health
from webui.api.agents import host_named, row_named
from webui.api.answers import Answer, Time
from webui.api.permissions import actor
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


class HealthAnswer(Answer):
    """`kernelLog`: where the kernel's log is read (kmsg, journal, dmesg; empty: nowhere).

    `denied`: what cannot be read there, and why.
    """

    state: str
    out_of_use: list[OutOfUseRecord]
    overruled: list[OverruledRecord]
    signs: list[SignRecord]
    kernel_log: str
    denied: str


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


def _answer(name: str) -> HealthAnswer:
    found = health.of(row_named(name).host)
    return HealthAnswer(
        state=found.word,
        out_of_use=[OutOfUseRecord.of(each) for each in found.out],
        overruled=[OverruledRecord.of(each) for each in found.overruled],
        signs=[SignRecord.of(each, slot=each.slot.index if each.slot else None) for each in found.signs],
        kernel_log=found.source,
        denied=found.denied,
    )
