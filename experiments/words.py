"""Finds experiments by a part of their name, description or labels, with two SQL functions of the migration 0012.

The PostgreSQL that `up` starts has no pg_trgm, so the trigrams are an array with a GIN index.
"""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db.models import Func, Q, QuerySet, TextField, Value
from django.db.models.functions import StrIndex, Upper

from experiments.models import Experiment

#: characters that the index looks up at once
TRIGRAM = 3


class _Words(Func):
    function = "experiments_words"
    output_field = TextField()


class _Trigrams(Func):
    function = "experiments_trigrams"
    output_field = ArrayField(TextField())


def containing(rows: QuerySet[Experiment], text: str, number: int) -> QuerySet[Experiment]:
    """Experiments whose words contain the text in any case, and the experiment with this number.

    The index finds experiments that have all trigrams of the text. Texts of one or two characters are compared with
    each row. The words are the name, the labels and the description, 10,000 characters together: what is longer would
    make every change of such an experiment slow.
    """
    words, wanted = _Words("name", "description", "labels"), Upper(Value(text))
    matches = Q(place__gt=0)
    if len(text) >= TRIGRAM:
        matches &= Q(trigrams__contains=_Trigrams(wanted))
    return rows.alias(trigrams=_Trigrams(words), place=StrIndex(words, wanted)).filter(matches | Q(pk=number))
