"""Runs side by side: which ones an address means, how they are grouped, what sets them apart, and which is best."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, mean, pstdev

from django.db.models import Min, QuerySet
from django.utils import timezone

from experiments import phases
from experiments.filters import ExperimentFilters
from experiments.models import Experiment, Trial
from metrics import comparisons
from metrics.comparisons import ChartView, Line, Metric
from metrics.hparam_axes import flat, in_order, value_text
from metrics.traces import Figure, Look, look
from metrics.values import SUMMARY_GROUPS
from shown.hparams import Table, table_of

#: runs that one page shows
MOST_RUNS = 200
MOST_METRICS = 24
#: runs times metrics: what one request for charts reads whole
MOST_CURVES = 1000
#: hyperparameters by which runs are grouped at once
MOST_GROUPS = 2
#: drawn unless the address names others: of up to FEW_RUNS, and of more
_FIRST_METRICS, _FIRST_OF_MANY, FEW_RUNS = 6, 2, 20
#: what groups runs by their experiment; no hyperparameter has this name
BY_EXPERIMENT = "@experiment"
#: stands where the runs of a group have different values
VARIES = "varies"


@dataclass(frozen=True)
class Asked:
    """What an address asks for: `trials`, else the runs of `experiments`, else of what `filters` leave.

    None: the address does not say. An empty list means no runs, never all of them.
    """

    trials: Sequence[int] | None = None
    experiments: Sequence[int] | None = None
    filters: ExperimentFilters = field(default_factory=ExperimentFilters)
    metrics: Sequence[Metric] = ()
    group: Sequence[str] = ()
    view: ChartView = field(default_factory=ChartView)
    #: a trial: its line, or that of its group, is what the others are held against
    baseline: int = 0


@dataclass(frozen=True)
class RunGroup:
    """Runs that are one line and one row: a trial alone, or those with the same values of hyperparameters."""

    key: str
    label: str
    trials: list[Trial]
    is_baseline: bool

    @property
    def ids(self) -> list[int]:
        return [trial.pk for trial in self.trials]


@dataclass(frozen=True)
class Comparison:
    """The runs, and what of the address cannot be shown, in sentences."""

    asked: Asked
    trials: list[Trial]
    refusals: list[str]

    @property
    def ids(self) -> list[int]:
        return [trial.pk for trial in self.trials]

    @property
    def groups(self) -> list[RunGroup]:
        """One group for each run, or with `group` for each of the values."""
        names = self.asked.group
        if not names:
            return [self._group(f"t{each.pk}", f"trial {each.pk}", [each]) for each in self.trials]
        found: dict[tuple[str, ...], list[Trial]] = {}
        for trial in self.trials:
            found.setdefault(tuple(_value(trial, name) for name in names), []).append(trial)
        places = [in_order({values[nth] for values in found}) for nth in range(len(names))]
        ordered = sorted(
            found, key=lambda values: [of.index(each) for of, each in zip(places, values, strict=True)]
        )
        return [
            self._group(f"g{number}", _called(names, values), found[values])
            for number, values in enumerate(ordered)
        ]

    def _group(self, key: str, label: str, trials: list[Trial]) -> RunGroup:
        return RunGroup(key, label, trials, any(each.pk == self.asked.baseline for each in trials))

    def metrics(self) -> list[Metric]:
        """What the runs have reported; the metrics of their searchers come first."""
        searched = {Metric("validation", trial.experiment.searcher_metric) for trial in self.trials}
        return comparisons.metrics_of(self.ids, list(searched))

    def drawn(self, known: Sequence[Metric]) -> Sequence[Metric]:
        """The metrics that have a chart: those asked for, or the first of the known ones."""
        first = _FIRST_METRICS if len(self.trials) <= FEW_RUNS else _FIRST_OF_MANY
        return self.asked.metrics or known[:first]

    def figures(self) -> list[Figure]:
        """A figure of each metric that is drawn."""
        metrics = self.asked.metrics or self.drawn(self.metrics())
        lines = [
            Line(each.key, each.label, {trial.pk: _begin(trial) for trial in each.trials}, each.is_baseline)
            for each in self.groups
        ]
        return comparisons.figures(lines, metrics, self.asked.view)

    def topics(self) -> str:
        """What tells that something here has changed."""
        experiments = sorted({trial.experiment_id for trial in self.trials})
        is_search = self.asked.trials is None and self.asked.experiments is None
        if is_search or len(experiments) > FEW_RUNS:
            return "experiments progress"
        return " ".join(f"experiment:{pk}" for pk in experiments)


def of(asked: Asked) -> Comparison:
    """The runs in the order of the address, else the newest first; at most MOST_RUNS, and the baseline besides."""
    refusals = []
    if asked.trials is not None:
        numbers = asked.trials[: 5 * MOST_RUNS]
        found = _rows().in_bulk(numbers)
        trials = [found[number] for number in numbers if number in found]
        refusals += [f"There is no trial {number}." for number in numbers if number not in found][:3]
        if len(trials) > MOST_RUNS:
            refusals.append(
                f"{len(trials)} trials were requested, and at most {MOST_RUNS} are compared: these are the first ones."
            )
    else:
        if asked.experiments is not None:
            meant = Experiment.objects.filter(pk__in=asked.experiments[: 5 * MOST_RUNS])
        else:
            meant = asked.filters.of(Experiment.objects.all())
        rows = _rows().filter(experiment__in=meant.order_by().values("pk")).order_by("-pk")
        trials = list(rows[: MOST_RUNS + 1])
        if len(trials) > MOST_RUNS:
            refusals.append(f"These are the newest {MOST_RUNS} runs; there are more.")
        if asked.experiments and not trials:
            refusals.append("None of these experiments has a trial.")
    trials = trials[:MOST_RUNS]
    most = max(1, min(MOST_METRICS, MOST_CURVES // max(1, len(trials))))
    if trials and asked.baseline and all(trial.pk != asked.baseline for trial in trials):
        trials += _rows().filter(pk=asked.baseline)
    if len(asked.metrics) > most:
        refusals.append(
            f"{len(asked.metrics)} metrics were requested, and at most {most} are shown for this many runs. "
            "Choose fewer metrics or fewer runs."
        )
        asked = replace(asked, metrics=asked.metrics[:most])
    return Comparison(asked, trials, refusals)


def _rows() -> QuerySet[Trial]:
    long = ("search", "original_config", "template_config", "notes")
    rows = Trial.objects.select_related("experiment").defer(
        "metadata", *(f"experiment__{name}" for name in long)
    )
    return rows.annotate(begun_at=Min("task__allocations__assigned_at"))


def _begin(trial: Trial) -> float:
    """When its first attempt began, or it was made. Epoch seconds."""
    begun = getattr(trial, "begun_at", None) or trial.started_at
    return float(begun.timestamp())


def _called(names: Sequence[str], values: Sequence[str]) -> str:
    pairs = zip(names, values, strict=True)
    return ", ".join(f"{name.removeprefix('@')} {value}" for name, value in pairs)


def _value(trial: Trial, name: str) -> str:
    return str(trial.experiment_id) if name == BY_EXPERIMENT else value_text(flat(trial.hparams), name)


@dataclass(frozen=True)
class Measured:
    """A value of a row: of a group the mean of its runs with their standard deviation. `change`: from the baseline."""

    value: float
    spread: float | None = None
    change: float | None = None

    def held_against(self, base: Measured | None) -> Measured:
        return self if base is None else replace(self, change=self.value - base.value)


@dataclass(frozen=True)
class ComparedRow:
    """A line in the table. `best`: by the searchers' metric, if they have one; `last`: of the first metric drawn."""

    group: RunGroup
    look: Look
    phase: str
    metric: str
    best: Measured | None
    is_best: bool
    last: Measured | None
    steps: int
    seconds: float
    values: list[tuple[str, str]]

    @property
    def trial(self) -> Trial:
        """The only run, or the first."""
        return self.group.trials[0]

    @property
    def experiments(self) -> list[Experiment]:
        return list({trial.experiment_id: trial.experiment for trial in self.group.trials}.values())


