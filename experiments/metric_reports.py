"""Metrics that training code reports: a batch is stored at once, and so its validations reach the searcher.

When a trial restarts from an earlier step, the reports beyond that step are set back.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
from django.conf import settings
from django.db import connection

from events.announce import announce
from events.prepared import cursor
from experiments import search
from experiments.models import Experiment, Trial
from experiments.search import Validation
from logs import streams
from metrics import ingest, reported
from metrics.columns import MOST_SECONDS, MOST_STEPS, Columns
from metrics.ingest import Report
from metrics.packing import Floats
from metrics.table import Table
from metrics.values import SUMMARY_GROUPS, group_name, number, storable

VALIDATION = "validation"


def report_of(trial: Trial, data: Mapping[str, Any]) -> Report:
    """A record of the SDK. Raises TypeError, ValueError or OverflowError for one that cannot be read."""
    steps = int(data.get("steps_completed") or 0)
    if not 0 <= steps <= MOST_STEPS:
        raise ValueError(f"steps_completed is {steps}; it must be 0 to {MOST_STEPS}")
    values = data.get("metrics") or {}
    if not isinstance(values, dict):
        raise TypeError(f"metrics is {type(values).__name__}; it must be an object")
    seconds = data.get("t")
    if not isinstance(seconds, (int, float)) or not abs(seconds) < MOST_SECONDS:
        seconds = time.time()
    run_id, group = int(data.get("run_id") or trial.run_id), str(data.get("group") or "training")
    return Report(run_id, group_name(group), steps, seconds, values)


def store(
    experiment: Experiment, trial: Trial, reports: Sequence[Report | Columns | None]
) -> list[Validation | None]:
    """Store a batch of reports, with the trial's last and best values, in one go; the experiment is locked.

    Validations must come as single reports, not as columns.

    The answer says for each report what the searcher is to be told of it, by `tell`: nothing of one that is no
    validation, that lacks the metric, or that stood before. Of a late attempt nothing is stored: its steps were
    archived when the new one began. None among the reports stands for a record of another kind.
    """
    told: list[Validation | None] = [None] * len(reports)
    reports = [report if report and report.run_id >= trial.run_id else None for report in reports]
    counting = [report for report in reports if report]
    if not counting:
        return told
    _refuse_many_names(trial.summary_metrics, counting)
    fresh = ingest.store(trial.pk, counting).fresh
    before = trial.steps_completed
    trial.steps_completed = max(before, *(report.steps_completed for report in counting))
    trial.summary_metrics = summarized(trial.summary_metrics, fresh)
    fields = ["steps_completed", "summary_metrics"]
    if VALIDATION in fresh:
        standing = experiment.best_metric
        new = set(fresh[VALIDATION].steps[_any(fresh[VALIDATION])].tolist())
        for place, report in enumerate(reports):
            if isinstance(report, Report) and report.group == VALIDATION and report.steps_completed in new:
                told[place] = _validated(experiment, trial, report, fresh[VALIDATION])
        told = _once(told)
        if experiment.best_metric != standing:
            best = {"best_metric": experiment.best_metric, "best_trial_id": experiment.best_trial_id}
            Experiment.objects.filter(pk=experiment.pk).update(**best)
        fields += ["latest_validation", "best_validation", "searcher_metric"]
    _save(trial, fields)
    if not experiment.unmanaged:
        search.steps_reported(experiment, before, trial.steps_completed)
    announce(f"experiment:{experiment.pk}", *(["progress"] if VALIDATION in fresh else []))
    return told


def store_alone(trial: Trial, report: Report) -> bool:
    """Store a report by one statement, in a transaction of its own, if it changes only its trial and its group.

    `trial` is from `transitions.read_to_report`, and not locked. False: nothing is done, because the report is of a
    late attempt, a validation, of a step that is not behind all others, or because something else has changed the
    trial since it was read. Then it goes the long way, by `store`.
    """
    return _append(trial, [report], _ALONE, {})


def store_shipped(
    trial: Trial, came: Sequence[Columns], member_id: int, offset: int, new_offset: int
) -> bool:
    """Store columns of one group as `store_alone` does; the statement moves the stream that brought them, too.

    Return False as it does, and if the stream is not at `offset`, the attempt is over, there are more than
    `chunks.FULL` reports, or they would fill too much memory as one table.
    """
    stream = {"member": member_id, "offset": offset, "new_offset": new_offset}
    try:
        return _append(trial, came, _SHIPPED, stream)
    except ValueError:  # by `store` it becomes a sentence in the log
        return False


def _append(
    trial: Trial, reports: Sequence[Report | Columns], statement: str, parameters: Mapping[str, Any]
) -> bool:
    group, before = reports[0].group, trial.steps_completed
    if group == VALIDATION or any(each.run_id < trial.run_id or each.group != group for each in reports):
        return False
    if len(ingest.parts(reports)) > 1:
        return False
    now = max(before, *(each.steps_completed for each in reports))
    _refuse_many_names(trial.summary_metrics, reports)

    def changes(new: Table) -> Mapping[str, Any]:
        summary = json.dumps(summarized(trial.summary_metrics, {group: new}))
        version = trial.version  # type: ignore[attr-defined]
        return {"version": version, "steps": now, "summary": summary, **parameters}

    if not ingest.append_alone(trial.pk, reports, statement, changes):
        return False
    if not trial.experiment.unmanaged:
        search.steps_reported(trial.experiment, before, now)
    announce(f"experiment:{trial.experiment_id}")
    return True


#: Locks as `transitions.lock_to_report` does. A row that another transaction has written since has another `xmin`.
_GUARD = """SELECT trial.id FROM experiments_experiment experiment
  JOIN experiments_trial trial ON trial.experiment_id = experiment.id
