"""How good an experiment has become, as Plotly JSON for the charts of its overview."""

from __future__ import annotations

from django.http import HttpRequest, JsonResponse

from metrics import best_so_far
from webui.pages.experiments.access import find
from webui.pages.frame import page


@page
def chart(request: HttpRequest, experiment_id: int) -> JsonResponse:
    """{"figures": the best validation over time, and each trial's by step}; empty before the first validation."""
    experiment = find(experiment_id)
    figures = best_so_far.figures(
        list(experiment.trials.order_by("pk").values_list("pk", flat=True)),
        experiment.searcher_metric,
        is_smaller_better=experiment.smaller_is_better,
        begin=experiment.started_at.timestamp(),
    )
    return JsonResponse({"figures": figures})
