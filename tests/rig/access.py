"""A world in which everything belongs to ada, an editor, for the tables of who may do what; and how those are kept."""

from __future__ import annotations

import difflib
import math
import os
from datetime import timedelta
from pathlib import Path

import pytest
from django.apps import apps
from django.conf import LazySettings
from django.core.management.color import no_style
from django.db import connection
from django.utils import timezone

from accounts.models import AccessToken, User
from events.models import Event
from logs import pulse
from notifications.models import Delivery
from tests.rig import golden_world
from tests.rig.golden_world import World
from tests.rig.world import make_user
from webui.api import allocations

MEANING = {401: "login", 403: "no", 404: "hidden"}


def meaning(status: int) -> str:
    """What an answer says about whoever asked; one that was let in, but asked for nothing possible, has its status."""
    return MEANING.get(status) or ("yes" if status < 300 else "leads on" if status < 400 else str(status))


def make_world(settings: LazySettings, folder: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """The golden world, in a database of its own, with ada as the owner of all that has one."""
    settings.DATA_DIR = folder
    monkeypatch.setitem(connection.settings_dict, "CONN_MAX_AGE", 0)  # threads give their connections back
    monkeypatch.setattr(pulse, "SILENT_SECONDS", math.inf)
    monkeypatch.setattr(allocations, "GANG_WAIT_SECONDS", 0.0)
    with connection.cursor() as cursor:  # the examples of bodies name rows by their first ids
        for statement in connection.ops.sequence_reset_sql(no_style(), apps.get_models()):
            cursor.execute(statement)
    made = golden_world.make(folder)
    root, ada = User.objects.get(username="root"), make_user("ada")
    for model in apps.get_models():
        if "owner" in {each.name for each in model._meta.fields}:
            model._default_manager.filter(owner=root).update(owner=ada)
    AccessToken.objects.update(user=ada)
    delivery = Delivery.objects.filter(rule__isnull=False).latest("created_at")
    made.places["webhooks/rule_id"].insert(0, str(delivery.rule_id))
    made.add("deliveries/delivery_id", delivery.pk)
    return made


def nobody_is_seen() -> None:
    """No request notes from now on that a user was seen: it would look like a change."""
    User.objects.update(seen_at=timezone.now() + timedelta(hours=1))


def demote() -> None:
    """Make ada, the owner of everything, a viewer: what she owned while she was an editor is not hers to change."""
    User.objects.filter(username="ada").update(role=User.Role.VIEWER)


def line(name: str, answers: dict[str, str]) -> str:
    """A line of a table: the operation, and for each answer who gets it."""
    groups: dict[str, list[str]] = {}
    for each, answer in answers.items():
        groups.setdefault(answer, []).append(each)
    return f"{name}\n" + "".join(f"    {answer}: {', '.join(groups[answer])}\n" for answer in sorted(groups))


#: the view of these counts, which joins all indexes, takes PostgreSQL four times as long
_WRITTEN = """
SELECT coalesce(sum(pg_stat_get_xact_tuples_inserted(oid) + pg_stat_get_xact_tuples_updated(oid)
                    + pg_stat_get_xact_tuples_deleted(oid)), 0)
FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
AND relname NOT LIKE 'django\\_%%' AND relname <> 'events_event'
"""


def written() -> int:
    """Rows of ours that this transaction has written so far, without events."""
    with connection.cursor() as cursor:
        cursor.execute(_WRITTEN)
        return int(cursor.fetchone()[0])


def newest_event() -> int:
    return Event.objects.order_by("-pk").values_list("pk", flat=True).first() or 0


def told_since(event: int) -> bool:
    """Whether there is an event that says who has done something, and from where."""
    return Event.objects.filter(pk__gt=event, origin="127.0.0.1", actor__startswith="user:").exists()


def check(table: Path, found: dict[str, dict[str, str]], write: str) -> None:
    """Fail where the table in the file is another one; `write` is the command that writes it, with ACCESS=write."""
    text = "".join(line(name, answers) for name, answers in found.items())
    if os.environ.get("ACCESS") == "write":
        table.write_text(text, encoding="utf-8")
    kept = table.read_text(encoding="utf-8")
    changed = "\n".join(difflib.unified_diff(kept.splitlines(), text.splitlines(), lineterm="", n=4))
    assert not changed, f"{changed}\nIf you meant to change who may do what: {write}"
