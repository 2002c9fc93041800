"""How long a log is kept, in a few words."""

from __future__ import annotations

from django import template
from django.utils import timezone

from dispatch.keeping import log_retention
from logs.models import Retention
from logs.retention import FOR_EVER

register = template.Library()

#: what the choice beside a log offers, in days
OFFERED = (7, 30, 90, 365, FOR_EVER)


@register.simple_tag
def log_kept(task_id: str) -> str:
    """`kept forever`, `kept for 30 days after the end`, `removed in 12 days`, `removed at the next cleanup`."""
    kept = log_retention.kept(task_id)
    if kept.days == FOR_EVER:
        return "kept forever"
    if kept.ended_at is None:
        return f"kept for {_days(kept.days)} after the end" if kept.days else "removed when the job has ended"
    left = kept.remaining_days(timezone.now())
    return f"removed in {_days(left)}" if left else "removed at the next cleanup"


def _days(count: int) -> str:
    return f"{count} day" + ("" if count == 1 else "s")


@register.simple_tag
def keep_choices(task_id: str) -> list[tuple[str, str, bool]]:
    """What somebody may choose for a log: (value of the form, words, whether it is so now)."""
    now = Retention.objects.filter(pk=task_id).values_list("days", flat=True).first()
    days = [*OFFERED] if now is None or now in OFFERED else [now, *OFFERED]
    words = {each: "forever" if each == FOR_EVER else f"{_days(each)} after the end" for each in days}
    return [("", "as configured", now is None), *((str(each), words[each], each == now) for each in days)]
