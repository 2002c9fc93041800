"""Addresses of the console. Every view is a link."""

from django.urls import path
from django.views.generic import RedirectView

from webui.pages import (
    commands,
    experiment,
    experiments,
    hosts,
    log_lines,
    manage_job,
    manage_job_edits,
    manage_job_menu,
    manage_job_undo,
    pools,
    pools_form,
    pools_pairs,
    queue,
    queue_job,
    session,
    trial,
)

urlpatterns = [
    path("", RedirectView.as_view(url="/experiments")),
    path("login", session.login),
    path("logout", session.logout),
    path("experiments", experiments.listing),
    path("experiments/<int:experiment_id>", experiment.detail),
    # POST only; the pages of an experiment are GET, so the two never meet
    path("experiments/<int:experiment_id>/<slug:tab>", experiment.detail_or_act),
    path("trials/<int:trial_id>", trial.detail),
    path("trials/<int:trial_id>/chart", trial.chart),
    path("trials/<int:trial_id>/lines", log_lines.of_trial),
    path("trials/<int:trial_id>/log.txt", log_lines.file_of_trial),
    path("trials/<int:trial_id>/<slug:tab>", trial.detail),
    path("commands", commands.listing),
    path("commands/<uuid:command_id>", commands.detail),
    path("commands/<uuid:command_id>/kill", commands.kill),
    path("commands/<uuid:command_id>/lines", log_lines.of_command),
    path("commands/<uuid:command_id>/log.txt", log_lines.file_of_command),
    path("commands/<uuid:command_id>/<slug:tab>", commands.detail),
    path("jobs", queue.board),
    path("jobs/job/<uuid:job_id>", queue_job.detail),
    path("jobs/manage/<uuid:job_id>", manage_job.manage),
    path("jobs/manage/<uuid:job_id>/preview", manage_job.preview),
    path("jobs/menu/<uuid:job_id>", manage_job_menu.menu),
    path("jobs/logs/<uuid:job_id>", manage_job_menu.logs),
    path("jobs/edits/make", manage_job_edits.make),
    path("jobs/edits/undo", manage_job_undo.undo),
    path("jobs/<str:pool_name>", queue.board),
    path("hosts", hosts.listing),
    path("hosts/<str:name>", hosts.detail),
    path("hosts/<str:name>/<slug:action>", hosts.act),
    path("hosts/<str:name>/slots/<int:index>/<slug:action>", hosts.act_on_slot),
    path("pools", pools.listing),
    path("pools/+new", pools_form.new),  # no name of a pool begins with a plus
    path("pools/<str:name>", pools.detail),
    path("pools/<str:name>/chart", pools.chart),
    path("pools/<str:name>/edit", pools_form.edit),
    path("pools/<str:name>/remove", pools_form.remove),
    path("pools/<str:name>/pairs/test", pools_pairs.test),
    path("pools/<str:name>/<slug:tab>", pools.detail),
    # Determined's addresses, as its published client prints them
    path("det/experiments/<int:experiment_id>", experiment.detail),
    path("det/experiments/<int:experiment_id>/<path:rest>", experiment.from_determined),
    path("det/trials/<int:trial_id>", trial.detail),
]
