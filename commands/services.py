"""What people use of a command through the server: since when, who lately, and when that is over."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import DateTimeField, DurationField, ExpressionWrapper, F, Q, QuerySet, Value
from django.db.models.functions import Coalesce, Greatest, Now
from django.utils import timezone

from commands.models import Command, Service
from commands.states import CommandState
from commands.transitions import lock, stop_attempt
from events import presence
from events.announce import announce
from jobs.states import Reason

log = logging.getLogger(__name__)

_PORT_MAX = 65535
_SENTENCE_CHARACTERS = 2000


def reported(task_id: str, record: Any) -> None:
    """A record of the task's own program: {"type": "ready", "port"} says where its door is, {"type": "lacking",
    "sentence"} what the host lacks to run it, and so how it will have ended. Others are left."""
    kind = record.get("type") if isinstance(record, dict) else ""
    if kind == "lacking":
        sentence = str(record.get("sentence") or "").strip().rstrip(".")[:_SENTENCE_CHARACTERS]
        Command.objects.filter(task_id=task_id, state=CommandState.ACTIVE, ending="").update(ending=sentence)
    if kind != "ready":
        return
    port = record.get("port")
    if type(port) is not int or not 0 < port <= _PORT_MAX:
        log.warning("task %s reported port %r, which is not a port", task_id, port)
        return
    now = timezone.now()
    rows = Service.objects.filter(command__task_id=task_id, ready_at=None)
    if rows.update(port=port, ready_at=now, used_at=now):
        announce("commands", f"task:{task_id}")


def lacking(task_id: str) -> str:
    """What the host lacks to run the task's program, as the program said it; empty where it said nothing."""
    said = Command.objects.filter(task_id=task_id, state=CommandState.ACTIVE).values_list("ending", flat=True)
    return said.first() or ""


def used(command_id: str) -> None:
    """Somebody uses it now; written at most once in SERVICE_USED_EVERY_SECONDS."""
    recent = Q(used_at__gt=Now() - timedelta(seconds=settings.SERVICE_USED_EVERY_SECONDS), used_at__lte=Now())
    Service.objects.filter(command_id=command_id).exclude(recent).update(used_at=Now())


def was_used(service: Service, at: datetime) -> bool:
    """Note that it was at work then; True: that is not as long ago as its idle timeout.

    What comes, as its host's clock has it, after now has been now: it would count as use for as long as that.
    """
    at = min(at, timezone.now())
    if service.used_at is None or at > service.used_at:
        Service.objects.filter(pk=service.pk).update(used_at=at)
    return (timezone.now() - at).total_seconds() < (service.idle_timeout_seconds or 0)


def unused() -> QuerySet[Service]:
    """Those that are ready and that nobody has used for as long as their idle timeout.

    Nobody can use them while the server is away, so that time does not count.
    """
    whole = presence.whole()
    if whole is None:
        return Service.objects.none()
    used = Coalesce(Greatest("used_at", "ready_at"), "ready_at", output_field=DateTimeField())
    since = Greatest(used, Value(whole.since), output_field=DateTimeField())
    limit = ExpressionWrapper(
        F("idle_timeout_seconds") * Value(timedelta(seconds=1)), output_field=DurationField()
    )
    over = ExpressionWrapper(since + limit, output_field=DateTimeField())
    return (
        Service.objects.filter(command__state=CommandState.ACTIVE, ready_at__isnull=False)
        .exclude(idle_timeout_seconds=None)
        .annotate(over_at=over)
        .filter(over_at__lt=whole.now)
        .select_related("command__job")
    )


@transaction.atomic
def stop_unused(command: Command, *, actor: str) -> None:
    """End it, since nobody used it. One that is being stopped already is left, and one that was used meanwhile."""
    locked = lock(command.pk)
    if locked.state == CommandState.ACTIVE and unused().filter(pk=command.pk).exists():
        stop_attempt(locked, reason=Reason.IDLE_TIMEOUT, actor=actor)
