"""Experiments as they are shown: the query with all their numbers, the config in force, and why they wait."""

from __future__ import annotations

from typing import Any

from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import Count, F, IntegerField, OuterRef, QuerySet, Subquery
from django.db.models.functions import Coalesce

from dispatch.passes import last_plan
from experiments import phases
from experiments.config import shown
from experiments.models import Experiment, Trial
from shown import checkpoints


def with_numbers() -> QuerySet[Experiment]:
    """Experiments with num_trials, checkpoint_count, checkpoint_bytes and their phase beside their columns."""
    trials = Trial.objects.filter(experiment=OuterRef("pk"))
    rows = Experiment.objects.select_related("owner", "job__pool", "project__workspace")
    return phases.annotated(rows).annotate(
        log_labels=ArraySubquery(trials.exclude(log_labels=[]).order_by().values("log_labels").distinct()),
        username=F("owner__username"),
        pool_name=F("job__pool__name"),
        **numbers(),
    )


def numbers() -> dict[str, Coalesce]:
    """Annotations num_trials, checkpoint_count and checkpoint_bytes."""
    trials = Trial.objects.filter(experiment=OuterRef("pk")).order_by().values("experiment")
    counted = Subquery(trials.annotate(n=Count("pk")).values("n"), output_field=IntegerField())
    return {"num_trials": Coalesce(counted, 0), **checkpoints.stored_numbers("trial__experiment")}


def effective_config(experiment: Experiment) -> dict[str, Any]:
    """The config in force: what was submitted, with what queue edits have changed since. Secrets are masked."""
    config: dict[str, Any] = experiment.config
    if experiment.unmanaged:
        return shown(config)
    job = experiment.job
    edited = {
        "priority": job.priority,
        "weight": job.weight,
        "max_slots": job.max_slots,
        "resource_pool": job.pool.name,
    }
    return shown({**config, "resources": {**(config.get("resources") or {}), **edited}})


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


def log_labels(found: list[Experiment]) -> dict[int, list[str]]:
    """Experiment id -> names of the log policies that lines of its trials have matched."""
    rows = Trial.objects.filter(experiment__in=found).exclude(log_labels=[])
    labels: dict[int, list[str]] = {}
    for experiment, names in rows.values_list("experiment_id", "log_labels"):
        labels[experiment] = sorted({*labels.get(experiment, []), *names})
    return labels
