"""Experiments: submit, list, read, change."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from django.db import IntegrityError, transaction
from pydantic import Field
from rest_framework import serializers
from rest_framework.request import Request

from accounts import rights
from accounts.models import User
from accounts.refusals import Code, Together, refused_as
from accounts.rights import Right
from experiments import all_faults, detached, edits, submit, templates, transitions
from experiments.config import MASK, ConfigError, restored, shown
from experiments.config.reading import SUBJECT
from experiments.models import Experiment
from jobs import queue_edits
from jobs.models import Task
from shown import experiments as shown_experiments
from shown.experiments import with_numbers
from shown.launch_warnings import warnings_for
from submissions import contexts, host_remarks
from submissions.config.reading import read_yaml
from submissions.models import Context
from trainmaster import yamltext
from webui.api import encoding
from webui.api.answers import Answer, Pagination
from webui.api.authentication import own_experiments
from webui.api.checkpoint_deletion import PatchCheckpointStorage, patch_policy
from webui.api.errors import BadRequest, Missing
from webui.api.experiment_encoding import ExperimentRecord, encode_experiment
from webui.api.experiment_filters import SORT, ExperimentsQuery, by_id, filters_of, total
from webui.api.job_queue_rows import JobSummary, summary_of
from webui.api.permissions import actor, idempotency_key, person, require_owner
from webui.api.views import ApiView, Json


class NewExperiment(serializers.Serializer[Any]):
    config = serializers.CharField(trim_whitespace=False)
    # no serializer for each: a folder has thousands, and submissions.contexts checks them
    modelDefinition = encoding.list_of(
        serializers.DictField(),
        allow_null=True,
        help_text="each file: {path, type (tar's flag as a number), content (base64), mtime, mode}",
    )
    template = serializers.CharField(required=False, allow_null=True, allow_blank=True)
    parentId = serializers.IntegerField(required=False, allow_null=True)
    projectId = serializers.IntegerField(required=False, allow_null=True)
    activate = serializers.BooleanField(required=False, allow_null=True, default=True)
    validateOnly = serializers.BooleanField(required=False, default=False, allow_null=True)
    unmanaged = serializers.BooleanField(required=False, default=False, allow_null=True)


class PatchResources(serializers.Serializer[Any]):
    priority = serializers.JSONField(required=False, allow_null=True)
    weight = serializers.JSONField(required=False, allow_null=True)
    maxSlots = serializers.JSONField(required=False, allow_null=True)


class ExperimentPatch(serializers.Serializer[Any]):
    name = serializers.CharField(required=False, allow_null=True, max_length=255)
    description = serializers.CharField(required=False, allow_null=True, allow_blank=True)
    notes = serializers.CharField(required=False, allow_null=True, allow_blank=True, trim_whitespace=False)
    labels = encoding.list_of(serializers.CharField(max_length=128), allow_null=True)
    resources = PatchResources(required=False, allow_null=True)
    checkpointStorage = PatchCheckpointStorage(required=False, allow_null=True)


class ExperimentsAnswer(Answer):
    experiments: list[ExperimentRecord]
    pagination: Pagination


class ExperimentAnswer(Answer):
    experiment: ExperimentRecord
    config: Json
    job_summary: Annotated[JobSummary | None, Field(description="while it is in a queue")] = None


class ChangedExperiment(Answer):
    experiment: ExperimentRecord


class PatchedExperiment(ChangedExperiment):
    notices: Annotated[list[str], Field(description="what the change does to work that runs")]


class SubmittedExperiment(ChangedExperiment):
    """`notices`: sentences about the config, and why it cannot start in its pool now."""

    config: Json
    warnings: list[str]
    notices: list[str]


def find(experiment_id: int) -> Any:
    """The experiment with its numbers. Raises Missing."""
    if (experiment := shown_experiments.one.find(experiment_id)) is None:
        raise Missing(f"experiment {experiment_id} not found")
    return experiment


class Experiments(ApiView):
    """List all experiments, newest last by default; or create one."""

    rights = {"GET": Right.READ, "POST": Right.EDIT}
    bodies = {"POST": NewExperiment}
    queries = {"GET": ExperimentsQuery}

    def get(self, request: Request) -> ExperimentsAnswer:
        query = self.query(request)
        filters = filters_of(query)
        rows = by_id(filters.of(with_numbers()), request.query_params)
        rows = rows.order_by(*encoding.ordering(query, SORT, "id", tie="id"))
        known = total(filters, request.query_params)
        return encoding.page(ExperimentsAnswer, rows, query, encode_experiment, known)

    def post(self, request: Request) -> SubmittedExperiment:
        body, user = self.body(request), person(request)
        parent = _parent(body.get("parentId"))
        body["config"] = _with_secrets(body["config"], parent, user)
        if body.get("validateOnly"):
            return _validate_only(body, parent, user)
        return _create(request, body, parent)


class ExperimentByExternalId(ApiView):
    """The unmanaged experiment with this external id, created if necessary."""

    rights = {"PUT": Right.EDIT}
    bodies = {"PUT": NewExperiment}

    def put(self, request: Request, external_id: str) -> SubmittedExperiment | ExperimentAnswer:
        body = self.body(request)
        if not body.get("unmanaged"):
            raise BadRequest("Only unmanaged experiments have an external id: send unmanaged: true.")
        if found := self._found(request, external_id):
            return found
        parent = _parent(body.get("parentId"))
        try:
            with transaction.atomic():
                return _create(request, body, parent, external_id)
        except IntegrityError:  # somebody was faster
            if found := self._found(request, external_id):
                return found
            raise

    def _found(self, request: Request, external_id: str) -> ExperimentAnswer | None:
        experiment = shown_experiments.whole().filter(external_id=external_id).first()
        if experiment is None:
            return None
        require_owner(person(request), experiment)
        detached.refuse_closed(experiment)
        encoded = encode_experiment(experiment, full=True)
        return ExperimentAnswer(experiment=encoded, config=encoded.config)


def _template(body: Json) -> templates.Used | None:
    """What the request builds on; a fork by its parent's template takes that as it was then."""
    name, parent = body.get("template"), body.get("parentId")
    of_parent = Experiment.objects.filter(pk=parent, template_name=name) if name and parent else None
    if (
        of_parent is not None
        and (row := of_parent.values_list("template_config", flat=True).first()) is not None
    ):
        return templates.Used(name or "", row)
    return templates.used(name)


