"""Addresses of the REST dialect, under /api/v1 (features.md section 11)."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, JsonResponse
from django.urls import URLPattern, path, re_path, register_converter
from django.urls.converters import IntConverter
from django.views.decorators.csrf import csrf_exempt

from accounts.rights import Right, declares
from experiments.actions import ACTIONS
from hosts import registry
from shown import absent
from webui.api import (
    agents,
    arrays,
    async_routes,
    audit,
    auth,
    checkpoint_deletion,
    checkpoint_files,
    checkpoint_uses,
    checkpoints,
    cluster,
    cluster_message,
    commands,
    detached,
    docs,
    event_files,
    experiment_actions,
    experiment_files,
    experiment_results,
    experiments,
    explain,
    goodput,
    group_burn_ins,
    groups,
    host_health,
    hosts,
    job_queue,
    job_queue_edits,
    log_retention,
    master_config,
    media,
    notebooks,
    pool_doctor,
    pool_forecasts,
    pool_shares,
    pool_windows,
    profiler,
    projects,
    pulse,
    resource_pools,
    resource_usage,
    runs,
    samples,
    schedules,
    schemas,
    search_preview,
    shells,
    task_kill,
    tasks,
    templates,
    tensorboards,
    tokens,
    trial_timings,
    trial_work,
    trials,
    users,
    webhooks,
    why_stopped,
    workspaces,
)
from webui.api.errors import json_error
from webui.api.views import ApiView


class ProjectConverter(IntConverter):
    """The number of a project, or -1 for all projects, as the published client writes it."""

    regex = "-1|[0-9]+"


register_converter(ProjectConverter, "project")

_E = "experiments/<int:experiment_id>"
_T = "trials/<int:trial_id>"
_W = "webhooks/<int:rule_id>"
_BULK = "projects/<project:project_id>/experiments"


def _at(route: str, view: type[ApiView], **options: Any) -> URLPattern:
    return path(f"api/v1/{route}", view.as_view(**options))


@declares({"*": Right.OPEN})
@csrf_exempt
def nothing(request: HttpRequest) -> JsonResponse:
    said = absent.sentence(request.path)
    return json_error(404, said or f"There is nothing at {request.path}; see /api/v1/docs for all paths.")


@declares({"*": Right.OPEN})
@csrf_exempt
def no_checkpoint(request: HttpRequest, name: str) -> JsonResponse:
    return json_error(404, f"There is no checkpoint {name!r}; give the full UUID of 36 characters.")


urlpatterns: list[URLPattern] = [
    path("info", cluster.info),
    path("health", cluster.health),
    # people
    _at("auth/login", auth.Login),
    _at("auth/logout", auth.Logout),
    _at("auth/user", auth.Me),
    _at("me", auth.Me),
    _at("tokens", tokens.Tokens),
    _at("tokens/<int:token_id>", tokens.OneToken),
    _at("users", users.Users),
    _at("users/setting", users.UserSettings),
    _at("users/setting/reset", users.UserSettingsReset),
    _at("users/<int:user_id>", users.OneUser),
    _at("users/<str:username>/by-username", users.UserByName),
    _at("schedules", schedules.Schedules),
    _at("schedules/<str:name>", schedules.OneSchedule),
    _at("schedules/<str:name>/pause", schedules.SchedulePause),
    _at("schedules/<str:name>/resume", schedules.ScheduleResume),
    _at("schedules/<str:name>/run", schedules.ScheduleRun),
    _at("groups", groups.Groups),
    _at("groups/search", groups.GroupsFound),
    _at("groups/<int:group_id>", groups.OneGroup),
    _at("audit", audit.Audit),
    # webhooks
    _at("webhooks", webhooks.Webhooks),
    _at("webhooks/custom", webhooks.WebhookCustom),
    _at(_W, webhooks.OneWebhook),
    _at(f"{_W}/test", webhooks.WebhookTest),
    _at(f"{_W}/key", webhooks.WebhookKey),
    _at(f"{_W}/deliveries", webhooks.WebhookDeliveries),
    _at(f"{_W}/deliveries/<uuid:delivery_id>/retry", webhooks.DeliveryRetry),
    # hosts, pools and what was used
    _at("master", cluster.Master),
    _at("master/config", master_config.MasterConfig),
    _at("master/cluster_message", cluster_message.ClusterMessage),
    _at("agents", agents.Agents),
    _at("agents/<str:name>", agents.OneAgent),
    _at("agents/<str:name>/enable", agents.AgentEnable),
    _at("agents/<str:name>/disable", agents.AgentDisable),
    _at("agents/<str:name>/slots", agents.AgentSlots),
    _at("agents/<str:name>/slots/<str:index>", agents.AgentSlot),
    _at("agents/<str:name>/slots/<str:index>/enable", agents.SlotEnable),
    _at("agents/<str:name>/slots/<str:index>/disable", agents.SlotDisable),
    _at("hosts", hosts.Hosts),
    _at("hosts/server-key", hosts.ServerKey),
    _at("hosts/<str:name>", hosts.OneHost),
    _at("hosts/<str:name>/accept-key", hosts.AcceptKey),
    _at("hosts/<str:name>/samples", samples.HostSamples),
    _at("hosts/<str:name>/health", host_health.HostHealth),
    _at("hosts/<str:name>/quarantine", host_health.HostQuarantine),
    _at("hosts/<str:name>/release", host_health.HostRelease),
    _at("hosts/<str:name>/burn-in", host_health.HostBurnIn),
    _at("group-burn-ins", group_burn_ins.GroupBurnIns),
    _at("group-burn-ins/<uuid:command_id>", group_burn_ins.OneGroupBurnIn),
    *(
        _at(
            f"hosts/<str:name>/{step}",
            hosts.HostStep,
            step=step,
            statuses=hosts.STEPS_THAT_TAKE_TIME.get(step, {}),
        )
        for step in registry.STEPS
    ),
    _at("resource-pools", resource_pools.ResourcePools),
    _at("resource-pools/<str:name>", resource_pools.OneResourcePool),
    _at("resource-pools/<str:name>/doctor", pool_doctor.PoolDoctor),
    _at("resource-pools/<str:name>/forecasts", pool_forecasts.PoolForecasts),
    _at("resource-pools/<str:name>/shares", pool_shares.PoolShares),
    _at("resource-pools/<str:name>/windows", pool_windows.PoolWindows),
    _at("resource-pools/<str:name>/windows/<str:window>", pool_windows.OnePoolWindow),
    _at("resources/allocation/raw", resource_usage.RawAllocation),
    _at("resources/allocation/aggregated", resource_usage.AggregatedAllocation),
    _at("resources/goodput", goodput.Goodput),
    path("resources/goodput", goodput.as_csv),
    path("resources/allocation/raw", resource_usage.raw),
    path("resources/allocation/aggregated", resource_usage.aggregated),
    path("resources/allocation/allocations-csv", resource_usage.attempts),
    # the queue and its tasks
    _at("job-queues", job_queue.JobQueue),
    _at("job-queues-v2", job_queue.JobQueueV2),
    _at("job-queues/stats", job_queue.JobQueueStats),
    _at("job-queues/preview", job_queue_edits.JobQueuePreview),
    _at("job-queues/undo", job_queue_edits.JobQueueUndo),
    _at("job-queues/<str:job_id>/edits", explain.JobEdits),
    _at("jobs/<str:job_id>/explain", explain.Explain),
    _at("tasks", tasks.Tasks),
    _at("tasks/count", tasks.TaskCount),
    _at("tasks/<str:task_id>", tasks.OneTask),
    _at("tasks/<str:task_id>/kill", task_kill.TaskKill),
    _at("tasks/<str:task_id>/hangs", pulse.TaskHangs),
    _at("tasks/<str:task_id>/pulse", pulse.TaskPulse),
    _at("tasks/<str:task_id>/samples", samples.TaskSamples),
    _at("tasks/<str:task_id>/why-stopped", why_stopped.TaskWhyStopped),
    # commands and services
    _at("arrays/<str:array_id>", arrays.OneArray),
    _at("arrays/<str:array_id>/kill", arrays.ArrayKill),
    _at("arrays/<str:array_id>/rerun", arrays.ArrayRerun),
    _at("commands", commands.Commands),
    _at("commands/<str:command_id>", commands.OneCommand),
    _at("commands/<str:command_id>/kill", commands.CommandKill),
    _at("commands/<str:command_id>/set_priority", commands.CommandPriority),
    _at("shells", shells.Shells),
    _at("shells/<str:command_id>", shells.OneShell),
    _at("shells/<str:command_id>/kill", shells.ShellKill),
    _at("shells/<str:command_id>/set_priority", shells.ShellPriority),
    _at("notebooks", notebooks.Notebooks),
    _at("notebooks/<str:command_id>", notebooks.OneNotebook),
    _at("notebooks/<str:command_id>/kill", notebooks.NotebookKill),
    _at("notebooks/<str:command_id>/set_priority", notebooks.NotebookPriority),
    _at("notebooks/<str:command_id>/report_idle", notebooks.NotebookIdle),
    _at("tensorboards", tensorboards.Tensorboards),
    _at("tensorboards/<str:command_id>", tensorboards.OneTensorboard),
    _at("tensorboards/<str:command_id>/kill", tensorboards.TensorboardKill),
    _at("tensorboards/<str:command_id>/set_priority", tensorboards.TensorboardPriority),
    # experiments
    _at("experiments", experiments.Experiments),
    _at("experiments/continue", experiment_actions.ExperimentContinue),
    _at("experiment/labels", experiment_results.AllLabels),
    _at(_E, experiments.OneExperiment),
    *(
        _at(f"{_E}/{action}", experiment_actions.ExperimentAction, action=action)
        for action in ACTIONS
        if action != "delete"
    ),
    _at(f"{_E}/move", experiment_actions.ExperimentMove),
    _at(f"{_E}/labels/<path:label>", experiment_results.ExperimentLabel),
    _at(f"{_E}/trials", experiment_results.ExperimentTrials),
    _at(f"{_E}/checkpoints", experiment_results.ExperimentCheckpoints),
    _at(f"{_E}/validation-history", experiment_results.ValidationHistory),
    _at(f"{_E}/searcher/best_searcher_validation_metric", experiment_results.BestMetric),
    _at(f"{_E}/model_def", experiment_files.ModelDef),
    _at(f"{_E}/file_tree", experiment_files.FileTree),
    _at(f"{_E}/tensorboard-files", event_files.EventFiles),
    _at(f"{_E}/file", experiment_files.File),
    *(
        _at(f"{_BULK}/{action}", experiment_actions.BulkAction, action=action)
        for action in [*ACTIONS, "move"]
        if action != "delete"
    ),
    _at(f"{_BULK}/delete", experiment_actions.BulkDelete),
    # trials and checkpoints
    _at("trials/time-series", trial_work.TimeSeries),
    _at("trials/profiler/metrics", profiler.ProfilerMetrics),
    _at(_T, trials.OneTrial),
    _at(f"{_T}/kill", trials.TrialKill),
    _at(f"{_T}/why-stopped", why_stopped.TrialWhyStopped),
    _at(f"{_T}/workloads", trial_work.TrialWorkloads),
    _at(f"{_T}/checkpoints", trials.TrialCheckpoints),
    _at(f"{_T}/metrics", trials.TrialMetrics),
    _at(f"{_T}/media", media.TrialMedia),
    _at(f"{_T}/samples", samples.TrialSamples),
    _at(f"{_T}/timings", trial_timings.TrialTimings),
    _at(f"{_T}/goodput", goodput.TrialGoodput),
    _at(f"{_T}/training_metrics", trials.TrialMetricsOfGroup, group="training"),
    _at(f"{_T}/validation_metrics", trials.TrialMetricsOfGroup, group="validation"),
    _at(f"{_T}/progress", trials.TrialProgress),
    _at(f"{_T}/early_exit", trials.EarlyExit),
    _at(f"{_T}/runner/metadata", trials.RunnerMetadata),
    _at("checkpoints", checkpoints.Checkpoints),
    _at("checkpoints/rm", checkpoint_deletion.RemoveFiles),
    _at("checkpoints/deletion-preview", checkpoint_deletion.DeletionPreview),
    _at("checkpoints/<uuid:checkpoint_uuid>", checkpoints.OneCheckpoint),
    _at("checkpoints/<uuid:checkpoint_uuid>/metadata", checkpoints.CheckpointMetadata),
    _at("checkpoints/<uuid:checkpoint_uuid>/metrics", checkpoint_uses.CheckpointMetrics),
    path("api/v1/checkpoints/<str:name>", no_checkpoint),
    _at("trial-source-info", checkpoint_uses.TrialSource),
    path(f"{_E}/preview_gc", checkpoint_deletion.PreviewGc.as_view()),
    # the published client asks here, without /api/v1
    path("checkpoints/<uuid:checkpoint_uuid>", checkpoint_files.whole),
    # detached runs
    _at("experiments/by-external-id/<path:external_id>", experiments.ExperimentByExternalId),
    _at("trials", detached.Trials),
    _at("trials/by-external-id/<path:experiment>/<str:trial>", detached.TrialByExternalId),
    _at(f"{_T}/start", detached.TrialStart),
    _at("runs/start", detached.RunPrepare),
    _at("runs/<int:trial_id>/metadata", detached.RunMetadata),
    # trials across experiments
    _at("runs", runs.Runs),
    _at("runs/move", runs.MoveRuns),
    *(_at(f"runs/{action}", runs.RunAction, action=action) for action in ("kill", *runs.EXPERIMENT_ACTIONS)),
    _at("task/logs", detached.TaskLogs),
    path("task-logs", detached.TaskLogs.as_view()),
    # how long logs are kept
    _at("logs/retention", log_retention.LogRetention),
    _at("cleanup_logs", log_retention.CleanupLogs),
    _at("tasks/<str:task_id>/retain_logs", log_retention.TaskRetainLogs),
    _at(f"{_T}/retain_logs", log_retention.TrialRetainLogs),
    _at(f"{_T}/remaining_log_retention_days", log_retention.TrialRemainingDays),
    _at(f"{_E}/retain_logs", log_retention.ExperimentRetainLogs),
    _at(f"{_BULK}/retain_logs", log_retention.BulkRetainLogs),
    # workspaces, projects, templates, schemas
    _at("workspaces", workspaces.Workspaces),
    _at("workspaces/<int:workspace_id>", workspaces.OneWorkspace),
    _at("workspaces/<int:workspace_id>/archive", workspaces.WorkspaceArchive, archived=True),
    _at("workspaces/<int:workspace_id>/unarchive", workspaces.WorkspaceArchive, archived=False),
    _at("workspaces/<int:workspace_id>/projects", projects.WorkspaceProjects),
    _at("workspaces/<int:workspace_id>/available-resource-pools", workspaces.AvailablePools),
    _at("projects/<int:project_id>", projects.OneProject),
    _at("projects/key/<str:key>", projects.ProjectByKey),
    _at("projects/<int:project_id>/archive", projects.ProjectArchive, archived=True),
    _at("projects/<int:project_id>/unarchive", projects.ProjectArchive, archived=False),
    _at("projects/<int:project_id>/move", projects.ProjectMove),
    _at("projects/<int:project_id>/notes", projects.ProjectNotes),
    _at("preview-hp-search", search_preview.PreviewSearch),
    _at("templates", templates.Templates),
    _at("templates/<str:name>", templates.OneTemplate),
    _at("template/rename", templates.TemplateRename),
    _at("schemas", schemas.Schemas),
    _at("schemas/<str:name>", schemas.OneSchema),
    *async_routes.urlpatterns,
    _at("openapi", docs.OpenApi),
    path("api/v1/docs", docs.page),
    re_path(r"^api/", nothing),
]
