"""From event rows and conditions to deliveries: a bounded pass that may be killed anywhere and run twice.

A delivery exists once for each rule and occurrence because the database says so; the cursor only saves work. It moves
in the transaction that writes the deliveries, so what it has passed has been told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import connection, transaction

from events.models import Event
from experiments.models import Trial
from notifications import watches
from notifications.models import Cursor, Delivery, Rule
from notifications.occurrences import RELEVANT, Occurrence, of_event
from notifications.triggers import Trigger, fits

#: event rows that one pass turns into occurrences
EVENTS_PER_PASS = 1000
#: A number may have been drawn by a statement that has no transaction number yet, for the blink of an eye.
_SETTLE_SECONDS = 5.0
#: the last number that an event row was given, committed or not
_LAST_NUMBER = "coalesce(pg_sequence_last_value(pg_get_serial_sequence('events_event', 'id')), 0)"


def look(now: datetime) -> int:
    """Write a delivery for each rule and thing that has happened since the last look; how many."""
    with transaction.atomic():
        cursor = _cursor()
        rules = _rules()
        horizon, oldest = _transactions()
        events = _unseen(cursor, rules)
        made = _tell(_occurrences(events), rules)
        _move(cursor, events, horizon, oldest, now)
    return made


def anything_new() -> bool:
    """Whether an event has been written, or begun, since the cursor came to the end; one statement."""
    with connection.cursor() as database:
        database.execute(
            "SELECT EXISTS (SELECT FROM notifications_cursor WHERE id = 1 AND done >= seen AND seen >= "
            f"{_LAST_NUMBER})"
        )
        return not database.fetchone()[0]


def watch(now: datetime) -> int:
    """Write deliveries for what has lasted too long, and return how many."""
    rules = _rules()
    return _tell(watches.occurrences(rules, now), rules)


def _rules() -> list[Rule]:
    return list(Rule.objects.filter(paused=False, owner__is_active=True).select_related("owner"))


def _cursor() -> Cursor:
    """Locked; at first, what has happened so far is nobody's news."""
    begin = _last_number()
    Cursor.objects.get_or_create(id=1, defaults={"done": begin, "seen": begin})
    return Cursor.objects.select_for_update().get(id=1)


def _unseen(cursor: Cursor, rules: Sequence[Rule]) -> list[Event]:
    if not rules:
        return []
    rows = Event.objects.filter(RELEVANT, id__gt=cursor.done).order_by("id")
    return list(rows[: EVENTS_PER_PASS + 1])


def _occurrences(events: Sequence[Event]) -> Iterable[Occurrence]:
    known = set(
        Delivery.objects.filter(source__in=[f"event:{event.pk}" for event in events]).values_list(
            "source", flat=True
        )
    )
    for event in events[:EVENTS_PER_PASS]:
        if f"event:{event.pk}" not in known and (found := of_event(event)):
            found.happened_at = event.at
            yield found


def _tell(occurrences: Iterable[Occurrence], rules: Sequence[Rule]) -> int:
    rows = [
        Delivery(
            rule=rule, source=found.source, trigger=found.trigger, facts=found.facts, condition=trigger["condition"]
        )
        for found in occurrences
        for rule in rules
        if (trigger := wanted(rule, found)) is not None
    ]  # fmt: skip
    if not rows:
        return 0
    Delivery.objects.bulk_create(rows, ignore_conflicts=True)
    return len(rows)


def wanted(rule: Rule, found: Occurrence) -> dict[str, object] | None:
    """The trigger of the rule that this meets, or None."""
    if found.happened_at is not None and found.happened_at < rule.since:
        return None
    if (
        _webhooks(found).get("exclude")
        or not _in_scope(rule, found)
        or (rule.named_only and not _named(rule, found))
    ):
        return None
    return next(
        (
            each
            for each in rule.triggers
            if each["type"] == found.trigger and fits(each["condition"], found.facts)
        ),
        None,
    )


def _in_scope(rule: Rule, found: Occurrence) -> bool:
    match rule.scope:
        case Rule.Scope.CLUSTER:
            return True
        case Rule.Scope.MINE:
            return any(owner == rule.owner_id for owner, _, _ in found.concerns)
        case Rule.Scope.PROJECT:
            return any(project == rule.project_id for _, project, _ in found.concerns)
        case _:
            return any(workspace == rule.workspace_id for _, _, workspace in found.concerns)


def _named(rule: Rule, found: Occurrence) -> bool:
    """`integrations: {webhooks: {webhook_id: [1], webhook_name: [ours]}}` of the experiment's config."""
    asked = _webhooks(found)
    return rule.pk in (asked.get("webhook_id") or []) or rule.name in (asked.get("webhook_name") or [])


def _webhooks(found: Occurrence) -> Mapping[str, Any]:
    """What the config of the experiment asks of rules; nothing for other jobs."""
    config = found.experiment.config if found.experiment else {}
    return (config.get("integrations") or {}).get("webhooks") or {}


def _move(cursor: Cursor, events: Sequence[Event], horizon: int, oldest: int, now: datetime) -> None:
    """Forward to where no transaction can add a row any more, and not past events that this pass did not come to."""
    restored = cursor.horizon > horizon  # onto another machine, where transactions count anew
    waited = (now - cursor.seen_at).total_seconds() >= _SETTLE_SECONDS
    if not restored and not (waited and oldest >= cursor.horizon):
        return
    came_to = events[EVENTS_PER_PASS - 1].pk if len(events) > EVENTS_PER_PASS else cursor.seen
    cursor.done = max(cursor.done, min(cursor.seen, came_to))
    if cursor.done >= cursor.seen:
        cursor.seen, cursor.horizon, cursor.seen_at = _last_number(), horizon, now
    cursor.save()


def _transactions() -> tuple[int, int]:
    """The number of the next transaction, and of the oldest that goes on."""
    with connection.cursor() as database:
        database.execute(
            "SELECT pg_snapshot_xmax(now)::text::bigint, pg_snapshot_xmin(now)::text::bigint "
            "FROM pg_current_snapshot() AS now"
        )
        horizon, oldest = database.fetchone()
    return int(horizon), int(oldest)


def _last_number() -> int:
    with connection.cursor() as database:
        database.execute(f"SELECT {_LAST_NUMBER}")
        return int(database.fetchone()[0])


def forget(now: datetime) -> int:
    """Remove deliveries that ended long ago; how many."""
    old = now - timedelta(days=settings.NOTIFY_HISTORY_DAYS)
    ended = Delivery.objects.filter(created_at__lt=old).exclude(state=Delivery.State.PENDING)
    return ended.delete()[0]


def patterns(member_id: int) -> list[str]:
    """What rules of trigger TASK_LOG look for in the log of a member's trial; none in that of other work."""
    rules = [rule for rule in _rules() if any("regex" in each["condition"] for each in rule.triggers)]
    if not rules:
        return []
    concerns = Trial.objects.filter(task__allocations__members=member_id).values_list(
        "experiment__owner_id", "experiment__project_id", "experiment__project__workspace_id"
    )
    trial = Occurrence("", Trigger.TASK_LOG, {}, list(concerns))
    found = [
        each["condition"]["regex"]
        for rule in rules
        if trial.concerns and _in_scope(rule, trial)
        for each in rule.triggers
        if "regex" in each["condition"]
    ]
    return list(dict.fromkeys(found))
