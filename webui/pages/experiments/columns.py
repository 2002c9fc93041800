"""Columns of the list of experiments: what each says, by what it is sorted, and which ones a user keeps."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from django.db.models import F, OuterRef, QuerySet, Subquery
from django.http import QueryDict
from django.utils.html import format_html
from django.utils.safestring import SafeString

from accounts.models import User
from experiments import phases
from experiments.models import Experiment, Project, Trial
from metrics.comparisons import Metric
from metrics.values import text
from shown import experiments, words
from shown.experiments import ExperimentRow
from shown.search.tried import summarized
from webui.models import UserSetting
from webui.pages.table_columns import Column
from webui.pages.trials.table import (
    LASTED,
    METRIC,
    ended,
    lasted,
    latest,
    latest_of,
    log_labels,
    searched,
    stored,
)
from webui.templatetags.console import ago, percent, rounded, state_lamp

#: what stands there unless somebody chose otherwise; the project only where there are several
USUAL = ("state", "progress", "trials", "best", "project", "pool", "owner", "submitted", "ended")
_KEPT: dict[str, Any] = {"storage_path": "experiments", "key": "columns"}


def _columns() -> Sequence[Column[ExperimentRow]]:
    return (
        Column("state", "State", _state, phases.in_words(Experiment, words.TEXTS),
               css=lambda row: "full" if row.log_labels else "nowrap"),
        Column("progress", "Progress", lambda row: percent(row.experiment.progress), F("progress"), is_downwards=True),
        Column("trials", "Trials", lambda row: str(row.numbers.num_trials), F("num_trials"), True, True),
        Column("best", "Best", _best, F("best_metric"), True, css="mono"),
        Column("latest", "Latest", lambda row: latest(row.best) if row.best else "",
               _of_the_best(searched("latest_validation")), True, css="mono"),
        Column("project", "Project", _project, F("project__name"), css="full"),
        Column("pool", "Pool", _managed(lambda each: each.job.pool.name), F("job__pool__name")),
        Column("owner", "Owner", lambda row: row.experiment.owner.username, F("owner__username"), css=""),
        Column("submitted", "Submitted", lambda row: ago(row.experiment.started_at), F("pk"), is_downwards=True),
        Column("ended", "Ended", lambda row: ended(row.experiment), F("ended_at"), is_downwards=True),
        Column("duration", "Total time", lambda row: lasted(row.experiment), LASTED, True, True),
        Column("description", "Description", lambda row: row.experiment.description, F("description"),
               css="full words"),
        Column("searcher", "Searcher", _searched("name"), F("config__searcher__name")),
        Column("metric", "Metric", _searched("metric"), F("config__searcher__metric"), css="mono"),
        Column("slots", "Slots per trial", _managed(_slots), F("config__resources__slots_per_trial"), True, True),
        Column("priority", "Priority", _managed(lambda each: str(each.job.priority)), F("job__priority"), True),
        Column("parent", "Forked from", _parent, F("parent"), True, True),
        Column("template", "Template", lambda row: row.experiment.template_name, F("template_name"), css="full"),
        Column("checkpoints", "Checkpoints", lambda row: str(row.numbers.checkpoint_count or ""),
               F("checkpoint_count"), True, True),
        Column("size", "Stored", lambda row: stored(row.numbers.checkpoint_bytes), F("checkpoint_bytes"), True, True),
        Column("external", "External ID", lambda row: row.experiment.external_id or "", F("external_id"),
               css="mono full"),
    )  # fmt: skip


def column(key: str) -> Column[ExperimentRow] | None:
    """Return the column of this key. Any metric has one (METRIC before its name): the best trial's latest value."""
    metric = Metric.parse(key.removeprefix(METRIC)) if key.startswith(METRIC) else None
    if metric is None:
        return COLUMNS.get(key)
    return latest_of(metric, lambda row: row.best, _of_the_best(summarized(metric, "last")))


def speak_of_the_best(keys: Sequence[str]) -> bool:
    """Does any of these columns say something of an experiment's best trial?"""
    return any(key == "latest" or key.startswith(METRIC) for key in keys)


def _of_the_best(value: Any) -> Subquery:
    """An expression over trials for the best one of each experiment, which is found by its number."""
    return Subquery(Trial.objects.filter(pk=OuterRef("best_trial_id")).order_by().values(of_best=value))


def annotated(rows: QuerySet[Experiment], keys: Sequence[str]) -> QuerySet[Experiment]:
    """The rows with the numbers that these columns need."""
    names = {"trials": "num_trials", "checkpoints": "checkpoint_count", "size": "checkpoint_bytes"}
    numbers = experiments.numbers()
    return rows.annotate(**{name: numbers[name] for key, name in names.items() if key in keys})


def chosen(user: User, query: QueryDict) -> list[str]:
    """Keys in the order of the table: of the address (`c`, repeats), else those that the user keeps, else USUAL."""
    wanted = _known(query.getlist("c")) or _kept(user)
    if not wanted:
        wanted = list(USUAL)
        if not Project.objects.filter(immutable=False).exists():
            wanted.remove("project")
    return wanted


def _known(keys: Iterable[str]) -> list[str]:
    """Those that are columns, once each: first those of any experiment in their order, then metrics as they stand."""
    wanted = dict.fromkeys(keys)
    return [
        *(key for key in COLUMNS if key in wanted),
        *(key for key in wanted if key not in COLUMNS and column(key)),
    ]


def keep(user: User, keys: Sequence[str]) -> None:
    """These are what the user sees from now on; none: the usual ones."""
    if known := _known(keys):
        UserSetting.objects.update_or_create(user=user, **_KEPT, defaults={"value": json.dumps(known)})
    else:
        UserSetting.objects.filter(user=user, **_KEPT).delete()


def _kept(user: User) -> list[str]:
    row = UserSetting.objects.filter(user=user, **_KEPT).first()
    return _known(map(text, row.names)) if row else []


def _state(row: ExperimentRow) -> SafeString:
    return format_html(
        "<span>{}{}</span>", state_lamp(row.phase), log_labels("A line of a log", row.log_labels)
    )


def _best(row: ExperimentRow) -> str:
    value = row.experiment.best_metric
    return "" if value is None else rounded(value)


def _project(row: ExperimentRow) -> SafeString:
    project = row.experiment.project
    if project.immutable:
        return format_html('<a href="/projects/{}">{}</a>', project.pk, project.name)
    return format_html(
        '<span><a class="hint" href="/workspaces/{}">{}</a> / <a href="/projects/{}">{}</a></span>',
        project.workspace_id,
        project.workspace.name,
        project.pk,
        project.name,
    )


def _managed(said: Callable[[Any], str]) -> Callable[[ExperimentRow], str]:
    """What only those of the queue have."""
    return lambda row: "" if row.experiment.unmanaged else said(row.experiment)


def _slots(experiment: Any) -> str:
    return str((experiment.config.get("resources") or {}).get("slots_per_trial", ""))


def _searched(field: str) -> Callable[[ExperimentRow], str]:
    return lambda row: str(row.experiment.searcher.get(field) or "")


def _parent(row: ExperimentRow) -> str | SafeString:
    parent = row.experiment.parent_id
    return format_html('<a href="/experiments/{}">{}</a>', parent, parent) if parent else ""


COLUMNS = {column.key: column for column in _columns()}