def _with_secrets(text: str, parent: Experiment | None, user: User) -> str:
    """The submitted config; masks in a fork become the parent's secrets again, for who may see those."""
    if parent is None or MASK not in text or not rights.may_change(user, parent):
        return text
    try:
        values = read_yaml(text, SUBJECT)
        known = read_yaml(parent.original_config, SUBJECT)
    except ConfigError:
        return text  # whose faults are said by who reads it next
    return yamltext.dump(restored(restored(values, known), parent.config))


def _parent(parent_id: int | None) -> Experiment | None:
    if not parent_id:
        return None
    parent = Experiment.objects.select_related("context").filter(pk=parent_id).first()
    if parent is None:
        raise Missing(f"experiment {parent_id} not found; it cannot be forked")
    if parent.unmanaged:  # before its config is looked at, which has no entrypoint
        raise BadRequest(submit.unmanaged_parent(parent))
    return parent


def _context(body: Json, parent: Experiment | None) -> Context:
    """The uploaded folder, or the parent's, or none."""
    files = body.get("modelDefinition") or []
    if not files and parent:
        return parent.context
    return contexts.store(files)


def _checked(body: Json, parent: Experiment | None, user: User) -> tuple[all_faults.Submission, Context]:
    """What the request asks for, and its folder. Raises Refusal with every fault; the caller holds a transaction."""
    faults, context = Together(), None
    with faults.step():
        context = _context(body, parent)
    found = all_faults.checked(
        faults,
        body["config"],
        lambda: _template(body),
        owner=user,
        project_id=body.get("projectId"),
        unmanaged=bool(body.get("unmanaged")),
    )
    assert context is not None
    return found, context


def _validate_only(body: Json, parent: Experiment | None, user: User) -> SubmittedExperiment:
    """Everything that creating would refuse, with nothing kept; the warnings and notices that it would give."""
    warnings: list[str] = []
    notices: list[str] = []
    with transaction.atomic():
        found, context = _checked(body, parent, user)
        effective = found.config.effective()
        pool = submit.accepted(effective, user, unmanaged=bool(body.get("unmanaged")))
        transaction.set_rollback(True)
    if pool is not None:
        asked = found.config.resources
        task = Task(
            slots=asked.slots_per_trial, single_host=bool(asked.is_single_node), only_hosts=asked.hosts
        )
        warnings, notices = warnings_for(pool, task)
        notices = templates.changes_since_last_use(found.template, user) + notices
        notices += host_remarks.remarks(effective, context, pool, user.unix_user)
    return _skeleton(found, user, warnings, notices)


