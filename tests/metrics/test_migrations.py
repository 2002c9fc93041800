"""What an older server kept as a row per report is found again in chunks."""

from datetime import UTC, datetime, timedelta
from importlib import import_module

import pytest
from django.db import connection
from django.db.migrations.loader import MigrationLoader

from metrics import chunks, ingest, reported
from metrics.models import Chunk, Group

AT = datetime(2026, 11, 21, 12, 0, 0, 123456, tzinfo=UTC)


@pytest.mark.django_db
def test_rows_of_reports_become_chunks() -> None:
    before = MigrationLoader(connection).project_state(("metrics", "0002_chunks_of_columns")).apps
    rows = before.get_model("metrics", "Report")
    with connection.schema_editor() as editor:
        editor.create_model(rows)
    many = [
        rows(trial_id=1, run_id=1, group="training", steps_completed=step, values={"loss": step / 2},
             reported_at=AT + timedelta(seconds=step))
        for step in reversed(range(2500))
    ]  # fmt: skip
    odd = {"loss": "NaN", "note": "text", "n": 3}
    others = [
        rows(trial_id=1, run_id=run, group="validation", steps_completed=5, values=values, reported_at=AT,
             archived=archived)
        for run, archived, values in ((1, True, {"loss": 1}), (2, True, {"loss": 2}), (3, False, odd))
    ]  # fmt: skip
    rows.objects.bulk_create([*many, *others])
    import_module("metrics.migrations.0003_reports_become_chunks").convert(before, None)
    training = list(reported.read([1], ["training"]))
    assert [each.values["loss"] for each in training] == [step / 2 for step in range(2500)]
    assert training[7].reported_at == AT + timedelta(seconds=7)
    (validation,) = reported.read([1], ["validation"])
    assert validation.values == odd and type(validation.values["n"]) is int
    assert Chunk.objects.filter(archived=True).count() == 2
    assert max(Chunk.objects.values_list("reports", flat=True)) == chunks.FULL
    assert Group.objects.values_list("name", "reports", "last_step").order_by("name")[0] == (
        "training",
        2500,
        2499,
    )
    stored = ingest.store(1, [ingest.Report(1, "training", 7, AT.timestamp(), {"loss": 0.0, "lr": 1})])
    assert stored.refused == [("training", 7, "loss")]
