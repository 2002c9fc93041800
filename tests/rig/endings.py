"""Experiments that have ended, as rows."""

from typing import Any

from experiments import transitions
from experiments.models import Experiment
from experiments.states import ExperimentState
from jobs.states import Reason
from tests.rig.world import submit_experiment


def ended(
    name: str = "digits", state: ExperimentState = ExperimentState.COMPLETED, **more: Any
) -> Experiment:
    """Submitted the real way, then at its end."""
    experiment = submit_experiment(name=name, **more)
    locked = transitions.lock(experiment.pk)
    transitions.set_experiment_state(locked, state, reason=Reason.COMPLETED, actor="server")
    return experiment