WHERE trial.id = %(trial)s AND trial.xmin = %(version)s::xid FOR NO KEY UPDATE OF experiment, trial"""
_CHANGED = """changed AS (
  UPDATE experiments_trial trial SET steps_completed = %(steps)s, summary_metrics = %(summary)s FROM known
  WHERE trial.id = %(trial)s)"""
_ALONE = ingest.appending(_GUARD, _CHANGED)
#: Locks the attempt after the trial, and then the stream (law 4): both may have changed since they were read.
_SHIPPED = ingest.appending(
    f"""WITH reporting AS MATERIALIZED ({_GUARD}), attempt AS MATERIALIZED (
      {streams.ATTEMPT.format(and_more="AND EXISTS (SELECT FROM reporting)")})
    SELECT stream.member_id FROM logs_stream stream WHERE stream.member_id = %(member)s
      AND stream."offset" = %(offset)s AND EXISTS (SELECT FROM attempt) FOR NO KEY UPDATE OF stream""",
    f"""{_CHANGED}, moved AS (
    UPDATE logs_stream stream SET "offset" = %(new_offset)s FROM known WHERE stream.member_id = %(member)s)""",
)


def _save(trial: Trial, names: Sequence[str]) -> None:
    """As `save` does, which costs several times as much."""
    fields: list[Any] = [Trial._meta.get_field(name) for name in names]
    values = [field.get_db_prep_save(getattr(trial, field.attname), connection) for field in fields]
    columns = ", ".join(f"{name} = %s" for name in names)
    with cursor() as writes:
        writes.execute(f"UPDATE experiments_trial SET {columns} WHERE id = %s", [*values, trial.pk])


def _refuse_many_names(summary: Mapping[str, Any], reports: Sequence[Report | Columns]) -> None:
    """Raise ValueError if the trial would have too many metrics in all its groups together.

    Each is a chart, and an entry of the summary, which is written again with each batch. An empty group counts as one.
    """
    sizes = {group: max(1, len(rows or ())) for group, rows in summary.items()}
    before = sum(sizes.values())
    new: dict[str, set[str]] = {}
    for report in reports:
        group = SUMMARY_GROUPS.get(report.group, report.group)
        known = summary.get(group) or {}
        new.setdefault(group, set()).update(name for name in report.names if name not in known)
    for group, names in new.items():
        sizes[group] = max(1, len(summary.get(group) or {}) + len(names))
    most, after = settings.METRIC_NAMES_PER_TRIAL, sum(sizes.values())
    if after > max(most, before):
        raise ValueError(
            f"the trial would have {after:,} metrics; allowed: at most {most:,} in all groups together"
        )


def tell(experiment: Experiment, trial: Trial, validations: Sequence[Validation]) -> None:
    """Hand validations to the searcher, in their order, as long as the experiment is not being ended and has one."""
    if not experiment.unmanaged:
        search.validations_reported(experiment, trial, validations)


def _any(table: Table) -> Any:
    """Which reports have a name at all."""
    has = np.zeros(len(table), np.bool_)
    for column in table.columns.values():
        has |= column.has
    return has


def _once(told: list[Validation | None]) -> list[Validation | None]:
    """Reports of one step that came together tell the searcher of that step once."""
    seen: set[int] = set()
    for place, validation in enumerate(told):
        if validation:
            told[place] = None if validation.steps_completed in seen else validation
            seen.add(validation.steps_completed)
    return told


def _validated(experiment: Experiment, trial: Trial, report: Report, fresh: Table) -> Validation | None:
    """Note a validation as the trial's latest, and as the best of trial and experiment if it is; nothing is written."""
    searcher = experiment.searcher
    values, name, steps = storable(report.values), searcher.get("metric", ""), report.steps_completed
    row = validation_row(steps, values, datetime.fromtimestamp(report.at, UTC), number(values.get(name)))
    metric, column = row["searcher_metric"], fresh.columns.get(name)
    trial.latest_validation = row
    at, time_metric = fresh.row_of(steps), searcher.get("time_metric")
    for needed in (name, time_metric):
        if needed and needed not in values:
            return Validation(math.nan, steps, lacks=needed)
    if column is None or at is None or not column.has[at]:
        return None
    if metric is None:
        return Validation(math.nan, steps, _time(searcher, values))
    trial.searcher_metric = metric
    smaller = experiment.smaller_is_better
    best = (trial.best_validation or {}).get("searcher_metric")
    if best is None or better(metric, best, smaller):
        trial.best_validation = row
    standing = experiment.best_metric
    if standing is None or better(metric, standing, smaller):
        experiment.best_metric, experiment.best_trial_id = metric, trial.pk
    return Validation(metric, steps, _time(searcher, values))


