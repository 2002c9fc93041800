"""What training code reports, applied to its trial: metrics, progress, status, checkpoints, early exits."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

from django.utils import timezone

from events.announce import announce
from experiments import checkpoints, search
from experiments.models import Experiment, Trial
from experiments.states import GOING_ON
from jobs import transitions as jobs
from jobs.models import Member
from metrics import ingest
from metrics.values import number, storable

VALIDATION = "validation"


def apply(experiment: Experiment, trial: Trial, member: Member, data: dict[str, Any]) -> None:
    """One record of the SDK (docs/protocol.md). The experiment is locked; unknown types are left alone."""
    match data.get("type"):
        case "metrics":
            metrics_reported(experiment, trial, data)
        case "progress":
            progress_reported(trial, data.get("progress"))
        case "status":
            Trial.objects.filter(pk=trial.pk).update(runner_state=str(data.get("text", ""))[:255])
        case "checkpoint":
            checkpoints.reported(trial, member.allocation_id, member.run_key, data)
        case "early_exit":
            trial.early_exit = trial.early_exit or str(data.get("reason", ""))[:32]
            Trial.objects.filter(pk=trial.pk).update(early_exit=trial.early_exit)
        case "preempt_asked":
            jobs.asked_to_preempt(member.allocation_id)
        case "preempt_ack":
            jobs.preempt_acknowledged(member.allocation_id)
        case "metadata":
            Trial.objects.filter(pk=trial.pk).update(metadata=data.get("metadata") or {})
    announce(f"experiment:{experiment.pk}")


def progress_reported(trial: Trial, progress: object) -> None:
    if isinstance(progress, (int, float)) and 0 <= progress <= 1:
        Trial.objects.filter(pk=trial.pk).update(progress=float(progress))


def metrics_reported(experiment: Experiment, trial: Trial, data: dict[str, Any]) -> None:
    """Store a report, keep the trial's last and best values, and hand a validation to the searcher."""
    group = str(data.get("group") or "training")[:128]
    steps = int(data.get("steps_completed") or 0)
    values = storable(data.get("metrics") or {})  # NaN by name: PostgreSQL's JSON has none
    run_id = int(data.get("run_id") or trial.run_id)
    if run_id < trial.run_id:
        return  # a late attempt: its steps were archived when the new one began
    seconds = data.get("t")
    at = datetime.fromtimestamp(seconds, UTC) if isinstance(seconds, (int, float)) else timezone.now()
    ingest.report(trial.pk, run_id, group, steps, values, at)
    trial.steps_completed = max(trial.steps_completed, steps)
    trial.summary_metrics = _summarised(trial.summary_metrics, group, values)
    fields: dict[str, Any] = {
        "steps_completed": trial.steps_completed,
        "summary_metrics": trial.summary_metrics,
    }
    if group == VALIDATION:
        fields |= _validation(experiment, trial, steps, values, at)
    Trial.objects.filter(pk=trial.pk).update(**fields)
    metric = fields.get("searcher_metric")
    if metric is not None and experiment.state in GOING_ON:
        time_metric = (experiment.config.get("searcher") or {}).get("time_metric")
        time = number(values.get(time_metric)) if time_metric else None
        search.validation_reported(experiment, trial, metric, steps, time)


def _validation(
    experiment: Experiment, trial: Trial, steps: int, values: dict[str, Any], at: datetime
) -> dict[str, Any]:
    searcher = experiment.config.get("searcher") or {}
    metric = number(values.get(searcher.get("metric", "")))
    row = {
        "steps_completed": steps,
        "metrics": values,
        "reported_at": at.isoformat(),
        "searcher_metric": metric if metric is None or math.isfinite(metric) else None,
    }
    fields: dict[str, Any] = {"latest_validation": row}
    if metric is None or not math.isfinite(metric):
        return fields
    fields["searcher_metric"] = metric
    smaller = searcher.get("smaller_is_better", True)
    best = (trial.best_validation or {}).get("searcher_metric")
    if best is None or (metric < best if smaller else metric > best):
        fields["best_validation"] = trial.best_validation = row
    standing = experiment.best_metric
    if standing is None or (metric < standing if smaller else metric > standing):
        experiment.best_metric, experiment.best_trial_id = metric, trial.pk
        Experiment.objects.filter(pk=experiment.pk).update(best_metric=metric, best_trial_id=trial.pk)
    return fields


def _summarised(summary: dict[str, Any], group: str, values: dict[str, Any]) -> dict[str, Any]:
    """Running count, sum, min, max, last per metric, under Determined's names of the groups."""
    name = {"training": "avg_metrics", VALIDATION: "validation_metrics"}.get(group, group)
    rows = dict(summary.get(name) or {})
    for metric, value in values.items():
        x = number(value)
        if x is None or not math.isfinite(x):
            rows.setdefault(metric, {"count": 0, "type": "string" if x is None else "number"})
            rows[metric]["last"] = value
            continue
        old = rows.get(metric) or {}
        count, total = old.get("count", 0) + 1, old.get("sum", 0.0) + x
        rows[metric] = {
            "type": "number",
            "count": count,
            "sum": total,
            "mean": total / count,
            "min": min(old.get("min", x), x),
            "max": max(old.get("max", x), x),
            "last": x,
        }
    return {**summary, name: rows}
