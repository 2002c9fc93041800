"""Addresses of the console. Every view is a link."""

from __future__ import annotations

from django.urls import path

from webui.pages import (
    account,
    audit,
    cluster,
    find,
    goodput,
    overview,
    profiler,
    saved_views,
    session,
    usage,
)
from webui.pages.experiments import again, chosen, code, create, edit, experiment, listing, notes, templates
from webui.pages.frame import View, leads_to, page
from webui.pages.groups import page as groups
from webui.pages.hosts import adding, samples
from webui.pages.hosts import page as hosts
from webui.pages.logs import held, lines, ranks
from webui.pages.manage_job import dialog, edits
from webui.pages.metrics import page as metrics
from webui.pages.notifications import page as notifications
from webui.pages.places import page as places
from webui.pages.places import project_notes
from webui.pages.pools import page as pools
from webui.pages.pools import windows
from webui.pages.queue import board, job
from webui.pages.schedules import page as schedules
from webui.pages.search import charts, tree
from webui.pages.search import trials as search_trials
from webui.pages.tasks import form as task_form
from webui.pages.tasks import page as tasks
from webui.pages.trials import checkpoints, compare, media, trial
from webui.pages.users import page as users

_E = "experiments/<int:experiment_id>"
_T = "trials/<int:trial_id>"
_C = "commands/<uuid:command_id>"


def _of_trial(view: View) -> View:
    """The view of a task's log at the address of its trial."""
    return page(lambda request, trial_id: view(request, trial.find(trial_id).task_id))


def _of_command(view: View) -> View:
    """The view of a task's log at the address of its command."""
    return page(lambda request, command_id: view(request, tasks.find(command_id).task_id))


