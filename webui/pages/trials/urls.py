from django.urls import path

from webui.pages.trials import checkpoints, compare, trial

urlpatterns = [
    path("trials/<int:trial_id>", trial.detail),
    path("trials/<int:trial_id>/chart", trial.chart),
    path("trials/<int:trial_id>/checkpoints/<uuid:checkpoint_uuid>", checkpoints.detail),
    path("trials/<int:trial_id>/checkpoints/<uuid:checkpoint_uuid>/delete", checkpoints.delete),
    path("trials/<int:trial_id>/<slug:tab>", trial.detail),
    path("compare", compare.compare),
    path("compare/chart", compare.chart),
    path("det/trials/<int:trial_id>", trial.detail),
]
