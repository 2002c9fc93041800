"""How long a log is kept, in a few words."""

from __future__ import annotations

from django import template
from django.utils import timezone

from dispatch import log_retention
from logs.retention import FOR_EVER

register = template.Library()


@register.simple_tag
def log_kept(task_id: str) -> str:
    """`kept for ever`, `kept for 30 days after the end`, `removed in 12 days`, `removed at the next cleanup`."""
    kept = log_retention.kept(task_id)
    if kept.days == FOR_EVER:
        return "kept for ever"
    if kept.ended_at is None:
        return f"kept for {_days(kept.days)} after the end" if kept.days else "removed when the job has ended"
    left = kept.remaining_days(timezone.now())
    return f"removed in {_days(left)}" if left else "removed at the next cleanup"


def _days(count: int) -> str:
    return f"{count} day" + ("" if count == 1 else "s")
