"""How many experiments and trials there are, as sums of rows that triggers add, so that nothing large is counted.

The triggers are in the migration 0012. They add rows for each change; `fold` merges the rows that are alike.
"""

from __future__ import annotations

from collections.abc import Iterable

from django.db import connection, models
from django.db.models import QuerySet, Sum

from accounts.models import User
from experiments.models import ExperimentCount, LabelCount, Project


def total(rows: QuerySet[ExperimentCount]) -> int:
    """How many experiments these rows stand for."""
    return int(rows.aggregate(total=Sum("experiments"))["total"] or 0)


def by_state(project: Project) -> dict[str, int]:
    """State -> how many experiments of the project are in it, without the archived ones."""
    rows = ExperimentCount.objects.filter(project=project, archived=False)
    return dict(rows.values_list("state").annotate(Sum("experiments")))


def by_template() -> dict[str, int]:
    """Name of a template -> how many experiments were submitted with it."""
    return dict(ExperimentCount.objects.values_list("template_name").annotate(Sum("experiments")))


def owners() -> QuerySet[User]:
    """Users who have experiments."""
    rows = ExperimentCount.objects.values("owner").annotate(total=Sum("experiments")).filter(total__gt=0)
    return User.objects.filter(pk__in=rows.values("owner"))


def labels(rows: QuerySet[LabelCount]) -> list[str]:
    """Labels that experiments have, most used first."""
    found = rows.values_list("label").annotate(total=Sum("experiments")).filter(total__gt=0)
    return [label for label, _ in sorted(found, key=lambda row: (-row[1], row[0]))]


def fold() -> None:
    """Replace rows that are alike by one with their sums, and remove rows whose sums are 0."""
    _fold(ExperimentCount, ("experiments", "trials"))
    _fold(LabelCount, ("experiments",))


def _fold(model: type[models.Model], numbers: Iterable[str]) -> None:
    """Fold one table in a single statement, so that a reader sees the same sums before and after."""
    columns = [field.attname for field in model._meta.concrete_fields]
    table, alike = model._meta.db_table, ", ".join(each for each in columns if each not in {"id", *numbers})
    sums = [f"sum({number})" for number in numbers]
    is_zero = " AND ".join(f"{each} = 0" for each in sums)
    with connection.cursor() as cursor:
        cursor.execute(
            f"WITH folded AS (DELETE FROM {table} WHERE ({alike}) IN (SELECT {alike} FROM {table} GROUP BY {alike} "
            f"HAVING count(*) > 1 OR {is_zero}) RETURNING *) INSERT INTO {table} ({alike}, {', '.join(numbers)}) "
            f"SELECT {alike}, {', '.join(sums)} FROM folded GROUP BY {alike} HAVING NOT ({is_zero})"
        )
