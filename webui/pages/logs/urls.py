from django.urls import path

from webui.pages.logs import columns, held, lines, rank_stacks, ranks

urlpatterns = [
    path("trials/<int:trial_id>/lines", lines.of_trial),
    path("trials/<int:trial_id>/lines/find", lines.find_of_trial),
    path("trials/<int:trial_id>/log.txt", lines.file_of_trial),
    path("trials/<int:trial_id>/ranks", ranks.of_trial),
    path("trials/<int:trial_id>/logs/columns", columns.of_trial),
    path("commands/<uuid:command_id>/lines", lines.of_command),
    path("commands/<uuid:command_id>/lines/find", lines.find_of_command),
    path("commands/<uuid:command_id>/log.txt", lines.file_of_command),
    path("commands/<uuid:command_id>/ranks", ranks.of_command),
    path("commands/<uuid:command_id>/logs/columns", columns.of_command),
    path("tasks/<str:task_id>/log/keep", held.keep),
    path("tasks/<str:task_id>/ranks/<int:rank>/stack", rank_stacks.of_rank),
    path("usage/logs", held.meter),
]
