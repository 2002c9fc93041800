from django.urls import path
from django.views.generic import RedirectView

from webui.pages.experiments import (
    again,
    chosen,
    code,
    create,
    edit,
    experiment,
    listing,
    notes,
    templates,
)

urlpatterns = [
    path("experiments", listing.listing),
    path("experiments/columns", listing.columns),
    path("experiments/new", create.new),
    path("experiments/check", create.check),
    path("experiments/preview-notes", notes.preview),
    path("experiments/chosen/<slug:action>", chosen.act),
    path("experiments/<int:experiment_id>", experiment.detail),
    path("experiments/<int:experiment_id>/continue", again.go_on),
    path("experiments/<int:experiment_id>/fork", create.fork),
    path("experiments/<int:experiment_id>/code", code.code),
    path("experiments/<int:experiment_id>/code.zip", code.download),
    path("experiments/<int:experiment_id>/config", code.config),
    path("experiments/<int:experiment_id>/notes", notes.notes),
    path("experiments/<int:experiment_id>/edit", edit.edit),
    path("experiments/<int:experiment_id>/delete", edit.delete),
    path("experiments/<int:experiment_id>/chart", experiment.chart),
    # POST only; the pages of an experiment are GET, so the two never meet
    path("experiments/<int:experiment_id>/<slug:tab>", experiment.detail_or_act),
    path("templates", templates.listing),
    path("templates/+new", templates.new),  # no name of a template begins with a plus
    path("templates/<str:name>", templates.detail),
    path("templates/<str:name>/remove", templates.remove),
    # Determined's addresses, as its published client prints them
    path("det/experiments/<int:experiment_id>", experiment.detail),
    path(
        "det/experiments/<int:experiment_id>/<path:rest>",
        RedirectView.as_view(url="/experiments/%(experiment_id)s"),
    ),
]
