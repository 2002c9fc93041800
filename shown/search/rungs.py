"""The rungs of a search: which trials reached each rung, and which were promoted, wait or were stopped there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from experiments.models import Experiment
from experiments.states import TrialState
from searching.rungs import Bracket, Rung, RungEntry
from searching.state import Outcome
from shown import words
from shown.hparams import named
from shown.search import progress

#: of a rung that is not looked at by itself, best first
FIRST_ENTRIES = 8
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
class SearchTrials:
    """The trials of a search: the best, all by request id, which were killed, and the phases of the living."""

    best: int | None
    trials: dict[str, int]
    killed: frozenset[int]
    phases: dict[int, str]

    def word(self, entry: RungEntry) -> tuple[str, str]:
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

    def standing(self, entry: RungEntry, hparams: Mapping[int, dict[str, str]] | None = None) -> Standing:
        pk = self.trials.get(entry.request_id or "")
        is_best = pk is not None and pk == self.best
        return Standing(pk, entry, *self.word(entry), is_best, (hparams or {}).get(pk or 0, {}))


@dataclass(frozen=True)
class Standing:
    """One trial at one rung. `trial` is None in a search begun before rungs knew their trials."""

    trial: int | None
    entry: RungEntry
    word: str
    lamp: str
    is_best: bool
    hparams: dict[str, str]

    @property
    def at(self) -> float | None:
        """When this became of it; None while it is on the way."""
        return None if self.entry.outcome == Outcome.RUNNING else self.entry.at


@dataclass(frozen=True)
class RungLevel:
    """A rung. `key`: `<bracket>.<rung>` from 1, as the address has it; `counts`: (word, lamp, how many)."""

    key: str
    number: int
    rung: Rung
    keeps: str
    counts: list[tuple[str, str, int]]
    lines: list[Standing]
    reached: int
    more: int


@dataclass(frozen=True)
class BracketPart:
    """A bracket; `toggled`: what the address has to fold or unfold it."""

    number: int
    bracket: Bracket
    levels: list[RungLevel]
    is_folded: bool
    toggled: str


@dataclass(frozen=True)
class Decision:
    """What became of a trial at a rung, for the list of the latest."""

    line: Standing
    bracket: int
    rung: int
    units: int
    among: int


def trials_of(experiment: Experiment) -> SearchTrials:
    """The trials of a search by what its rungs call them."""
    rows = list(experiment.trials.values_list("request_id", "pk", "state"))
    trials = {str(request_id): pk for request_id, pk, _ in rows}
    killed = frozenset(pk for _, pk, state in rows if state == TrialState.CANCELED)
    return SearchTrials(experiment.best_trial_id, trials, killed, progress.living(experiment))


def standings(experiment: Experiment, entries: Sequence[RungEntry], known: SearchTrials) -> list[Standing]:
    """The trials of a rung with their hyperparameters."""
    ids = [known.trials.get(entry.request_id or "", 0) for entry in entries]
    rows = experiment.trials.filter(pk__in=ids).values_list("pk", "hparams")
    hparams = {pk: named(values) for pk, values in rows}
    return [known.standing(entry, hparams) for entry in entries]


def parts(brackets: Sequence[Bracket], folded: set[int], known: SearchTrials) -> list[BracketPart]:
    """The brackets with their rungs; those that are folded without."""
    return [_part(number, bracket, folded, known) for number, bracket in enumerate(brackets, start=1)]


def _part(number: int, bracket: Bracket, folded: set[int], known: SearchTrials) -> BracketPart:
    levels = [
        _level(number, place, rung, known)
        for place, rung in enumerate(bracket.rungs, start=1)
        if number not in folded
    ]
    toggled = ".".join(str(each) for each in sorted(folded ^ {number}))
    return BracketPart(number, bracket, levels, number in folded, toggled)


def _level(bracket: int, number: int, rung: Rung, known: SearchTrials) -> RungLevel:
    counts = Counter(map(known.word, rung.entries))
    shown = rung.entries[:FIRST_ENTRIES]
    keeps = f"best 1 in {1 / rung.share:.3g} promoted" if rung.share else "final rung"
    return RungLevel(
        key=f"{bracket}.{number}",
        number=number,
        rung=rung,
        keeps=keeps,
        counts=[(word, lamp, count) for (word, lamp), count in counts.items()],
        lines=[known.standing(entry) for entry in shown],
        reached=_reached(rung),
        more=len(rung.entries) - len(shown),
    )


def _reached(rung: Rung) -> int:
    return sum(entry.place is not None for entry in rung.entries)


def latest(brackets: Sequence[Bracket], known: SearchTrials) -> list[Decision]:
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
        Decision(known.standing(entry), number, level, rung.units, _reached(rung))
        for _, number, level, rung, entry in found[:LATEST]
    ]