@dataclass(frozen=True)
class ComparedTable:
    """The rows, and the hyperparameters of all runs; `names`: those that have a column."""

    rows: list[ComparedRow]
    hparams: Table
    names: list[str]
    #: the metric of all rows that have a best value; empty where they differ
    metric: str


def table(found: Comparison, first: Metric | None) -> ComparedTable:
    """A row for each line; `first`: the metric of the first chart."""
    groups, now = found.groups, timezone.now()
    hparams = table_of([trial.hparams for trial in found.trials])
    place_of = {trial.pk: place for place, trial in enumerate(found.trials)}
    words = phases.of_trials(found.trials)
    best = [_measured(each.trials, _best) if len(_judged(each.trials)) == 1 else None for each in groups]
    last = [_measured(each.trials, lambda trial: _last(trial, first)) for each in groups]
    base = next((place for place, each in enumerate(groups) if each.is_baseline), None)
    among = _best_places(groups, best)
    values = [_shared([hparams.differing_of(place_of[pk]) for pk in each.ids]) for each in groups]
    # what groups have in their names, or what varies within each of them, needs no column
    left = [name for name in hparams.differing if name not in found.asked.group]
    names = [name for name in left if any(each[name] != VARIES for each in values)]
    rows = [
        ComparedRow(
            group=each,
            look=Look("currentColor", "solid", "") if each.is_baseline else look(place),
            phase=words[each.trials[0].pk],
            metric=", ".join(sorted(name for name, _ in _judged(each.trials))),
            best=_against(best, place, base if base is None or _alike(groups[base], each) else None),
            is_best=place in among,
            last=_against(last, place, base),
            steps=max(trial.steps_completed for trial in each.trials),
            seconds=fmean(
                ((trial.ended_at or now) - trial.started_at).total_seconds() for trial in each.trials
            ),
            values=[(name, values[place][name]) for name in names],
        )
        for place, each in enumerate(groups)
    ]
    metrics = {row.metric for row in rows}
    return ComparedTable(rows, hparams, names, metrics.pop() if len(metrics) == 1 else "")


