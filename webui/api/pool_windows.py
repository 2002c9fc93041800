"""Windows of a pool: maintenance, and reservations for a group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from django.db import transaction
from django.utils import timezone
from pydantic.alias_generators import to_camel
from rest_framework import serializers
from rest_framework.request import Request

from accounts.refusals import FieldRefusals
from accounts.rights import Right
from hosts import pool_windows
from shown import pool_windows as shown
from shown.pool_windows import WindowRow
from webui.api.answers import Answer, Maybe, Time
from webui.api.errors import BadRequest
from webui.api.job_queue import pool_named
from webui.api.permissions import actor
from webui.api.views import ApiView


class MetRun(Answer):
    """A run that the window meets. `at`: when it is asked to save; absent, it stays, and `why`."""

    label: str
    slots: int
    at: Maybe[Time] = None
    why: str


class WindowRecord(Answer):
    """`starts` and `ends` are what the clock shows in `timeZone`, of a weekly window the first time.

    `group`: the only one that uses the hosts then; empty: nobody does (maintenance). `nextStart` and `nextEnd`: of the
    time that is now or comes next. `takes`: its hosts, as chosen now. `stops`: runs that are asked to save in time.
    `inTheWay`: runs that are not stopped, since they could not save. `openUntil`: until then,
    work that can neither save nor has a `max_time` still starts on these hosts.
    """

    name: str
    starts: str
    ends: str
    time_zone: str
    weekly: bool
    hosts: list[str]
    slots: Maybe[int] = None
    group: str
    next_start: Time
    next_end: Time
    open_until: Time
    takes: list[str]
    stops: list[MetRun]
    in_the_way: list[MetRun]


class WindowsAnswer(Answer):
    windows: list[WindowRecord]


class WindowAnswer(Answer):
    window: WindowRecord


#: the API's name of each field -> the window's
_FIELDS = {to_camel(field): field for field in pool_windows.FIELDS}


class WindowFields(serializers.Serializer[Any]):
    """A window; what PATCH does not send stays. `dryRun`: only answer what it would do. Errors say what is allowed."""

    def get_fields(self) -> dict[str, Any]:
        fields = {name: serializers.JSONField(required=False, allow_null=True) for name in _FIELDS}
        return {**fields, "dryRun": serializers.BooleanField(required=False)}

    def to_internal_value(self, data: Any) -> Any:
        if not isinstance(data, dict):
            raise BadRequest("The body must be an object with the window's fields.")
        if unknown := [name for name in data if name not in self.fields]:
            raise BadRequest(
                f"{', '.join(unknown)}: unknown window field; allowed: {', '.join(self.fields)}."
            )
        if not isinstance(data.get("dryRun", False), bool):
            raise BadRequest(f"dryRun: found {data['dryRun']!r}; allowed: true or false.")
        return dict(data)


class PoolWindows(ApiView):
    """The windows of a pool, the next first; or add one (admins)."""

    rights = {"GET": Right.READ, "POST": Right.ADMIN}
    bodies: ClassVar = {"POST": WindowFields}

    def get(self, request: Request, name: str) -> WindowsAnswer:
        rows = shown.of_pool(pool_named(name), timezone.now())
        return WindowsAnswer(windows=[_encoded(row) for row in rows])

    def post(self, request: Request, name: str) -> WindowAnswer:
        return _saved(name, self.body(request), actor(request))


class OnePoolWindow(ApiView):
    """Change or remove a window (admins)."""

    rights = {"PATCH": Right.ADMIN, "DELETE": Right.ADMIN}
    bodies: ClassVar = {"PATCH": WindowFields}

    def patch(self, request: Request, name: str, window: str) -> WindowAnswer:
        return _saved(name, self.body(request), actor(request), window)

    def delete(self, request: Request, name: str, window: str) -> None:
        pool_named(name)
        pool_windows.remove(name, window, actor=actor(request))


def _saved(pool: str, body: Mapping[str, Any], who: str, replaces: str = "") -> WindowAnswer:
    """The window with what it does. Raises BadRequest."""
    pool_named(pool)
    values = {_FIELDS[name]: value for name, value in body.items() if name in _FIELDS}
    try:
        with transaction.atomic():
            window = pool_windows.save(pool, values, actor=who, replaces=replaces)
            rows = shown.of_pool(pool_named(pool), timezone.now())
            transaction.set_rollback(bool(body.get("dryRun")))
    except FieldRefusals as refusal:
        sentences = [f"{to_camel(field)}: {sentence}" for field, sentence in refusal.errors.items()]
        raise BadRequest("; ".join(sentences)) from refusal
    return WindowAnswer(window=next(_encoded(row) for row in rows if row.window.name == window.name))


def _encoded(row: WindowRow) -> WindowRecord:
    return WindowRecord.of(
        row.window,
        hosts=list(row.window.hosts),
        next_start=row.starts,
        next_end=row.ends,
        open_until=row.open_until,
        takes=row.takes,
        stops=[MetRun.of(each) for each in row.stops],
        in_the_way=[MetRun.of(each) for each in row.in_the_way],
    )
