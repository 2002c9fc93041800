"""What `manage.py check --deploy --database default` says of this server beyond Django's own checks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.core.checks import CheckMessage, Info, Tags, register

from hosts import trust


@register(Tags.security, deploy=True)
def who_is_kept_apart(databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """Which kind of deployment of docs/security.md this is, where `--database default` lets checks read it."""
    if not databases:
        return [
            Info(
                "What keeps the users of this server apart was not checked.",
                hint="Add `--database default`: manage.py check --deploy --database default",
                id="trainmaster.I002",
            )
        ]
    found = trust.of_server()
    hint = "See docs/security.md." if found.gaps else None
    return [Info(found.sentence, hint=hint, id="trainmaster.I001")]