def _time(searcher: Mapping[str, Any], values: Mapping[str, Any]) -> float | None:
    """How far the trial is in the unit of the search; None: its steps say it, NaN: nothing does.

    Trial classes report `epoch` or `epochs`, so that lengths in epochs mean epochs.
    """
    name = search.time_name(searcher)
    if name == "batches" and name not in values:
        return None
    found = number(values.get(name, values.get("epoch") if name == "epochs" else None))
    return math.nan if found is not None and math.isinf(found) else found


def validation_row(
    steps: int, values: Mapping[str, Any], at: datetime, metric: float | None
) -> dict[str, Any]:
    """A validation as trials keep it; the searcher's metric is null where it is missing or not finite."""
    finite = metric is not None and math.isfinite(metric)
    return {
        "steps_completed": steps,
        "metrics": values,
        "reported_at": at.isoformat(),
        "searcher_metric": metric if finite else None,
    }


def validations_of(trial_ids: Collection[int], metric: str) -> dict[tuple[int, int], float]:
    """(trial, step) -> the value of this validation metric; values that are no numbers are left out."""
    found = {}
    for report in reported.read(sorted(trial_ids), [VALIDATION], [metric]) if trial_ids else ():
        value = number(report.values.get(metric))
        if value is not None:
            found[report.trial_id, report.steps_completed] = value
    return found


def better(metric: float, standing: float, smaller_is_better: bool) -> bool:
    return metric < standing if smaller_is_better else metric > standing


def summarized(summary: Mapping[str, Any], fresh: Mapping[str, Table]) -> dict[str, Any]:
    """Running count, sum, min, max, last and its step per metric, under Determined's names of the groups."""
    found = dict(summary)
    for group, table in fresh.items():
        name = SUMMARY_GROUPS.get(group, group)
        rows = found[name] = dict(found.get(name) or {})
        for metric, column in table.columns.items():
            counted = _counted(rows.get(metric) or {}, column.values)
            if counted:
                rows[metric] = counted
            at, last = column.last()
            if at >= 0:
                if metric not in rows:
                    rows[metric] = {"count": 0, "type": "string" if number(last) is None else "number"}
                rows[metric] |= {"last": last, "step": int(table.steps[at])}
    return found


def _counted(old: Mapping[str, Any], values: Floats) -> dict[str, Any]:
    """What is known of a metric with these values, too; nothing if none of them is finite."""
    new = _spread(values)
    if new is None:
        return {}
    count, total, least, most = new
    total, count = total + (number(old.get("sum")) or 0.0), count + old.get("count", 0)
    known = {
        "type": "number",
        "count": count,
        "sum": total,
        "mean": total / count,
        "min": min(old.get("min", least), least),
        "max": max(old.get("max", most), most),
    }
    return known if math.isfinite(total) else storable(known)


def _spread(values: Floats) -> tuple[int, float, float, float] | None:
    """How many of the values are finite, their sum, the least and the largest; None if none is."""
    if len(values) == 1:  # without numpy, which costs a multiple of that: most requests bring one report
        value = float(values[0])
        return (1, value, value, value) if math.isfinite(value) else None
    with np.errstate(over="ignore", invalid="ignore"):
        total = float(values.sum())
        if not math.isfinite(total):
            values = values[np.isfinite(values)]
            total = float(values.sum())
    return (len(values), total, float(values.min()), float(values.max())) if len(values) else None


def set_back(trial_id: int, steps_completed: int) -> None:
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
