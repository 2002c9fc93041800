"""The experiment that a page is about, and who may change it."""

from __future__ import annotations

from django.http import HttpRequest

from accounts import rights
from experiments.models import Experiment
from webui.pages.frame import or_404, user_of


def find(experiment_id: int) -> Experiment:
    """The experiment or 404. The state of its search, which may be a megabyte, is read where it is asked for."""
    rows = Experiment.objects.select_related("owner", "job__pool", "project__workspace", "context")
    found = rows.defer("search").filter(pk=experiment_id).first()
    return or_404(found, f"There is no experiment {experiment_id}.")


def may_act(request: HttpRequest, experiment: Experiment) -> bool:
    return rights.may_change(user_of(request), experiment)
