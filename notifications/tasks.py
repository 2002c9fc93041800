"""The Celery tasks: thin adapters, short and idempotent. Each may be lost, late or doubled without harm."""

from __future__ import annotations

from celery import shared_task
from django.conf import settings
from django.utils import timezone

from events.announce import wake
from events.leases import alone
from notifications import outbox, sending


@shared_task(name="notifications.tasks.look")
def look() -> None:
    """Write down what is to be told of, and have it sent."""
    if outbox.anything_new():
        with alone("look_for_notifications") as mine:
            if mine is None:
                return
            outbox.look(timezone.now())
    if sending.due(timezone.now()):
        wake("notifications.tasks.send")


def anything_due() -> bool:
    """Whether `look` would find anything."""
    return outbox.anything_new() or sending.due(timezone.now())


@shared_task(name="notifications.tasks.watch")
def watch() -> None:
    """Write deliveries for what has lasted too long; forget what was sent long ago."""
    with alone("watch_for_notifications", every=settings.NOTIFY_WATCH_SECONDS / 2) as mine:
        if mine is not None:
            outbox.watch(timezone.now())
            outbox.forget(timezone.now())


@shared_task(name="notifications.tasks.send")
def send() -> None:
    """Send what is due, for a while. One such task at a time: slow receivers hold one thread of the workers."""
    with alone("send_notifications") as mine:
        more = mine is not None and sending.send_due(settings.NOTIFY_ROUND_SECONDS)
    if more:
        wake("notifications.tasks.send")
