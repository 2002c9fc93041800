"""Which checkpoints are kept, and why: `save_experiment_best`, `save_trial_best` and `_latest` (features.md 10.5).

Pure: checkpoints as plain values in, the reasons to keep each out; who has none is superfluous. Best are those with
the searcher's metric at their step: one without it, or with a value that is not finite, is never among the best. Of
equal ones the earlier is the better, so exactly as many are kept as were asked for.
"""

from __future__ import annotations

import math
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from searching.words import ordinal


@dataclass(frozen=True)
class Policy:
    """How many are kept: of the experiment's best, of each trial's best and latest."""

    experiment_best: int = 0
    trial_best: int = 1
    trial_latest: int = 1

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Policy:
        storage = config.get("checkpoint_storage") or {}
        return cls().changed(
            storage.get("save_experiment_best"),
            storage.get("save_trial_best"),
            storage.get("save_trial_latest"),
        )

    def changed(
        self, experiment_best: int | None, trial_best: int | None, trial_latest: int | None
    ) -> Policy:
        """With these numbers, where they are given."""
        given = {
            "experiment_best": experiment_best,
            "trial_best": trial_best,
            "trial_latest": trial_latest,
        }
        return replace(self, **{name: int(count) for name, count in given.items() if count is not None})


@dataclass(frozen=True)
class Candidate:
    """A checkpoint that could be deleted. `metric`: the searcher's, of the validation at its step."""

    uuid: uuid.UUID
    trial_id: int
    steps: int
    reported_at: datetime
    metric: float | None = None


def reasons(
    candidates: Sequence[Candidate], policy: Policy, *, smaller_is_better: bool
) -> dict[uuid.UUID, list[str]]:
    """In words, why each is kept; nothing for one that is superfluous."""
    found: dict[uuid.UUID, list[str]] = {each.uuid: [] for each in candidates}
    best = best_first(candidates, smaller_is_better)
    _keep(found, best[: policy.experiment_best], lambda place: f"{_nth(place, 'best')} of the experiment")
    for own in _by_trial(best).values():
        _keep(found, own[: policy.trial_best], lambda place: f"{_nth(place, 'best')} of its trial")
    newest = sorted(candidates, key=lambda each: (each.steps, each.reported_at), reverse=True)
    for own in _by_trial(newest).values():
        _keep(found, own[: policy.trial_latest], lambda place: f"{_nth(place, 'latest')} of its trial")
    return found


def best_first(candidates: Iterable[Candidate], smaller_is_better: bool) -> list[Candidate]:
    """Those with a metric, the best first."""
    sign = 1 if smaller_is_better else -1
    measured = [each for each in candidates if each.metric is not None and math.isfinite(each.metric)]
    return sorted(measured, key=lambda each: (sign * (each.metric or 0.0), each.reported_at, each.uuid))


def _by_trial(ordered: Iterable[Candidate]) -> dict[int, list[Candidate]]:
    groups: dict[int, list[Candidate]] = defaultdict(list)
    for each in ordered:
        groups[each.trial_id].append(each)
    return groups


def _keep(
    found: dict[uuid.UUID, list[str]], chosen: Sequence[Candidate], words: Callable[[int], str]
) -> None:
    for place, each in enumerate(chosen, 1):
        found[each.uuid].append(words(place))


def _nth(place: int, what: str) -> str:
    return what if place == 1 else f"{ordinal(place)} {what}"
