from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import groupby
from operator import itemgetter
from typing import Any

from django.db import migrations

from metrics import chunks
from metrics.table import table_of

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIELDS = ("trial_id", "group", "archived", "run_id", "steps_completed", "reported_at", "values")


def convert(apps: Any, editor: Any) -> None:
    """Rows of one group and, of those that were set aside, of one run: a series each, cut into chunks."""
    Report, Group = apps.get_model("metrics", "Report"), apps.get_model("metrics", "Group")
    ordered = Report.objects.order_by("trial_id", "group", "archived", "run_id", "steps_completed", "id")
    live = Report.objects.filter(archived=False).order_by("trial_id", "group", "steps_completed")
    aside = ordered.filter(archived=True)
    for (trial_id, name), rows in _series(live, 2):
        group = Group.objects.create(
            trial_id=trial_id, name=name, reports=len(rows), last_step=rows[-1]["steps_completed"]
        )
        _write(group.pk, rows, archived=False)
    for (trial_id, name, _, _), rows in _series(aside, 4):
        group, _ = Group.objects.get_or_create(trial_id=trial_id, name=name)
        latest = {row["steps_completed"]: row for row in rows}
        _write(group.pk, [latest[step] for step in sorted(latest)], archived=True)


def _series(reports: Any, keys: int) -> Iterator[tuple[Any, list[dict[str, Any]]]]:
    for key, rows in groupby(
        reports.values(*_FIELDS).iterator(chunk_size=5000), itemgetter(*_FIELDS[:keys])
    ):
        yield key, list(rows)


def _write(group_id: int, rows: list[dict[str, Any]], *, archived: bool) -> None:
    table = table_of(
        [row["steps_completed"] for row in rows],
        [(row["reported_at"] - _EPOCH) // timedelta(microseconds=1) for row in rows],
        [row["run_id"] for row in rows],
        [row["values"] for row in rows],
    )
    chunks.insert(group_id, chunks.pieces(table, at_the_tail=True), archived=archived)


class Migration(migrations.Migration):

    dependencies = [
        ("metrics", "0002_chunks_of_columns"),
    ]

    operations = [
        migrations.RunPython(convert, elidable=True),
        # the foreign keys of the new rows are checked now: no table can be dropped before
        migrations.RunSQL("SET CONSTRAINTS ALL IMMEDIATE", migrations.RunSQL.noop),
        migrations.DeleteModel(name="Report"),
    ]
