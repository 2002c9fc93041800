"""What the row of a trial says of its reports, read anew once those beyond its checkpoint are set aside."""

from __future__ import annotations

from typing import Any

from experiments.metric_reports import VALIDATION, better, summarized, validation_row
from experiments.models import Trial
from metrics import ingest, reported
from metrics.values import number


def to_checkpoint(trial_id: int, steps_completed: int) -> None:
    """Set reports beyond this step aside; a superseded attempt is then neither the latest, nor the best, nor counted.

    What the experiment has as its best stays: the searcher was told of it, and decided by it.
    """
    if not ingest.archive_after(trial_id, steps_completed):
        return
    trial = Trial.objects.select_related("experiment").get(pk=trial_id)
    metric, smaller = trial.experiment.searcher_metric, trial.experiment.smaller_is_better
    summary: dict[str, Any] = {}
    for group, table in reported.tables(trial_id):
        summary = summarized(summary, {group: table})
    latest = best = last_metric = None
    for report in reported.read([trial_id], [VALIDATION]):
        latest = validation_row(
            report.steps_completed, report.values, report.reported_at, number(report.values.get(metric))
        )
        found = latest["searcher_metric"]
        if found is not None:
            last_metric = found
            if best is None or better(found, best["searcher_metric"], smaller):
                best = latest
    Trial.objects.filter(pk=trial_id).update(
        summary_metrics=summary, latest_validation=latest, best_validation=best, searcher_metric=last_metric
    )
