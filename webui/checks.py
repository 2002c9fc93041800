"""What `manage.py check --deploy` says of this server beyond Django's own checks."""

from __future__ import annotations

from typing import Any

from django.core.checks import CheckMessage, Info, Tags, register
from django.db import DatabaseError

from hosts import trust


@register(Tags.security, deploy=True)
def who_is_kept_apart(**_: Any) -> list[CheckMessage]:
    """Which kind of deployment of docs/security.md this is; nothing is said while the database cannot be read."""
    try:
        found = trust.of_server()
    except DatabaseError:
        return []
    hint = "See docs/security.md." if found.gaps else None
    return [Info(found.sentence, hint=hint, id="trainmaster.I001")]
