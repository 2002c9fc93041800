"""Files that training code has written for TensorBoard: `DELETE experiments/<id>/tensorboard-files`."""

from __future__ import annotations

from rest_framework.request import Request

from accounts.rights import Right
from experiments import event_files
from experiments.models import Experiment
from experiments.states import EXPERIMENT_END_STATES
from webui.api.errors import Conflict, existing
from webui.api.permissions import person, require_owner
from webui.api.views import ApiView


class EventFiles(ApiView):
    """Delete the event files that the server keeps for an ended experiment. Its metrics are kept."""

    rights = {"DELETE": Right.EDIT}

    def delete(self, request: Request, experiment_id: int) -> None:
        experiment = existing(Experiment.objects.select_related("owner"), "experiment", pk=experiment_id)
        require_owner(person(request), experiment)
        if experiment.state not in EXPERIMENT_END_STATES:
            raise Conflict(
                f"experiment {experiment_id} is {experiment.state}: its trials may still add files; delete them after "
                "it has ended."
            )
        event_files.delete(experiment_id)