urlpatterns = [
    path("", leads_to("/overview")),
    path("overview", overview.overview),
    path("overview/seen", overview.seen),
    path("login", session.login),
    path("logout", session.logout),
    path("find", find.find),
    path("views", saved_views.save),
    path("views/<int:view_id>", saved_views.act),
    path("cluster", cluster.overview),
    path("cluster/chart", cluster.chart),
    path("settings", account.overview),
    path("settings/profile", account.profile),
    path("settings/password", account.password),
    path("settings/tokens", account.make_token),
    path("settings/tokens/<int:token_id>/revoke", account.revoke_token),
    # users, and who changed what
    path("groups", groups.listing),
    path("groups/+new", groups.new),
    path("groups/<str:name>", groups.detail),
    path("groups/<str:name>/chart", groups.chart),
    path("groups/<str:name>/edit", groups.edit),
    path("groups/<str:name>/delete", groups.delete),
    path("users", users.listing),
    path("users/+new", users.new),
    path("users/<int:user_id>", users.detail),
    path("users/<int:user_id>/edit", users.edit),
    path("users/<int:user_id>/do/<slug:action>", users.act),
    path("users/<int:user_id>/tokens/<int:token_id>/revoke", users.revoke_token),
    path("audit", audit.overview),
    path("audit.csv", audit.export),
    path("usage", usage.overview),
    path("usage/chart", usage.chart),
    path("usage/goodput", goodput.overview),
    # searches: what is under an experiment, a trial or a command comes before its <slug:tab>
    path(f"{_E}/search", tree.detail),
    path(f"{_E}/trials", search_trials.detail),
    path(f"{_E}/trials/kill", search_trials.kill),
    path(f"{_E}/visualization", charts.detail),
    path(f"{_E}/visualisation", charts.at_former_address),
    path(f"{_E}/visualization/<slug:way>", charts.detail),
    path(f"{_E}/visualisation/<slug:way>", charts.at_former_address),
    path(f"{_E}/media", media.of_experiment),
    # metrics, the profiler and media of a trial
    path(f"{_T}/metrics", metrics.detail),
    path(f"{_T}/metrics/pins", metrics.pin),
    path(f"{_T}/metrics/curves", metrics.data),
    path(f"{_T}/metrics/points.csv", metrics.export),
    path(f"{_T}/media", media.of_trial),
    path(f"{_T}/hangs/<int:hang_id>", trial.hang),
    path(f"{_T}/goodput", goodput.of_trial),
    path(f"{_T}/profiler", profiler.detail),
    path(f"{_T}/profiler/samples", profiler.points),
    path(f"{_T}/profiler/samples.csv", profiler.samples_file),
    path(f"{_T}/profiler/timings", profiler.step_charts),
    path(f"{_T}/profiler/timings.csv", profiler.timings_file),
    # logs
    path(f"{_T}/lines", _of_trial(lines.lines)),
    path(f"{_T}/lines/find", _of_trial(lines.find)),
    path(f"{_T}/log.txt", lines.file_of_trial),
    path(f"{_T}/ranks", _of_trial(ranks.choose)),
    path(f"{_T}/logs/columns", lines.columns_of_trial),
    path(f"{_C}/lines", _of_command(lines.lines)),
    path(f"{_C}/lines/find", _of_command(lines.find)),
    path(f"{_C}/log.txt", lines.file_of_command),
    path(f"{_C}/ranks", _of_command(ranks.choose)),
    path(f"{_C}/logs/columns", lines.columns_of_command),
    path("tasks/<str:task_id>/log/keep", held.keep),
    path("tasks/<str:task_id>/ranks/<int:rank>/stack", ranks.stack),
    path("usage/logs", held.meter),
    # experiments and templates
    path("experiments", listing.listing),
    path("experiments/columns", listing.columns),
    path("experiments/new", create.new),
    path("experiments/check", create.check),
    path("experiments/preview-notes", notes.preview),
    path("experiments/chosen/<slug:action>", chosen.act),
    path(_E, experiment.detail),
    path(f"{_E}/continue", again.go_on),
    path(f"{_E}/fork", create.fork),
    path(f"{_E}/code", code.code),
    path(f"{_E}/code.zip", code.download),
    path(f"{_E}/config", code.config),
    path(f"{_E}/notes", notes.notes),
    path(f"{_E}/edit", edit.edit),
    path(f"{_E}/delete", edit.delete),
    path(f"{_E}/chart", experiment.chart),
    # POST only; the pages of an experiment are GET, so the two never meet
    path(f"{_E}/<slug:tab>", experiment.detail_or_act),
    path("templates", templates.listing),
    path("templates/+new", templates.new),  # no name of a template begins with a plus
    path("templates/<str:name>", templates.detail),
    path("templates/<str:name>/remove", templates.remove),
    # Determined's addresses, as its published client prints them
    path(f"det/{_E}", experiment.detail),
    path(
        f"det/{_E}/<path:rest>",
        leads_to("/experiments/%(experiment_id)s"),
    ),
    # trials
    path(_T, trial.detail),
    path(f"{_T}/chart", trial.chart),
    path(f"{_T}/checkpoints/<uuid:checkpoint_uuid>", checkpoints.detail),
    path(f"{_T}/checkpoints/<uuid:checkpoint_uuid>/delete", checkpoints.delete),
    path(f"{_T}/<slug:tab>", trial.detail),
    path("compare", compare.compare),
    path("compare/chart", compare.chart),
    path(f"det/{_T}", trial.detail),
    # tasks
    path("commands", tasks.commands),
    path(_C, tasks.detail),
    path(f"{_C}/kill", tasks.kill),
    path(f"{_C}/<slug:tab>", tasks.detail),
    path("arrays/<uuid:array_id>/kill", tasks.kill_array),
    path("arrays/<uuid:array_id>/rerun", tasks.rerun),
    path("schedules", schedules.listing),
    path("schedules/+new", schedules.new),
    path("schedules/<str:name>", schedules.detail),
    path("schedules/<str:name>/do/<slug:action>", schedules.act),
    path("tasks", tasks.listing),
    path("tasks/+new", task_form.new),
    path("tasks/+tensorboard", task_form.tensorboard),
    path("tasks/<uuid:task_id>", tasks.waiting),
    path("tasks/<uuid:task_id>/terminal", tasks.terminal),
    # what Determined's client opens for a notebook or a TensorBoard
    path("det/interactive/<uuid:task_id>/<path:rest>", leads_to("/tasks/%(task_id)s")),
    # the job queue
    path("jobs", board.board),
    path("jobs/job/<uuid:job_id>", job.detail),
    path("jobs/<str:pool_name>", board.board),
    path("jobs/manage/<uuid:job_id>", dialog.manage),
    path("jobs/manage/<uuid:job_id>/preview", dialog.preview),
    path("jobs/menu/<uuid:job_id>", job.menu),
    path("jobs/logs/<uuid:job_id>", job.logs),
    path("jobs/edits/make", edits.make),
    path("jobs/edits/undo", edits.undo),
    # workspaces and projects
    path("workspaces", places.workspaces),
    path("workspaces/+new", places.new_workspace),
    path("workspaces/<int:workspace_id>", places.workspace),
    path("workspaces/<int:workspace_id>/edit", places.edit_workspace),
    path("workspaces/<int:workspace_id>/+project", places.new_project),
    path("workspaces/<int:place_id>/<slug:action>", places.act, {"kind": "workspaces"}),
    path("projects/<int:project_id>", places.project),
    path("projects/<int:project_id>/edit", places.edit_project),
    path("projects/<int:project_id>/notes", project_notes.notes),
    path("projects/<int:place_id>/<slug:action>", places.act, {"kind": "projects"}),
    # addresses of Determined's console
    path("det/workspaces/<int:pk>", leads_to("/workspaces/%(pk)s")),
    path("det/projects/<int:pk>", leads_to("/projects/%(pk)s")),
    # hosts
    path("hosts", hosts.listing),
    path("hosts/+new", adding.new),  # no name of a host begins with a plus
    path("hosts/<str:name>", hosts.detail),
    path("hosts/<str:name>/adding", adding.go_on),
    path("hosts/<str:name>/edit", adding.edit),
    path("hosts/<str:name>/menu", hosts.menu),
    path("hosts/<str:name>/chart", samples.chart),
    path("hosts/<str:name>/<slug:action>", hosts.act),
    path("hosts/<str:name>/slots/<int:index>/menu", hosts.menu),
    path("hosts/<str:name>/slots/<int:index>/<slug:action>", hosts.act_on_slot),
    # pools
    path("pools", pools.listing),
    path("pools/+new", pools.new),  # no name of a pool begins with a plus
    path("pools/<str:name>", pools.detail),
    path("pools/<str:name>/chart", pools.chart),
    path("pools/<str:name>/edit", pools.edit),
    path("pools/<str:name>/remove", pools.remove),
    path("pools/<str:name>/windows/+new", windows.new),  # no name of a window begins with a plus
    path("pools/<str:name>/windows/<str:window>", windows.edit),
    path("pools/<str:name>/windows/<str:window>/remove", windows.remove),
    path("pools/<str:name>/pairs/test", pools.test_pairs),
    path("pools/<str:name>/pairs/burn-in", pools.burn_in_together),
    path("pools/<str:name>/<slug:tab>", pools.detail),
    # notifications
    path("settings/notifications", notifications.listing),
    path("settings/notifications/+new", notifications.new),
    path("settings/notifications/preview", notifications.preview),
    path("settings/notifications/<int:rule_id>", notifications.detail),
    path("settings/notifications/<int:rule_id>/edit", notifications.edit),
    path("settings/notifications/<int:rule_id>/do/<slug:action>", notifications.act),
    path("settings/notifications/<int:rule_id>/deliveries/<uuid:delivery_id>/retry", notifications.retry),
]
