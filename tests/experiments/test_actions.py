"""The table of actions says what the transitions take."""

import pytest

from experiments.actions import ACTIONS, legal
from experiments.models import Experiment
from experiments.states import ExperimentState
from tests.rig.world import submit_experiment

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("state", ExperimentState.values)
@pytest.mark.parametrize("name", ACTIONS)
def test_what_is_legal_is_taken(name: str, state: str) -> None:
    experiment = submit_experiment()
    Experiment.objects.filter(pk=experiment.pk).update(state=state, archived=name == "unarchive")
    experiment.refresh_from_db()
    if ACTIONS[name].is_legal(experiment):
        ACTIONS[name].run(experiment.pk, actor="user:ada")
        experiment.refresh_from_db()
        assert experiment.state != state or name in {"archive", "unarchive"}
    else:
        assert state not in ACTIONS[name].states


def test_an_unmanaged_experiment_has_no_runs_to_act_on() -> None:
    experiment = submit_experiment()
    assert [action.name for action in legal(experiment)] == ["pause", "cancel", "kill"]
    experiment.unmanaged = True
    assert legal(experiment) == []
    experiment.state = ExperimentState.COMPLETED
    assert [action.name for action in legal(experiment)] == ["archive", "delete"]
    experiment.archived = True
    assert [action.name for action in legal(experiment)] == ["unarchive", "delete"]
