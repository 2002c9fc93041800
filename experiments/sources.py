"""The checkpoint that new trials begin with: `searcher.source_checkpoint_uuid` or `source_trial_id` (a warm start).

Its experiment is locked until they are there, as by whoever deletes a checkpoint or an experiment: so it cannot go in
the very moment in which somebody begins with it. The trials count their own steps from 0; the code is handed the
checkpoint as `info.latest_checkpoint` until the trial has one of its own. All trials of a search begin with the same.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from accounts.refusals import Refusal
from experiments.models import Checkpoint, Experiment, Trial
from experiments.states import USABLE
from experiments.transitions import NoSuchExperiment, lock

#: what says where a storage keeps its files
_PLACE = (
    "type",
    "host_path",
    "storage_path",
    "container_path",
    "bucket",
    "prefix",
    "endpoint_url",
    "container",
)


def found(config: dict[str, Any]) -> Checkpoint | None:
    """The checkpoint that a config names; None when it names none. Raises Refusal with a sentence.

    The caller holds a transaction, and no lock of another experiment that others could wait for.
    """
    searcher = config.get("searcher") or {}
    if uuid := searcher.get("source_checkpoint_uuid"):
        checkpoints = Checkpoint.objects.filter(pk=uuid)
        _lock(checkpoints.values_list("trial__experiment_id", flat=True).first())
        checkpoint = checkpoints.first()
        if checkpoint is None:
            raise Refusal(f"searcher.source_checkpoint_uuid: there is no checkpoint {uuid}.")
        return _usable(checkpoint, config, "source_checkpoint_uuid")
    if trial_id := searcher.get("source_trial_id"):
        trials = Trial.objects.filter(pk=trial_id)
        _lock(trials.values_list("experiment_id", flat=True).first())
        if not trials.exists():
            raise Refusal(f"searcher.source_trial_id: there is no trial {trial_id}.")
        newest = Checkpoint.objects.filter(trial_id=trial_id, state__in=USABLE)
        checkpoint = newest.order_by("-steps_completed", "-reported_at").first()
        if checkpoint is None:
            raise Refusal(
                f"searcher.source_trial_id: trial {trial_id} has no complete checkpoint to start from."
            )
        return _usable(checkpoint, config, "source_trial_id")
    return None


def _lock(experiment_id: int | None) -> None:
    """One that is gone, perhaps since it was looked up, has no checkpoints either."""
    if experiment_id is not None:
        with suppress(NoSuchExperiment):
            lock(experiment_id)


def of(experiment: Experiment) -> Checkpoint | None:
    """What a new trial of the experiment begins with: the same as its other trials, if they are the first."""
    earlier = experiment.trials.exclude(source_checkpoint=None).select_related("source_checkpoint").first()
    return earlier.source_checkpoint if earlier else found(experiment.config)


def _usable(checkpoint: Checkpoint, config: dict[str, Any], field: str) -> Checkpoint:
    if checkpoint.state not in USABLE:
        state = {"PARTIAL": "still being uploaded", "ERROR": "incomplete"}.get(checkpoint.state, "deleted")
        raise Refusal(
            f"searcher.{field}: checkpoint {checkpoint.pk} is {state}, so it cannot be a starting point."
        )
    mine = config.get("checkpoint_storage") or {"type": "server"}
    its = checkpoint.storage or {"type": "server"}
    if any((mine.get(name) or None) != (its.get(name) or None) for name in _PLACE):
        raise Refusal(
            f"searcher.{field}: checkpoint {checkpoint.pk} is in {_place(its)}, but this experiment keeps its own in "
            f"{_place(mine)}; set checkpoint_storage to the checkpoint's storage."
        )
    return checkpoint


def _place(storage: dict[str, Any]) -> str:
    where = [str(storage[name]) for name in _PLACE[1:] if storage.get(name)]
    return f"{storage.get('type', 'server')} storage{': ' if where else ''}{', '.join(where)}"