def _skeleton(
    found: all_faults.Submission, user: User, warnings: list[str], notices: list[str]
) -> SubmittedExperiment:
    """What validateOnly answers: a record in which nothing has an id, since nothing was stored."""
    effective, project = shown(found.config.effective()), found.project
    searcher = effective["searcher"]
    record = ExperimentRecord(
        id=0, name=effective["name"], description=effective.get("description") or "", notes="",
        labels=effective.get("labels") or [], log_labels=[], template_name="",
        state="STATE_UNSPECIFIED", archived=False, config=effective,
        original_config="", start_time=datetime.fromtimestamp(0, UTC), duration=0, num_trials=0,
        searcher_type=searcher.get("name", ""), searcher_metric=searcher.get("metric") or "",
        hyperparameters=effective.get("hyperparameters") or {}, checkpoint_count=0, checkpoint_size="0",
        username=user.username, display_name=user.display_name, user_id=user.pk, resource_pool="", unmanaged=False,
        job_id="", project_id=project.pk, project_name=project.name, project_owner_id=project.owner_id or 0,
        workspace_id=project.workspace_id, workspace_name=project.workspace.name, parent_archived=False,
    )  # fmt: skip
    return SubmittedExperiment(
        experiment=record, config=effective, warnings=warnings, notices=notices + found.config.remarks()
    )


def _create(
    request: Request, body: Json, parent: Experiment | None, external_id: str | None = None
) -> SubmittedExperiment:
    user = person(request)
    with transaction.atomic():
        found, context = _checked(body, parent, user)
        changes = templates.changes_since_last_use(found.template, user)
        experiment = submit.create(
            owner=user,
            config=found.config,
            original=body["config"],
            context=context,
            project=found.project,
            parent=parent,
            activate=body.get("activate") is not False,
            idempotency_key=idempotency_key(request, user),
            actor=actor(request),
            unmanaged=bool(body.get("unmanaged")),
            external_id=external_id,
            template=found.template,
        )
    encoded = encode_experiment(find(experiment.pk), full=True)
    warnings: list[str] = []
    notices: list[str] = []
    if not experiment.unmanaged:
        pool = experiment.job.pool
        warnings, notices = warnings_for(pool, experiment.job.tasks.first())
        notices += host_remarks.remarks(experiment.config, context, pool, user.unix_user)
    return SubmittedExperiment(
        experiment=encoded,
        config=encoded.config,
        warnings=warnings,
        notices=[*changes, *notices, *found.config.remarks()],
    )


class OneExperiment(ApiView):
    """One experiment."""

    rights = {"GET": Right.READ | Right.RUN, "PATCH": Right.EDIT, "DELETE": Right.EDIT}
    polled = frozenset({"GET"})
    reads = {"GET": (shown_experiments.one, "experiment_id")}
    bodies = {"PATCH": ExperimentPatch}

    def get(self, request: Request, experiment_id: int) -> ExperimentAnswer:
        own_experiments(request.user, experiment_id)
        experiment = find(experiment_id)
        encoded = encode_experiment(experiment, full=True)
        summary = summary_of(experiment.job)
        return ExperimentAnswer(experiment=encoded, config=encoded.config, job_summary=summary)

    @transaction.atomic
    def patch(self, request: Request, experiment_id: int) -> PatchedExperiment:
        body, user = self.body(request), person(request)
        experiment = find(experiment_id)
        require_owner(user, experiment)
        fields = {name: body[name] for name in ("name", "description", "labels", "notes") if name in body}
        edits.edit(experiment_id, **fields, actor=actor(request))
        notices = _patch_resources(experiment, body.get("resources") or {}, actor(request), user.acting_role)
        if storage := body.get("checkpointStorage"):
            patch_policy(experiment, storage, actor=actor(request))
        return PatchedExperiment(
            experiment=encode_experiment(find(experiment_id), full=True), notices=notices
        )

    def delete(self, request: Request, experiment_id: int) -> None:
        require_owner(person(request), find(experiment_id))
        with refused_as(Code.INVALID):
            transitions.delete(experiment_id, actor=actor(request))


def _patch_resources(experiment: Experiment, resources: Json, who: str, role: str) -> list[str]:
    """Sentences about what a changed limit of slots does."""
    job = str(experiment.job_id)
    update = queue_edits.Update(job, priority=resources.get("priority"), weight=resources.get("weight"))
    with refused_as(Code.INVALID):
        if update.priority is not None or update.weight is not None:
            queue_edits.apply([update], actor=who, role=role)
        if "maxSlots" in resources:
            most = queue_edits.NO_LIMIT if resources["maxSlots"] is None else resources["maxSlots"]
            limit = queue_edits.Update(job, max_slots=most)
            return [str(change) for change in queue_edits.apply([limit], actor=who, role=role)]
    return []
