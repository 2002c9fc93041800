"""Finds experiments by a part of their name, description or labels; the functions are in the migration 0012.

PostgreSQL's own index of trigrams (pg_trgm) is not part of the server that `up` starts.
"""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db.models import Func, Q, QuerySet, TextField, Value
from django.db.models.functions import StrIndex, Upper

from experiments.models import Experiment


class _Words(Func):
    function = "experiments_words"
    output_field = TextField()


class _Trigrams(Func):
    function = "experiments_trigrams"
    output_field = ArrayField(TextField())


def containing(rows: QuerySet[Experiment], text: str, number: int) -> QuerySet[Experiment]:
    """Experiments whose words contain the text in any case, and the one of this number.

    An index leaves those that have all trigrams of the text; shorter texts are looked for row by row.
    """
    words, wanted = _Words("name", "description", "labels"), Upper(Value(text))
    rows = rows.alias(trigrams=_Trigrams(words), place=StrIndex(words, wanted))
    return rows.filter(Q(trigrams__contains=_Trigrams(wanted), place__gt=0) | Q(pk=number))
