"""The writer of reported metrics, on PostgreSQL."""

import math
import threading
from datetime import UTC, datetime

import pytest
from django.db import connection

from metrics import ingest
from metrics.models import Report

pytestmark = pytest.mark.django_db
AT = datetime(2026, 11, 21, tzinfo=UTC)


def live_values(steps: int, group: str = "training") -> object:
    return Report.objects.get(trial_id=1, group=group, steps_completed=steps, archived=False).values


def test_a_repeated_report_is_stored_once() -> None:
    assert ingest.report(1, 1, "training", 5, {"loss": 0.5}, AT) == []
    assert ingest.report(1, 1, "training", 5, {"loss": 0.5}, AT) == []
    assert Report.objects.count() == 1


def test_reports_of_one_step_merge_and_a_standing_value_is_kept() -> None:
    ingest.report(1, 1, "training", 5, {"loss": 0.5}, AT)
    ingest.report(1, 1, "training", 5, {"accuracy": 0.9}, AT)
    assert ingest.report(1, 1, "training", 5, {"loss": 0.7, "lr": 0.1}, AT) == ["loss"]
    assert live_values(5) == {"loss": 0.5, "accuracy": 0.9, "lr": 0.1}


def test_a_later_run_replaces_what_an_earlier_one_reported() -> None:
    ingest.report(1, 1, "training", 5, {"loss": 0.5, "old": 1}, AT)
    assert ingest.report(1, 2, "training", 5, {"loss": 0.4}, AT) == []
    assert ingest.report(1, 1, "training", 5, {"loss": 0.5}, AT) == ["loss"]
    assert live_values(5) == {"loss": 0.4, "old": 1}


def test_what_lies_beyond_the_checkpoint_is_put_aside_and_may_be_reported_anew() -> None:
    for steps in (10, 20, 30):
        ingest.report(1, 1, "training", steps, {"loss": steps}, AT)
    assert ingest.archive_after(1, 10) == 2
    assert ingest.archive_after(1, 10) == 0
    ingest.report(1, 2, "training", 20, {"loss": 2}, AT)
    assert live_values(20) == {"loss": 2}
    assert Report.objects.filter(archived=True).count() == 2


def test_values_that_json_or_postgresql_refuse_are_kept_by_name() -> None:
    odd = {
        "nan": math.nan,
        "inf": -math.inf,
        "deep": {"er": {"x": 1}},
        "text": "nul\x00 \ud800",
        "list": [math.inf],
    }
    ingest.report(1, 1, "custom\x00", 1, odd, AT)
    assert Report.objects.get().values == {
        "nan": "NaN",
        "inf": "-Infinity",
        "deep.er.x": 1,
        "text": "nul\ufffd \ufffd",
        "list": ["Infinity"],
    }
    assert Report.objects.get().group == "custom\ufffd"


@pytest.mark.django_db(transaction=True)
def test_ranks_that_report_one_step_at_once_all_get_their_keys_in() -> None:
    def send(rank: int) -> None:
        try:
            for steps in range(10):
                ingest.report(1, 1, "training", steps, {f"loss.{rank}": rank}, AT)
        finally:
            connection.close()

    senders = [threading.Thread(target=send, args=(rank,)) for rank in range(4)]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join(60)
    assert Report.objects.count() == 10
    assert all(row.values == {f"loss.{rank}": rank for rank in range(4)} for row in Report.objects.all())
