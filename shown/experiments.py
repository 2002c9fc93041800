"""Experiments as they are shown: the query with all their numbers, their configs, and why they wait."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import Count, F, IntegerField, OuterRef, QuerySet, Subquery
from django.db.models.functions import Coalesce

from dispatch.passes import last_plan
from events.prepared import Prepared
from experiments import phases
from experiments.config import masked, schema, shown
from experiments.config.reading import SUBJECT
from experiments.models import Checkpoint, Experiment, Trial
from experiments.states import CheckpointState, ExperimentState
from jobs import queue_history
from jobs.queue_history import Changed
from shown import checkpoints
from submissions import code_changes
from submissions.code_changes import Change
from submissions.config.origins import OriginLine, explained
from submissions.config.problems import ConfigError
from submissions.config.reading import read_yaml
from trainmaster import yamltext
from trainmaster.quantities import counted

#: what edits of the queue call otherwise than the config
_FIELDS = {"pool": "resource_pool"}


@dataclass(frozen=True)
class ExperimentRow:
    """`why`: why it waits; `log_labels`: log policies that lines have matched; `numbers`: it with its annotations.

    `best`: its best trial, where that is asked for.
    """

    experiment: Experiment
    phase: str
    why: str
    log_labels: list[str]
    numbers: Any
    best: Trial | None = None


def with_numbers() -> QuerySet[Experiment]:
    """Experiments with num_trials, checkpoint_count, checkpoint_bytes and their phase beside their columns."""
    trials = Trial.objects.filter(experiment=OuterRef("pk"))
    rows = Experiment.objects.select_related("owner", "job__pool", "project__workspace")
    return (
        phases.annotated(rows)
        .alias(state_in_words=phases.in_words(Experiment))
        .annotate(
            log_labels=ArraySubquery(
                trials.exclude(log_labels=[]).order_by().values("log_labels").distinct()
            ),
            username=F("owner__username"),
            pool_name=F("job__pool__name"),
            **numbers(),
        )
    )


def whole() -> QuerySet[Experiment]:
    """As `with_numbers`, with `trial_ids` too, the oldest first."""
    ids = Trial.objects.filter(experiment=OuterRef("pk")).order_by("pk").values("pk")
    return with_numbers().annotate(trial_ids=ArraySubquery(ids))


#: the experiment with this id, whole
one = Prepared(whole)


def numbers() -> dict[str, Coalesce]:
    """Annotations num_trials, checkpoint_count and checkpoint_bytes."""
    trials = Trial.objects.filter(experiment=OuterRef("pk")).order_by().values("experiment")
    counted = Subquery(trials.annotate(n=Count("pk")).values("n"), output_field=IntegerField())
    return {"num_trials": Coalesce(counted, 0), **checkpoints.stored_numbers("trial__experiment")}


def effective_config(experiment: Experiment) -> dict[str, Any]:
    """The config in force: what was submitted, with what queue edits have changed since. Secrets are masked."""
    config: dict[str, Any] = experiment.config
    if not experiment.unmanaged:
        job = experiment.job
        edited = {
            "priority": job.priority,
            "weight": job.weight,
            "max_slots": job.max_slots,
            "resource_pool": job.pool.name,
        }
        config = {**config, "resources": {**(config.get("resources") or {}), **edited}}
    text = json.dumps(config)
    found: dict[str, Any] = json.loads(
        _shown(text) if len(text) <= _CACHED_CHARACTERS else _shown.__wrapped__(text)
    )
    return found


#: 256 configs of this length and what is shown of each are at most 16 MB.
_CACHED_CHARACTERS = 32_768


@lru_cache(maxsize=256)  # programs poll experiments, and to mask a config takes ten times as long as its JSON
def _shown(config: str) -> str:
    return json.dumps(shown(json.loads(config)))


def why_queued(found: list[Experiment], phase_of: dict[int, str]) -> dict[int, str]:
    """Experiment id -> why it waits, for those that are queued: what the last pass said of their first trial."""
    waiting = [each for each in found if phase_of[each.pk] == phases.QUEUED]
    waits = {pool.pk: last_plan.of(pool).waits for pool in {each.job.pool for each in waiting}}
    queued = {each.pk: waits[each.job.pool_id] for each in waiting}
    tasks = (
        Trial.objects.filter(experiment__in=queued).order_by("-pk").values_list("experiment_id", "task_id")
    )
    return {
        experiment: str(queued[experiment][task]["sentence"])
        for experiment, task in tasks
        if task in queued[experiment]
    }


def why_completing(found: Iterable[Experiment]) -> dict[int, str]:
    """Experiment id -> what keeps it from being completed though its runs have ended: its uploads."""
    completing = [each.pk for each in found if each.state == ExperimentState.STOPPING_COMPLETED]
    partial = Checkpoint.objects.filter(trial__experiment__in=completing, state=CheckpointState.PARTIAL)
    counts = Counter(partial.values_list("trial__experiment_id", flat=True) if completing else ())
    return {
        pk: f"{counted(count, 'checkpoint')} {'is' if count == 1 else 'are'} still being uploaded."
        for pk, count in counts.items()
    }


def rows_of(
    found: list[Experiment], numbered: QuerySet[Experiment], *, with_best: bool
) -> list[ExperimentRow]:
    """The experiments of a page; `numbered`: all experiments with the annotations that are shown."""
    standing = phases.of_experiments(found)
    # of the page alone: beside the rows, they would be counted for all pages before it too
    counted = numbered.only("pk").in_bulk(list(standing))
    why, labels = why_queued(found, standing) | why_completing(found), log_labels(found)
    best: dict[int | None, Trial] = {}
    if with_best:
        trials = Trial.objects.only("latest_validation", "summary_metrics")
        best = {**trials.in_bulk([each.best_trial_id for each in found if each.best_trial_id])}
    return [
        ExperimentRow(
            each,
            standing[each.pk],
            why.get(each.pk, ""),
            labels.get(each.pk, []),
            counted[each.pk],
            best.get(each.best_trial_id),
        )
        for each in found
        if each.pk in counted
    ]


def log_labels(found: list[Experiment]) -> dict[int, list[str]]:
    """Experiment id -> names of the log policies that lines of its trials have matched."""
    rows = Trial.objects.filter(experiment__in=found).exclude(log_labels=[])
    labels: dict[int, list[str]] = {}
    for experiment, names in rows.values_list("experiment_id", "log_labels"):
        labels[experiment] = sorted({*labels.get(experiment, []), *names})
    return labels


def config_in_force(found: Experiment) -> tuple[list[OriginLine], list[tuple[str, Changed]]]:
    """The lines of the config in force, each with its origin, and the fields that edits of the queue have changed."""
    try:
        given = masked(read_yaml(found.original_config, SUBJECT))
    except ConfigError:
        given = {}  # an unmanaged experiment may have none
    changed = [] if found.unmanaged else queue_history.changed_of(found.job)
    fields = [(_FIELDS.get(each.name, each.name), each) for each in changed]
    submitted = {"resources": {name: each.was for name, each in fields}}
    lines = explained(
        schema.of_config, effective_config(found), given, masked(found.template_config), submitted
    )
    return lines, fields


def config_change(old: Experiment, new: Experiment) -> Change | None:
    """What differs between two configs as they were submitted; None where nothing does."""
    texts = [_canonical(each.original_config) for each in (old, new)]
    return code_changes.of_file("config", *texts) if texts[0] != texts[1] else None


def _canonical(text: str) -> bytes:
    """A config in one form, so that what differs is not how it is written; its secrets masked."""
    try:
        return yamltext.dump(dict(sorted(masked(read_yaml(text, SUBJECT)).items()))).encode()
    except ConfigError:
        return b""
