"""Metrics that a user has pinned: they stand first on the Metrics page of every trial of the project.

One row per user and project among the settings of pages: the names of charts (metrics.charts.stem) as a JSON list.
"""

from __future__ import annotations

import json

from django.db import transaction

from accounts.models import User
from accounts.refusals import Refusal
from webui.models import UserSetting

MOST = 200
NAME_CHARACTERS = 500
_KEY = "metric-pins"


def of(user: User, project_id: int) -> list[str]:
    """The names, in the order in which they were pinned."""
    row = UserSetting.objects.filter(user=user, storage_path=_path(project_id), key=_KEY).first()
    return row.names[:MOST] if row else []


def put(user: User, project_id: int, name: str, *, is_pinned: bool) -> None:
    """Pin a name or take the pin off; twice is as once. Raises Refusal."""
    if not name or len(name) > NAME_CHARACTERS or "\x00" in name:
        raise Refusal(f"`name` must be the name of a chart: 1 to {NAME_CHARACTERS} characters.")
    where = {"user": user, "storage_path": _path(project_id), "key": _KEY}
    with transaction.atomic():
        UserSetting.objects.get_or_create(**where, defaults={"value": "[]"})
        row = UserSetting.objects.select_for_update().get(**where)
        names = [each for each in row.names[:MOST] if each != name]
        if is_pinned:
            names.append(name)
        if len(names) > MOST:
            raise Refusal(f"{MOST} metrics are pinned, which is the maximum. Unpin one first.")
        UserSetting.objects.filter(pk=row.pk).update(value=json.dumps(names))


def _path(project_id: int) -> str:
    return f"projects/{project_id}"
