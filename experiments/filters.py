"""Which experiments a list or a bulk action means."""

from __future__ import annotations

import math
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, TypeVar

from django.contrib.postgres.fields import ArrayField
from django.db.models import Func, Q, QuerySet, TextField, Value
from django.db.models.functions import StrIndex, Upper

from experiments import counts, phases
from experiments.models import Experiment, ExperimentCount, Trial
from trainmaster import yamltext

Rows = TypeVar("Rows", Experiment, ExperimentCount)
#: characters that the index of words looks up at once
_TRIGRAM = 3
#: `lr=0.01`, `optimizer.lr=1e-3`, `model=resnet`
_HPARAM = re.compile(r"\b([A-Za-z_][\w.-]{0,99})=(\S+)")
_PHASES = {phases.QUEUED, phases.STARTING, phases.RUNNING}


@dataclass(frozen=True)
class ExperimentFilters:
    """What is None or empty means all experiments."""

    archived: bool | None = None
    #: states; also phases, for rows that have them (experiments.phases)
    states: Collection[str] = ()
    users: Collection[str] = ()
    user_ids: Collection[int] = ()
    project_id: int | None = None
    workspace_id: int | None = None
    pool: str = ""
    labels: Collection[str] = ()
    name: str = ""
    description: str = ""
    #: a part of name, description or labels, or the experiment's number; `lr=0.01`: a hyperparameter of a trial
    text: str = ""
    number: int = 0
    ids: Collection[int] = ()
    excluded_ids: Collection[int] = ()

    @property
    def are_summed(self) -> bool:
        """Whether sums are kept for all that is asked (experiments.counts)."""
        others = (self.pool, self.labels, self.name, self.description, self.text, self.ids, self.excluded_ids)
        return not any(others) and _PHASES.isdisjoint(self.states)

    def total(self) -> int | None:
        """How many experiments fit, from the sums that are kept; None: count them."""
        return counts.total(self._summed(ExperimentCount.objects.all())) if self.are_summed else None

    def of(self, rows: QuerySet[Experiment]) -> QuerySet[Experiment]:
        """The rows that fit all filters."""
        if self.name:
            rows = rows.filter(name__icontains=self.name)
        if self.description:
            rows = rows.filter(description__icontains=self.description)
        for label in self.labels:
            rows = rows.filter(labels__contains=[label])
        if self.pool:
            rows = rows.filter(job__pool__name=self.pool)
        if self.ids:
            rows = rows.filter(pk__in=self.ids)
        if self.text:
            rows = containing(rows, self.text, self.number)
        return self._summed(rows).exclude(pk__in=self.excluded_ids)

    def _summed(self, rows: QuerySet[Rows]) -> QuerySet[Rows]:
        if self.archived is not None:
            rows = rows.filter(archived=self.archived)
        if self.states:
            rows = rows.filter(phases.where(*self.states))
        if self.users:
            rows = rows.filter(owner__username__in=self.users)
        if self.user_ids:
            rows = rows.filter(owner_id__in=self.user_ids)
        if self.project_id is not None:
            rows = rows.filter(project_id=self.project_id)
        if self.workspace_id is not None:
            rows = rows.filter(project__workspace_id=self.workspace_id)
        return rows


class _Words(Func):
    function = "experiments_words"
    output_field = TextField()


class _Trigrams(Func):
    function = "experiments_trigrams"
    output_field = ArrayField(TextField())


def containing(rows: QuerySet[Experiment], text: str, number: int) -> QuerySet[Experiment]:
    """Experiments whose words contain the text in any case, and the experiment with this number.

    Parts such as `lr=0.01` are hyperparameters: also those that have them and whose words contain the rest.

    It takes two SQL functions of the migration 0012. The PostgreSQL that `up` starts has no pg_trgm, so the trigrams
    are an array with a GIN index, which finds experiments that have all trigrams of the text. Texts of one or two
    characters are compared with each row. The words are the name, the labels and the description, 10,000 characters
    together: what is longer would make every change of such an experiment slow.
    """
    given = _HPARAM.findall(text)
    if not given:
        return _with_words(rows, text, number)
    rest = " ".join(_HPARAM.sub(" ", text).split())
    having = Experiment.objects.filter(_has_hparams(given))
    # a union of ids, each by its own index: the two conditions in one OR would be asked of every experiment
    found = _with_words(Experiment.objects.all(), text, number).order_by().values("pk")
    return rows.filter(pk__in=found.union(_with_words(having, rest, 0).order_by().values("pk")))


def _with_words(rows: QuerySet[Experiment], text: str, number: int) -> QuerySet[Experiment]:
    if not text:
        return rows
    words, wanted = _Words("name", "description", "labels"), Upper(Value(text))
    matches = Q(place__gt=0)
    if len(text) >= _TRIGRAM:
        matches &= Q(trigrams__contains=_Trigrams(wanted))
    return rows.alias(trigrams=_Trigrams(words), place=StrIndex(words, wanted)).filter(matches | Q(pk=number))


def _has_hparams(given: Collection[tuple[str, str]]) -> Q:
    """Experiments with a trial of these hyperparameters. `a.b=1` is b in the map a; values are read as in a config."""
    trials = Trial.objects.order_by()
    for name, text in given:
        wanted: Any = _value(text)
        for key in reversed(name.split(".")):
            wanted = {key: wanted}
        trials = trials.filter(hparams__contains=wanted)
    return Q(pk__in=trials.values("experiment_id"))


def _value(text: str) -> Any:
    try:
        value = yamltext.load(text)
    except yamltext.YamlError:
        return text
    return text if isinstance(value, float) and not math.isfinite(value) else value
