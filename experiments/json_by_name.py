"""JSON that comes back sorted by name: PostgreSQL keeps the keys of jsonb by their length."""

from __future__ import annotations

from typing import Any

from django.db import models


def by_name(value: Any) -> Any:
    """The value with the keys of each object sorted; lists stay as they are."""
    if isinstance(value, dict):
        return {key: by_name(value[key]) for key in sorted(value)}
    return [by_name(each) for each in value] if isinstance(value, list) else value


class JsonByName(models.JSONField):
    """Read in one order everywhere: pages, REST, the command line and the run's own environment."""

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        return by_name(super().from_db_value(value, expression, connection))
