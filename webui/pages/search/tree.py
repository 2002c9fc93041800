"""The Search page of an experiment: its brackets, their rungs, and who came where, went on, waits or was stopped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django.core.paginator import Page, Paginator
from django.http import HttpRequest, HttpResponse

from experiments.models import Experiment
from experiments.search_preview import unit_of
from experiments.states import TrialState
from searching.rungs import Bracket, Entry, Rung, tree
from searching.standings import Outcome
from shown import search_progress, words
from shown.hparams import named
from webui.pages.experiments import experiment as experiment_page
from webui.pages.experiments.access import find
from webui.pages.frame import page, show
from webui.query import as_ids, as_whole

#: of a rung that is not looked at by itself, best first
FIRST_ENTRIES = 8
PER_PAGE = 100
LATEST = 12
#: outcome -> its word and its lamp (components.css)
WORDS = {
    Outcome.PROMOTED: ("promoted", "hollow"),
    Outcome.RUNNING: ("in progress", "running"),
    Outcome.WAITING: ("waiting", "waiting"),
    Outcome.STOPPED: ("stopped", "rest"),
    Outcome.FINISHED: ("finished", "rest"),
    Outcome.GAVE_UP: ("failed", "failed"),
}
KILLED = ("killed", "rest")


@dataclass(frozen=True)
class Known:
    """What the page knows of the experiment's trials: by request id, which were killed, and where the living stand."""

    best: int | None
    trials: dict[str, int]
    killed: frozenset[int]
    phases: dict[int, str]

    def word(self, entry: Entry) -> tuple[str, str]:
        """What became of a trial at a rung, and its lamp; one on the way may be running, or wait for slots.

        To its search a killed trial has failed like any other; people are told who ended it.
        """
        trial = self.trials.get(entry.request_id or "", 0)
        if entry.outcome == Outcome.GAVE_UP and trial in self.killed:
            return KILLED
        word, lamp = WORDS[entry.outcome]
        phase = self.phases.get(trial)
        if entry.outcome != Outcome.RUNNING or phase is None:
            return word, lamp
        state = words.state(phase)
        return f"{word}, {state.text.lower()}", state.lamp

    def line(self, entry: Entry, hparams: Mapping[int, dict[str, str]] | None = None) -> Line:
        pk = self.trials.get(entry.request_id or "")
        is_best = pk is not None and pk == self.best
        return Line(pk, entry, *self.word(entry), is_best, (hparams or {}).get(pk or 0, {}))


@dataclass(frozen=True)
class Line:
    """One trial at one rung. `trial` is None in a search begun before rungs knew their trials."""

    trial: int | None
    entry: Entry
    word: str
    lamp: str
    is_best: bool
    hparams: dict[str, str]

    @property
    def at(self) -> float | None:
        """When this became of it; None while it is on the way."""
        return None if self.entry.outcome == Outcome.RUNNING else self.entry.at


@dataclass(frozen=True)
class Level:
    """A rung. `key`: `<bracket>.<rung>` from 1, as the address has it; `counts`: (word, lamp, how many)."""

    key: str
    number: int
    rung: Rung
    keeps: str
    counts: list[tuple[str, str, int]]
    lines: list[Line]
    reached: int
    more: int


@dataclass(frozen=True)
class Part:
    number: int
    bracket: Bracket
    levels: list[Level]
    is_folded: bool
    toggled: str


@dataclass(frozen=True)
class Decision:
    """What became of a trial at a rung, for the list of the latest."""

    line: Line
    bracket: int
    rung: int
    units: int
    among: int


@page
def detail(request: HttpRequest, experiment_id: int) -> HttpResponse:
    """`fold` (numbers of brackets, with dots between) and `rung` (one that is shown in full, with `page`)."""
    experiment = find(experiment_id)
    context = experiment_page.head(request, experiment, "search")
    if request.GET.get("part") == "head":
        return show(request, "search_tree", context, room="Experiments", fragment="experiment")
    brackets = tree(experiment.search)
    rows = list(experiment.trials.values_list("request_id", "pk", "state"))
    trials = {str(request_id): pk for request_id, pk, _ in rows}
    killed = frozenset(pk for _, pk, state in rows if state == TrialState.CANCELED)
    living = search_progress.living(experiment)
    known = Known(experiment.best_trial_id, trials, killed, living)
    words_of_fold = request.GET.get("fold", "").split(".")
    folded = set(as_ids(words_of_fold))
    parts = [_part(number, bracket, folded, known) for number, bracket in enumerate(brackets, start=1)]
    context |= {
        "progress": search_progress.of(experiment, brackets, living),
        "parts": parts,
        "unit": unit_of(experiment.config.get("searcher") or {}),
        "has_rungs": any(bracket.rungs for bracket in brackets),
        "latest": _latest(brackets, known),
        "one": _one(request, brackets, known, experiment),
        "trials_total": len(trials),
    }
    return show(request, "search_tree", context, room="Experiments", fragment="search_tree")


def _part(number: int, bracket: Bracket, folded: set[int], known: Known) -> Part:
    levels = [
        _level(number, place, rung, known)
        for place, rung in enumerate(bracket.rungs, start=1)
        if number not in folded
    ]
    toggled = ".".join(str(each) for each in sorted(folded ^ {number}))
    return Part(number, bracket, levels, number in folded, toggled)


def _level(bracket: int, number: int, rung: Rung, known: Known) -> Level:
    counts = Counter(map(known.word, rung.entries))
    shown = rung.entries[:FIRST_ENTRIES]
    keeps = f"best 1 in {1 / rung.share:.3g} promoted" if rung.share else "final rung"
    return Level(
        key=f"{bracket}.{number}",
        number=number,
        rung=rung,
        keeps=keeps,
        counts=[(word, lamp, count) for (word, lamp), count in counts.items()],
        lines=[known.line(entry) for entry in shown],
        reached=sum(entry.place is not None for entry in rung.entries),
        more=len(rung.entries) - len(shown),
    )


def _latest(brackets: Sequence[Bracket], known: Known) -> list[Decision]:
    """What was decided last, the newest first."""
    found = [
        (entry.at, number, level, rung, entry)
        for number, bracket in enumerate(brackets, start=1)
        for level, rung in enumerate(bracket.rungs, start=1)
        for entry in rung.entries
        if entry.at is not None and entry.outcome != Outcome.WAITING
    ]
    found.sort(key=lambda each: each[0], reverse=True)
    return [
        Decision(
            known.line(entry),
            number,
            level,
            rung.units,
            sum(each.place is not None for each in rung.entries),
        )
        for _, number, level, rung, entry in found[:LATEST]
    ]


def _one(
    request: HttpRequest, brackets: Sequence[Bracket], known: Known, experiment: Experiment
) -> dict[str, object] | None:
    """All trials of the rung that the address names, a page of them."""
    first, _, second = request.GET.get("rung", "").partition(".")
    bracket = as_whole(first, len(brackets), least=1)
    rungs = brackets[bracket - 1].rungs if bracket else ()
    level = as_whole(second, len(rungs), least=1)
    if level is None:
        return None
    rung = rungs[level - 1]
    entries: Page[Entry] = Paginator(rung.entries, PER_PAGE).get_page(request.GET.get("page"))
    ids = [known.trials.get(entry.request_id or "", 0) for entry in entries.object_list]
    hparams = {
        pk: named(values) for pk, values in experiment.trials.filter(pk__in=ids).values_list("pk", "hparams")
    }
    lines = [known.line(entry, hparams) for entry in entries.object_list]
    return {"bracket": bracket, "level": level, "rung": rung, "lines": lines, "page": entries}
