"""The trials of an experiment as a table that its address filters, sorts, and cuts into pages; its columns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.core.paginator import Page, Paginator
from django.db.models import F, FloatField
from django.db.models.fields.json import KT, KeyTransform
from django.db.models.functions import Cast, Coalesce, Now
from django.http import QueryDict
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from experiments import phases
from experiments.models import Experiment, Trial
from metrics.comparisons import Metric
from metrics.hparam_axes import Axis, Kind
from metrics.values import SUMMARY_GROUPS, number
from shown import runs, words
from shown import trials as shown_trials
from shown.search.tried import summarized
from shown.trials import TrialRow
from webui.pages.table_columns import Cell, Column, Head, R, Sort
from webui.templatetags.console import ago, duration, percent, rounded, size, state_lamp

PER_PAGE = 100
TRIAL = "trial"
#: what an address without columns shows
USUAL = ("state", "hparams", "progress", "steps", "best", "latest", "checkpoints", "restarts", "created")
HPARAM, METRIC = "hp.", "m."
_NAMES_SHOWN = 6
LASTED = Coalesce(F("ended_at"), Now()) - F("started_at")


@dataclass(frozen=True)
class TrialTable:
    """`total`: the trials of the experiment, also those that a filter leaves out."""

    rows: list[tuple[TrialRow, list[Cell]]]
    heads: list[Head]
    page: Page[Any]
    total: int

    @property
    def is_comparable(self) -> bool:
        return self.total > 1


def table(
    experiment: Experiment,
    query: QueryDict,
    columns: dict[str, Column[TrialRow]] | None = None,
    kept: Collection[int] | None = None,
) -> TrialTable:
    """`sort` (a column's key, `-` before it for downwards), `page`, `c` (columns), `state` (these two repeat).

    What makes no sense is left out. `columns`: those there are, unless the usual; `kept`: these trials alone.
    """
    columns = columns or of(experiment, [], [])
    chosen = [columns[key] for key in query.getlist("c") if key in columns and key != TRIAL]
    shown = [columns[TRIAL], *(chosen or [columns[key] for key in USUAL])]
    sort = Sort.read(query.get("sort", ""), columns.get, TRIAL)
    # the experiment is at hand: with each row would come the whole state of its search
    rows = shown_trials.with_numbers().filter(experiment=experiment).select_related(None)
    rows = rows.select_related("task", "latest_checkpoint")
    if any(column.key == "duration" for column in shown):
        rows = rows.annotate(ran=runs.OF_TRIAL)
    rows = shown_trials.in_states(rows, [state for state in query.getlist("state") if state])
    ordered = shown_trials.in_order(rows, sort.expression, kept)
    page: Page[Any] = Paginator(ordered, PER_PAGE).get_page(query.get("page"))
    total = experiment.trials.count() if query.get("state") or kept is not None else page.paginator.count
    trials = shown_trials.read_whole(rows, page)
    found = shown_trials.rows_of(
        experiment, trials, total, with_hosts=any(column.key == "host" for column in shown)
    )
    cells = [(row, [column.cell(row) for column in shown]) for row in found]
    return TrialTable(cells, [sort.head(column) for column in shown], page, total)


def of(
    experiment: Experiment, axes: Sequence[Axis], metrics: Iterable[Metric]
) -> dict[str, Column[TrialRow]]:
    """All columns there are, by key: of any trial, of hyperparameters that vary, of metrics (the latest value)."""
    columns = [*_of_any(not experiment.smaller_is_better), *map(_hparam, axes), *map(_metric, metrics)]
    return {column.key: column for column in columns}


def _of_any(larger: bool) -> list[Column[TrialRow]]:
    return [
        Column(TRIAL, "Trial", _name, F("pk"), css="wide nowrap", label=""),
        Column("state", "State", _state, phases.in_words(Trial, words.TEXTS), css="full"),
        Column("hparams", "Hyperparameters", _hparams, css="mono full"),
        Column("progress", "Progress", lambda row: percent(row.trial.progress), F("progress"), True, True),
        Column("steps", "Steps", lambda row: str(row.trial.steps_completed), F("steps_completed"), True, True, "mono"),
        Column("best", "Best", _best, searched("best_validation"), True, larger, "mono nowrap"),
        Column("latest", "Latest", lambda row: latest(row.trial), searched("latest_validation"), True, larger,
               "mono nowrap"),
        Column("checkpoints", "Checkpoints", _checkpoints, F("checkpoint_count"), True, True),
        Column("size", "Stored", lambda row: stored(row.trial.checkpoint_bytes), F("checkpoint_bytes"), True, True),
        Column("restarts", "Restarts", lambda row: str(row.trial.restarts), F("restarts"), True, True),
        Column("host", "Host", lambda row: ", ".join(row.hosts), css="mono"),
        Column("duration", "Duration", _ran, runs.OF_TRIAL, True, True),
        Column("created", "Created", lambda row: ago(row.trial.started_at), F("pk"), False, True),
        Column("ended", "Ended", lambda row: ended(row.trial), F("ended_at"), False, True),
    ]  # fmt: skip


def searched(column: str) -> Cast:
    """The searcher's metric in a trial's `best_validation` or `latest_validation`."""
    return Cast(KT(f"{column}__searcher_metric"), FloatField())


def _hparam(axis: Axis) -> Column[TrialRow]:
    by: Any = F("hparams")
    for part in axis.name.split("."):  # a name that holds dots itself is not found, and so sorts nothing
        by = KeyTransform(part, by)
    is_number = axis.kind != Kind.CATEGORY
    return Column(
        HPARAM + axis.name, axis.name, lambda row: row.hparams.get(axis.name, ""), by, is_number, css="mono"
    )


def _metric(metric: Metric) -> Column[TrialRow]:
    return latest_of(metric, lambda row: row.trial, summarized(metric, "last"))


def latest_of(metric: Metric, trial_of: Callable[[R], Trial | None], by: Any) -> Column[R]:
    """The latest value of the metric that the trial of a row has reported; empty without a trial or value."""
    title = metric.name if metric.group == "validation" else f"{metric.group} {metric.name}"

    def said(row: R) -> str:
        trial = trial_of(row)
        group = trial.summary_metrics.get(SUMMARY_GROUPS.get(metric.group, metric.group)) if trial else None
        value = number(((group or {}).get(metric.name) or {}).get("last"))
        return "" if value is None else rounded(value)

    return Column(f"{METRIC}{metric}", title, said, by, True, css="mono nowrap full")


def _name(row: TrialRow) -> SafeString:
    pk = row.trial.pk
    return format_html('<a class="name" id="trial-{}" href="/trials/{}">Trial {}</a>', pk, pk, pk)


def _state(row: TrialRow) -> SafeString:
    labels = log_labels("A line of its log", row.trial.log_labels)
    why = format_html('<br><span class="hint">{}</span>', row.why) if row.why else ""
    rung = f", rung {row.rung}" if row.rung else ""
    return format_html("<span>{}{}{}{}</span>", state_lamp(row.phase), rung, labels, why)


def _hparams(row: TrialRow) -> SafeString:
    words = [f"{name}={value}" for name, value in row.hparams.items()]
    more = f", and {len(words) - _NAMES_SHOWN} more" if len(words) > _NAMES_SHOWN + 1 else ""
    shown = ", ".join(words[:_NAMES_SHOWN] if more else words) or "–"  # noqa: RUF001
    return format_html("<span>{}{}</span>", shown, more)


def _best(row: TrialRow) -> str | SafeString:
    if not row.trial.best_validation:
        return ""
    value = rounded(row.trial.best_validation["searcher_metric"])
    if row.is_best:
        return format_html('<span><span class="hint">best</span> <b>{}</b></span>', value)
    return format_html("<span>{}</span>", value)


def latest(trial: Trial) -> str:
    """The searcher's metric in the trial's latest validation; empty where that lacks it."""
    value = (trial.latest_validation or {}).get("searcher_metric")
    return "" if value is None else rounded(value)


def _checkpoints(row: TrialRow) -> str | SafeString:
    trial = row.trial
    if not trial.checkpoint_count:
        return ""
    latest = trial.latest_checkpoint
    at = format_html('<span class="hint">, latest at {}</span>', latest.steps_completed) if latest else ""
    return format_html('<a href="/trials/{}/checkpoints">{}{}</a>', trial.pk, trial.checkpoint_count, at)


def _ran(row: TrialRow) -> str:
    """The time of its attempts, without what it waited."""
    return duration(row.trial.ran.total_seconds()) if row.trial.ran else ""


def log_labels(line: str, names: Iterable[str]) -> SafeString:
    """The names of log policies that a line has matched."""
    span = ' <span class="log-label" title="{} matched the log policy {}">{}</span>'
    return format_html_join("", span, ((line, name, name) for name in names))


def stored(size_bytes: int) -> str:
    return size(size_bytes) if size_bytes else ""


def lasted(thing: Experiment) -> str:
    return duration(((thing.ended_at or timezone.now()) - thing.started_at).total_seconds())


def ended(thing: Trial | Experiment) -> str | SafeString:
    return ago(thing.ended_at) if thing.ended_at else ""
