from django.urls import path

from webui.pages.search import charts, tree, trials

urlpatterns = [
    path("experiments/<int:experiment_id>/search", tree.detail),
    path("experiments/<int:experiment_id>/trials", trials.detail),
    path("experiments/<int:experiment_id>/trials/kill", trials.kill),
    path("experiments/<int:experiment_id>/visualization", charts.detail),
    path("experiments/<int:experiment_id>/visualisation", charts.at_former_address),
    path("experiments/<int:experiment_id>/visualization/<slug:way>", charts.detail),
    path("experiments/<int:experiment_id>/visualisation/<slug:way>", charts.at_former_address),
]
