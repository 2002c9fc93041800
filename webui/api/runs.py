"""Runs, as the dialect calls trials that are searched and handled across experiments."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, ClassVar

from django.db.models import QuerySet
from django.utils import timezone
from pydantic import Field
from rest_framework import serializers
from rest_framework.request import Request

from accounts.models import User
from accounts.refusals import Refusal
from accounts.rights import Right
from experiments import edits, outcomes, phases
from experiments.actions import ACTIONS
from experiments.models import Project, Trial
from shown import trials as shown_trials
from shown.run_search import RunFilter, in_order
from webui.api import encoding
from webui.api.answers import Answer, Maybe, Number64, Pagination, Stored, Time, one_of
from webui.api.errors import existing
from webui.api.permissions import actor, person, require_owner
from webui.api.trial_encoding import STATES
from webui.api.views import ApiView, Json


class RunExperiment(Answer):
    """The experiment of a run, as far as a table of runs shows it."""

    id: int
    name: str
    description: str
    searcher_type: str
    searcher_metric: str
    resource_pool: str
    progress: float
    unmanaged: bool
    is_multitrial: bool
    forked_from: Maybe[int] = None
    external_experiment_id: Maybe[str] = None


class RunRecord(Answer):
    """A run. `localId`: the project's key and the run's number."""

    id: int
    local_id: str
    start_time: Time
    end_time: Time | None
    duration: Annotated[int, Field(description="seconds, until now if it has not ended")]
    state: Annotated[str, one_of(*STATES)]
    labels: list[str]
    checkpoint_size: Number64
    checkpoint_count: int
    searcher_metric_value: Maybe[float] = None
    external_run_id: Maybe[str] = None
    hyperparameters: Stored[Json]
    summary_metrics: Stored[Json]
    metadata: Stored[Json]
    user_id: int
    project_id: int
    project_name: str
    workspace_id: int
    workspace_name: str
    parent_archived: bool
    archived: bool
    log_policy_matched: Maybe[str] = None
    experiment: RunExperiment


class RunsAnswer(Answer):
    runs: list[RunRecord]
    pagination: Pagination


class RunResult(Answer):
    id: int
    error: Annotated[str, Field(description="why the action failed; empty if it succeeded")]


class RunResults(Answer):
    results: list[RunResult]


class RunsSearch(serializers.Serializer[Any]):
    """`filter`: a tree of conditions, as JSON text; `sort`: such as `startTime=desc,hp.lr=asc`."""

    projectId = serializers.IntegerField(required=False, allow_null=True)
    offset = serializers.IntegerField(required=False, default=0, min_value=0)
    limit = serializers.IntegerField(required=False, default=0, min_value=-2)
    sort = serializers.CharField(required=False, allow_null=True, allow_blank=True)
    filter = serializers.CharField(required=False, allow_null=True, allow_blank=True)


class RunsBody(serializers.Serializer[Any]):
    """The runs: by id, or all in the project that fit the filter."""

    runIds = encoding.list_of(serializers.IntegerField(), allow_null=True)
    projectId = serializers.IntegerField(required=False, allow_null=True)
    filter = serializers.CharField(required=False, allow_null=True, allow_blank=True)


class MoveRunsBody(RunsBody):
    """`skipMultitrial`: leave runs of searches where they are."""

    sourceProjectId = serializers.IntegerField(required=False, allow_null=True)
    destinationProjectId = serializers.IntegerField()
    skipMultitrial = serializers.BooleanField(required=False, default=False)


class Runs(ApiView):
    """Runs of one project or of all, in an order, as far as they fit a filter."""

    rights = {"POST": Right.OWN}
    bodies = {"POST": RunsSearch}

    def post(self, request: Request) -> RunsAnswer:
        body = self.body(request)
        rows = _in_project(body.get("projectId"))
        if body.get("filter"):
            rows = RunFilter.read(body["filter"]).of(rows)
        return encoding.page(RunsAnswer, in_order(rows, body.get("sort") or ""), body, encode_run)


def _in_project(project_id: int | None) -> QuerySet[Trial]:
    """The runs of the project; none, 0 and -1: of all."""
    rows = shown_trials.with_numbers().select_related(
        "experiment__owner", "experiment__job__pool", "experiment__project__workspace"
    )
    return rows.filter(experiment__project_id=project_id) if project_id and project_id > 0 else rows


def encode_run(trial: Any) -> RunRecord:
    """One row of `shown.trials.with_numbers`."""
    experiment, project = trial.experiment, trial.experiment.project
    searcher = experiment.config.get("searcher") or {}
    end = trial.ended_at or timezone.now()
    return RunRecord.of(
        trial,
        local_id=f"{project.key}-{trial.pk}",
        start_time=trial.started_at,
        end_time=trial.ended_at,
        duration=int((end - trial.started_at).total_seconds()),
        state=f"STATE_{phases.of(trial)}",
        labels=experiment.labels,
        checkpoint_size=str(trial.checkpoint_bytes),
        searcher_metric_value=trial.searcher_metric,
        external_run_id=trial.external_id,
        hyperparameters=trial.hparams,
        user_id=experiment.owner_id,
        project_id=project.pk,
        project_name=project.name,
        workspace_id=project.workspace_id,
        workspace_name=project.workspace.name,
        parent_archived=project.archived or project.workspace.archived,
        archived=experiment.archived,
        log_policy_matched=trial.log_labels[-1] if trial.log_labels else None,
        experiment=RunExperiment.of(
            experiment,
            searcher_type=searcher.get("name", ""),
            searcher_metric=searcher.get("metric") or "",
            resource_pool="" if experiment.unmanaged else experiment.job.pool.name,
            progress=experiment.progress or 0.0,
            is_multitrial=_is_search(trial),
            forked_from=experiment.parent_id,
            external_experiment_id=experiment.external_id,
        ),
    )


def _is_search(trial: Trial) -> bool:
    return (trial.experiment.config.get("searcher") or {}).get("name") not in {None, "single"}


#: actions of the dialect on runs -> ours on the experiment that they are part of
EXPERIMENT_ACTIONS = {
    "archive": "archive", "unarchive": "unarchive", "delete": "delete", "pause": "pause", "resume": "activate",
}  # fmt: skip
#: what an experiment does with all its trials or with none
_WHOLE = {"archive", "unarchive", "delete"}


class RunAction(ApiView):
    """Kill runs, or archive, delete, pause or resume the experiments that they are."""

    rights = {"POST": Right.EDIT}
    action: ClassVar[str] = ""
    bodies = {"POST": RunsBody}

    def post(self, request: Request) -> RunResults:
        body, user = self.body(request), person(request)
        step = self.step(body, actor(request))
        found = self._meant(body)
        there = {trial.pk for trial in found}
        missing = [pk for pk in body.get("runIds") or [] if pk not in there]
        results = [
            RunResult(id=trial.pk, error=self.refused(body, trial) or _error(user, trial, step))
            for trial in found
        ]
        return RunResults(
            results=[*results, *(RunResult(id=pk, error=f"Run with id '{pk}' not found") for pk in missing)]
        )

    def step(self, body: Json, who: str) -> Callable[[Trial], object]:
        """What is done with one run. Raises Refusal."""
        if self.action == "kill":
            return lambda trial: outcomes.kill_trial(trial.pk, actor=who)
        return _once(partial(ACTIONS[EXPERIMENT_ACTIONS[self.action]].run, actor=who))

    def _meant(self, body: Json) -> list[Trial]:
        rows = _in_project(body.get("sourceProjectId") or body.get("projectId"))
        if body.get("filter"):
            return list(RunFilter.read(body["filter"]).of(rows).order_by("pk"))
        return list(rows.filter(pk__in=body.get("runIds") or []).order_by("pk"))

    def refused(self, body: Json, trial: Trial) -> str:
        """Why this run is left as it is, or nothing."""
        if self.action not in _WHOLE or not _is_search(trial):
            return ""
        return (
            f"Run {trial.pk} is part of the search of experiment {trial.experiment_id}, which is archived, "
            "unarchived and deleted as a whole."
        )


class MoveRuns(RunAction):
    """Move the experiments that the runs are part of to another project."""

    action = "move"
    bodies = {"POST": MoveRunsBody}

    def step(self, body: Json, who: str) -> Callable[[Trial], object]:
        projects = Project.objects.select_related("workspace")
        project = existing(projects, "project", pk=body["destinationProjectId"])

        return _once(lambda pk: edits.move(pk, project, actor=who))

    def refused(self, body: Json, trial: Trial) -> str:
        skipped = body["skipMultitrial"] and _is_search(trial)
        return f"Skipping run '{trial.pk}' (part of multi-trial)." if skipped else ""


def _once(step: Callable[[int], object]) -> Callable[[Trial], object]:
    """The step with the experiment of each run, though several runs are of one."""
    refusals: dict[int, Refusal | None] = {}

    def taken(trial: Trial) -> None:
        pk = trial.experiment_id
        if pk not in refusals:
            refusals[pk] = None
            try:
                step(pk)
            except Refusal as refusal:
                refusals[pk] = refusal
        if (refused := refusals[pk]) is not None:
            raise refused

    return taken


def _error(user: User, trial: Trial, step: Callable[[Trial], object]) -> str:
    try:
        require_owner(user, trial.experiment)
        step(trial)
    except Refusal as refusal:
        return str(refusal)
    return ""