def _judged(trials: Iterable[Trial]) -> set[tuple[str, bool]]:
    """By which metrics, and in which direction."""
    return {(trial.experiment.searcher_metric, trial.experiment.smaller_is_better) for trial in trials}


def _alike(one: RunGroup, another: RunGroup) -> bool:
    return _judged(one.trials) == _judged(another.trials)


def _best(trial: Trial) -> float | None:
    return _number((trial.best_validation or {}).get("searcher_metric"))


def _last(trial: Trial, metric: Metric | None) -> float | None:
    if metric is None:
        return None
    summary = trial.summary_metrics.get(SUMMARY_GROUPS.get(metric.group, metric.group), {}).get(
        metric.name, {}
    )
    return _number(summary.get("last"))


def _number(found: object) -> float | None:
    """What is a finite number: jobs report anything."""
    if isinstance(found, int | float) and abs(found) <= sys.float_info.max:
        return found
    return None


def _measured(trials: Sequence[Trial], read: Callable[[Trial], float | None]) -> Measured | None:
    values = [value for trial in trials if (value := read(trial)) is not None]
    if not values:
        return None
    # exact, while fmean fails where the sum is too large for a float
    return Measured(float(mean(values)), pstdev(values) if len(values) > 1 else None)


def _against(values: Sequence[Measured | None], place: int, base: int | None) -> Measured | None:
    own = values[place]
    return own.held_against(values[base]) if own and base is not None and base != place else own


def _best_places(groups: Sequence[RunGroup], values: Sequence[Measured | None]) -> set[int]:
    """Which is the best of those that are judged by the same metric in the same direction, if there are several."""
    judged: dict[tuple[str, bool], list[tuple[float, int]]] = {}
    for place, (group, found) in enumerate(zip(groups, values, strict=True)):
        if found is not None:
            (by,) = _judged(group.trials)
            judged.setdefault(by, []).append((found.value if by[1] else -found.value, place))
    return {min(rows)[1] for rows in judged.values() if len(rows) > 1}


def _shared(runs: Sequence[list[tuple[str, str]]]) -> dict[str, str]:
    """Name -> the value of all runs of a row, or VARIES."""
    return {some[0][0]: some[0][1] if len({*some}) == 1 else VARIES for some in zip(*runs, strict=True)}


def best_of(experiment_id: int) -> int | None:
    """Its best trial; while none has a validation, its newest."""
    best = Experiment.objects.filter(pk=experiment_id).values_list("best_trial_id", flat=True).first()
    newest = Trial.objects.filter(experiment_id=experiment_id).order_by("-pk").values_list("pk", flat=True)
    return best or newest.first()
