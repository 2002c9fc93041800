"""The experiment that a page is about, and who may change it."""

from __future__ import annotations

from django.http import Http404, HttpRequest

from accounts import rights
from experiments.models import Experiment
from webui.pages.frame import user_of


def find(experiment_id: int) -> Experiment:
    """The experiment or 404. The state of its search, which may be a megabyte, is read where it is asked for."""
    found = (
        Experiment.objects.select_related("owner", "job__pool", "project__workspace", "context")
        .defer("search")
        .filter(pk=experiment_id)
        .first()
    )
    if found is None:
        raise Http404(f"There is no experiment {experiment_id}.")
    return found


def may_act(request: HttpRequest, experiment: Experiment) -> bool:
    return rights.may_change(user_of(request), experiment)
