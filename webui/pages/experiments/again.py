"""Continue an experiment that has ended: a form with what is to change in its config."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from accounts import rights
from accounts.refusals import Refusal
from accounts.rights import Right
from experiments import continuing, drafts
from experiments.config import masked_text
from experiments.continuing import can_continue
from experiments.models import Experiment, Trial
from experiments.states import EXPERIMENT_END_STATES, ExperimentState
from shown import pools
from submissions.config.reading import read_yaml
from trainmaster import yamltext
from webui.pages.experiments.access import find, may_act
from webui.pages.frame import actor, form, show, user_of

DELETABLE = EXPERIMENT_END_STATES | {ExperimentState.DELETE_FAILED}


def links(request: HttpRequest, experiment: Experiment) -> list[dict[str, str]]:
    """What stands beside the actions of an experiment: buttons that lead to a form."""
    at = f"/experiments/{experiment.pk}"
    acts, found = may_act(request, experiment), []
    if not experiment.unmanaged and can_continue(experiment) and acts:
        found.append({"label": "Continue", "href": f"{at}/continue"})
    if not experiment.unmanaged and user_of(request).may_edit:
        found.append({"label": "Fork", "href": f"{at}/fork"})
    if not experiment.unmanaged and acts:
        found.append({"label": "Schedule", "href": f"/schedules/+new?experiment={experiment.pk}"})
    if acts:
        found.append({"label": "Edit", "href": f"{at}/edit"})
    if acts and experiment.state in DELETABLE:
        found.append({"label": "Delete", "href": f"{at}/delete", "kind": "danger"})
    return found


def links_of_trial(request: HttpRequest, trial: Trial) -> list[dict[str, str]]:
    """Beside the actions of a trial: what leads to a new experiment, or says that it is the whole experiment's.

    What only the experiment can be, edited and deleted, stands on its own page.
    """
    experiment, found = trial.experiment, []
    if experiment.unmanaged:
        return []
    fork = f"/experiments/{experiment.pk}/fork"
    if can_continue(experiment) and may_act(request, experiment):
        found.append({"label": "Continue experiment", "href": f"/experiments/{experiment.pk}/continue"})
    if user_of(request).may_edit:
        if source := trial.latest_checkpoint_id:
            found.append(
                {
                    "label": "Continue in a new experiment",
                    "href": f"{fork}?hparams={trial.pk}&checkpoint={source}",
                    "title": "With the hyperparameters of this trial, starting from its latest checkpoint",
                }
            )
        found.append({"label": "Fork experiment", "href": fork})
    return found


@form(Right.EDIT)
def go_on(request: HttpRequest, experiment_id: int) -> HttpResponse:
    """GET: the form; POST: continue it with these changes."""
    experiment = find(experiment_id)
    searcher = experiment.searcher
    text, problem = request.POST.get("config", "") if request.method == "POST" else _length(searcher), ""
    try:
        rights.require_owner(user_of(request), experiment)
        if request.method == "POST":
            changes = read_yaml(text, "change of the config") if text.strip() else {}
            continuing.go_on(experiment_id, changes, actor=actor(request), role=user_of(request).role)
            return redirect(f"/experiments/{experiment_id}")
    except Refusal as refusal:
        problem = str(refusal)
    context: dict[str, Any] = {
        "text": text,
        "draft": drafts.of_changes(text, experiment, user_of(request).role),
        "is_single": searcher.get("name") == "single",
        "pools": pools.choices(experiment.owner),
        "before": experiment.original_config and masked_text(experiment.original_config),
        "trials": experiment.trials.select_related("latest_checkpoint").order_by("pk")[:20],
    }
    context |= {"experiment": experiment, "problem": problem}
    status = 400 if problem and request.method == "POST" else 200
    return show(request, "experiment_again", context, room="Experiments", status=status)


def _length(searcher: dict[str, Any]) -> str:
    """The change that is wanted most: to train for longer."""
    if searcher.get("name") != "single" or not searcher.get("max_length"):
        return ""
    return yamltext.dump({"searcher": {"max_length": searcher["max_length"]}})
