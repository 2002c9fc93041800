from django.urls import path

from webui.pages.frame import View, page
from webui.pages.logs import held, lines, ranks
from webui.pages.tasks import page as tasks
from webui.pages.trials import trial


def _of_trial(view: View) -> View:
    """The view of a task's log at the address of its trial."""
    return page(lambda request, trial_id: view(request, trial.find(trial_id).task_id))


def _of_command(view: View) -> View:
    """The view of a task's log at the address of its command."""
    return page(lambda request, command_id: view(request, tasks.find(command_id).task_id))


urlpatterns = [
    path("trials/<int:trial_id>/lines", _of_trial(lines.lines)),
    path("trials/<int:trial_id>/lines/find", _of_trial(lines.find)),
    path("trials/<int:trial_id>/log.txt", lines.file_of_trial),
    path("trials/<int:trial_id>/ranks", _of_trial(ranks.choose)),
    path("trials/<int:trial_id>/logs/columns", lines.columns_of_trial),
    path("commands/<uuid:command_id>/lines", _of_command(lines.lines)),
    path("commands/<uuid:command_id>/lines/find", _of_command(lines.find)),
    path("commands/<uuid:command_id>/log.txt", lines.file_of_command),
    path("commands/<uuid:command_id>/ranks", _of_command(ranks.choose)),
    path("commands/<uuid:command_id>/logs/columns", lines.columns_of_command),
    path("tasks/<str:task_id>/log/keep", held.keep),
    path("tasks/<str:task_id>/ranks/<int:rank>/stack", ranks.stack),
    path("usage/logs", held.meter),
]
