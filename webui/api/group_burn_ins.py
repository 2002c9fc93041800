"""Burn-ins of several hosts together: asked for here, and what they have measured."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from pydantic import Field
from rest_framework import serializers, status
from rest_framework.request import Request

from accounts.rights import Right
from commands import group_burn_in
from shown.hosts import group_burn_in as shown
from webui.api.agents import host_named
from webui.api.answers import Answer, Maybe, Time
from webui.api.permissions import actor, person
from webui.api.views import ApiView


class RateRecord(Answer):
    """`measure`: all_reduce, or send from the first host to the second. `median`: of `pairs` other pairs of the pool.

    `error`: why it failed, else empty; then the value is 0.
    """

    measure: str
    name: str
    hosts: list[str]
    value: float
    unit: str
    median: float | None
    pairs: int
    error: str


class FindingRecord(Answer):
    host: Annotated[str | None, Field(description="null: because of which host is not known")]
    sentence: str


class GroupBurnInRecord(Answer):
    """Judged soon after it has ended. `ending`: how its command ended, empty while it waits or runs."""

    command_id: str
    hosts: list[str]
    submitted_at: Time
    ended_at: Maybe[Time] = None
    judged_at: Maybe[Time] = None
    ending: str
    rates: list[RateRecord]
    findings: list[FindingRecord]


class GroupBurnInAnswer(Answer):
    command_id: str


class GroupBurnInBody(serializers.Serializer[Any]):
    hosts = serializers.ListField(
        child=serializers.CharField(),
        allow_empty=False,
        max_length=1000,
        help_text="names of 2 to 32 hosts of a pool",
    )


class GroupBurnIns(ApiView):
    """Measure hosts together, by a job of the lowest priority; one that has not ended yet is not doubled."""

    rights = {"POST": Right.ADMIN}
    bodies = {"POST": GroupBurnInBody}
    statuses = {"POST": status.HTTP_202_ACCEPTED}

    def post(self, request: Request) -> GroupBurnInAnswer:
        hosts = [host_named(name).pk for name in self.body(request)["hosts"]]
        command = group_burn_in.ask(hosts, owner=person(request), actor=actor(request))
        return GroupBurnInAnswer(command_id=str(command.pk))


class OneGroupBurnIn(ApiView):
    """What it has measured, and what was found."""

    rights = {"GET": Right.READ}

    def get(self, request: Request, command_id: UUID) -> GroupBurnInRecord:
        return record(shown.find(command_id))


def record(rows: shown.GroupRows) -> GroupBurnInRecord:
    return GroupBurnInRecord.of(
        rows,
        rates=[RateRecord.of(each) for each in rows.rates],
        findings=[FindingRecord.of(each) for each in rows.findings],
    )
