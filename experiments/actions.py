"""What a person can ask of an experiment: one row per action, for pages, the queue and REST (features.md 2.3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from experiments import transitions
from experiments.models import Experiment
from experiments.states import EXPERIMENT_END_STATES, GOING_ON, ExperimentState


@dataclass(frozen=True)
class Action:
    """`done`: the word for a sentence such as "3 experiments paused."

    `asks`: the consequence that a page states before it acts; empty if the action can be undone.
    `on_runs`: it acts on runs that the queue started, so an unmanaged or ended experiment cannot take it.
    """

    name: str
    label: str
    done: str
    run: Callable[..., object]
    states: frozenset[str]
    asks: str = ""
    is_danger: bool = False
    on_runs: bool = True

    def is_legal(self, experiment: Experiment) -> bool:
        """Whether the experiment can take it as it stands; who may ask for it is another question."""
        if experiment.state not in self.states or (self.on_runs and experiment.unmanaged):
            return False
        return self.name not in _ARCHIVING or experiment.archived == _ARCHIVING[self.name]


#: action -> whether an experiment that can take it is archived
_ARCHIVING = {"archive": False, "unarchive": True}
_ENDED = frozenset(EXPERIMENT_END_STATES)

ACTIONS = {
    action.name: action
    for action in (
        Action(
            "activate", "Activate", "activated", transitions.activate, frozenset({ExperimentState.PAUSED})
        ),
        Action("pause", "Pause", "paused", transitions.pause, frozenset({ExperimentState.ACTIVE})),
        Action(
            "cancel",
            "Cancel",
            "canceled",
            transitions.cancel,
            frozenset(GOING_ON),
            "Runs save a checkpoint if their code does so, and then end. This cannot be undone.",
        ),
        Action(
            "kill",
            "Kill",
            "killed",
            transitions.kill,
            frozenset(GOING_ON) | {ExperimentState.STOPPING_CANCELED},
            "Runs are stopped immediately, and anything not saved is lost. Checkpoints are kept.",
            is_danger=True,
        ),
        Action("archive", "Archive", "archived", transitions.archive, _ENDED, on_runs=False),
        Action("unarchive", "Unarchive", "unarchived", transitions.unarchive, _ENDED, on_runs=False),
        Action(
            "delete",
            "Delete",
            "marked for deletion",
            transitions.delete,
            _ENDED | {ExperimentState.DELETE_FAILED},
            "This cannot be undone.",
            is_danger=True,
            on_runs=False,
        ),
    )
}


def legal(experiment: Experiment) -> list[Action]:
    """Those that the experiment can take as it stands."""
    return [action for action in ACTIONS.values() if action.is_legal(experiment)]
