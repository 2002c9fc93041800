"""How a timeline is parted by attempt, timed and linked."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from events.models import Event
from jobs.states import Reason
from shown import timeline

pytestmark = pytest.mark.django_db
BEGIN = datetime(2026, 11, 27, 10, 0, tzinfo=UTC)
#: seconds after the beginning, kind, subject, state, reason, detail
HAPPENED: list[tuple[int, str, str, str, str, dict[str, object]]] = [
    (0, "task", "7.x", "WAITING", Reason.SUBMITTED, {}),
    (60, "allocation", "7.x.1", "ASSIGNED", Reason.SCHEDULED, {"hosts": ["gpu 1"]}),
    (61, "member", "7.x.1.0", "RUNNING", Reason.STARTED, {"host": "gpu 1"}),
    (1500, "checkpoint", "0123456789abcdef", "COMPLETED", "", {}),
    (1501, "member", "7.x.1.0", "ENDED", Reason.RANK_FAILED, {"host": "gpu 1"}),
    (1502, "allocation", "7.x.1", "TERMINATED", Reason.RANK_FAILED, {}),
    (1503, "task", "7.x", "WAITING", Reason.RANK_FAILED, {}),
    (1504, "allocation", "7.x.2", "ASSIGNED", Reason.SCHEDULED, {}),
]


def test_what_happened_during_an_attempt_stands_together_with_times_and_links() -> None:
    for seconds, kind, subject, state, reason, detail in HAPPENED:
        event = Event.objects.create(
            kind=kind, subject=subject, to_state=state, reason=reason, detail=detail, task_id="7.x"
        )
        Event.objects.filter(pk=event.pk).update(at=BEGIN + timedelta(seconds=seconds))
    stretches = timeline.of(Event.objects.filter(task_id="7.x")).stretches
    assert [(each.attempt, len(each.entries), each.seconds) for each in stretches] == [
        (2, 1, None), (None, 1, None), (1, 5, 1442.0), (None, 1, None),
    ]  # fmt: skip
    ended, left, saved, started, assigned = stretches[2].entries
    assert (ended.lamp, left.lamp, saved.lamp, started.lamp) == ("failed", "failed", "rest", "running")
    assert (left.named, left.href, saved.href) == ("gpu 1", "/hosts/gpu%201", "/checkpoints/0123456789abcdef")
    assert saved.named + saved.rest == saved.sentence and saved.named == "Checkpoint 01234567"
    assert (saved.seconds, saved.is_behind_gap) == (1439.0, True)
    assert (assigned.seconds, assigned.is_behind_gap, assigned.href) == (60.0, False, "")
    (queued,) = stretches[3].entries
    assert (queued.seconds, queued.lamp) == (None, "waiting")
