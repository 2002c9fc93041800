"""Who changed what and when: admins see the whole server, others what they did and what happened in a pool."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request

from accounts.rights import Right
from shown import audit
from shown.audit import AuditFilters
from webui.api.answers import Answer, Maybe, Time
from webui.api.job_queue import pool_named
from webui.api.permissions import person
from webui.api.views import ApiView


class AuditQuery(serializers.Serializer[Any]):
    user = serializers.CharField(
        required=False, help_text="a name, or account:<Unix account> of the server's machine"
    )
    kind = serializers.ChoiceField(choices=[*map(str, audit.KINDS)], required=False)
    id = serializers.CharField(required=False, help_text="of the object; needs kind")
    change = serializers.ChoiceField(choices=[*audit.CHANGES], required=False)
    pool = serializers.CharField(required=False, help_text="the name of a resource pool")
    since = serializers.DateTimeField(required=False)
    until = serializers.DateTimeField(required=False)
    before = serializers.IntegerField(required=False, min_value=1, help_text="the last page's `older`")
    after = serializers.IntegerField(required=False, min_value=1, help_text="the last page's `newer`")


class AuditChange(Answer):
    """Both values are empty where the event says only that the field changed."""

    field: str
    was: str
    now: str


class AuditRecord(Answer):
    """`origin`: the address; empty for those who may not know it."""

    id: int
    at: Time
    actor: str
    origin: str
    kind: str
    subject: str
    name: str
    change: str
    what: str
    changes: list[AuditChange]


class AuditAnswer(Answer):
    rows: list[AuditRecord]
    older: Maybe[int] = None
    newer: Maybe[int] = None


class Audit(ApiView):
    """Changes by people, newest first, a page at a time."""

    rights = {"GET": Right.READ}
    queries = {"GET": AuditQuery}

    def get(self, request: Request) -> AuditAnswer:
        query, viewer = self.query(request), person(request)
        filters = AuditFilters(
            user=query.get("user", ""),
            kind=query.get("kind", ""),
            subject=query.get("id", ""),
            change=query.get("change", ""),
            pool_id=pool_named(query["pool"]).pk if "pool" in query else None,
            since=query.get("since"),
            before=query.get("until"),
        )
        found = audit.page(
            audit.found(filters, viewer), viewer, after=query.get("after"), before=query.get("before")
        )
        rows = [
            AuditRecord.of(row, changes=[AuditChange(**each._asdict()) for each in row.changes])
            for row in found.rows
        ]
        return AuditAnswer(rows=rows, older=found.older, newer=found.newer)
