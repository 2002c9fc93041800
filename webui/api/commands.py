"""Commands: run, list, read, kill, set their priority (features.md 11.6); and what the other kinds share of it."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

from django.db import transaction
from django.db.models import QuerySet
from rest_framework import serializers
from rest_framework.request import Request

from accounts.models import User
from accounts.refusals import Code, Together, refused_as
from accounts.rights import Right
from commands import submit, transitions
from commands.config import SUBJECT, CommandConfig, check, shown
from commands.models import Command, Service
from experiments import places, templates
from experiments.models import Workspace
from jobs import accepting, phases, queue_edits
from jobs.models import Job
from shown import arrays, task_list, tasks
from shown.launch_warnings import warnings_for
from shown.tasks import TaskRow
from submissions import contexts, host_remarks
from submissions.config.reading import read_yaml
from webui.api import encoding
from webui.api.answers import Maybe, Time
from webui.api.command_kinds import DIALECT, CommandRecord, OfKind
from webui.api.errors import BadRequest, Missing, existing
from webui.api.permissions import actor, idempotency_key, person, require_owner
from webui.api.views import ApiView, Json

SORT = {
    "SORT_BY_ID": "pk",
    "SORT_BY_DESCRIPTION": "description",
    "SORT_BY_START_TIME": "submitted_at",
    "SORT_BY_WORKSPACE_ID": "workspace_number",
}
PHASES = [*DIALECT, "COMPLETED", "CANCELED", "ERROR"]


class CommandsQuery(encoding.PageQuery):
    sortBy = encoding.sort_field("commands", SORT)
    users = encoding.list_of(serializers.CharField())
    userIds = encoding.list_of(serializers.IntegerField())
    workspaceId = serializers.IntegerField(required=False)
    phases = encoding.list_of(serializers.ChoiceField(choices=PHASES))
    arrayId = serializers.CharField(required=False, help_text="the elements of this array")


class NewCommand(serializers.Serializer[Any]):
    """`config` is an object, or YAML as text. The published client sends template_name."""

    config = serializers.JSONField()
    # not a serializer per file: a folder has thousands, and submissions.contexts checks each anyway
    files = encoding.list_of(serializers.DictField(), allow_null=True)
    data = serializers.CharField(required=False, allow_null=True, allow_blank=True)  # type: ignore[assignment]  # DRF takes it out of the class
    templateName = serializers.CharField(required=False, allow_null=True, allow_blank=True)
    template_name = serializers.CharField(required=False, allow_null=True, allow_blank=True)
    workspaceId = serializers.IntegerField(required=False, allow_null=True)
    preview = serializers.BooleanField(
        required=False, allow_null=True, help_text="check it and answer its config, but create nothing"
    )


class NewPriority(serializers.Serializer[Any]):
    priority = serializers.JSONField()


class Commands(OfKind, ApiView):
    """List all commands, newest first by default; or create one.

    An array is listed as one record, that of its first element, unless `arrayId` asks for its elements.
    """

    rights = {"GET": Right.READ, "POST": Right.EDIT}
    bodies = {"POST": NewCommand}
    queries = {"GET": CommandsQuery}
    part = "many"

    def get(self, request: Request) -> Any:
        query = self.query(request)
        if query["orderBy"] == "ORDER_BY_UNSPECIFIED" and "sortBy" not in query:
            query["orderBy"] = "ORDER_BY_DESC"  # Determined's client asks for no page and no order
        rows = _chosen(query, self.kind).order_by(*encoding.ordering(query, SORT, "submitted_at"))
        chosen, pagination = encoding.cut(rows, query)
        many = [self.encoded(row, request) for row in tasks.rows(chosen)]
        return self.answers["GET"](**{f"{self.noun}s": many, "pagination": pagination})

    def post(self, request: Request) -> Json:
        body, user = self.body(request), person(request)
        if body.get("preview"):
            found = _checked(Together(), body, self.kind, user)
            effective = found.config.effective()
            with transaction.atomic():
                submit.accepted(effective, user, _workspace(body.get("workspaceId")))
            notices = found.notices + found.config.remarks()
            answer = {"config": shown(effective), "warnings": [], "notices": notices}
            return {self.noun: None, **answer}
        key = idempotency_key(request, user)
        is_repeated = key is not None and Command.objects.filter(idempotency_key=key).exists()
        faults, context, workspace = Together(), None, 1
        with transaction.atomic():
            with faults.step():
                workspace = _workspace(body.get("workspaceId"))
            with faults.step():
                context = contexts.store(body.get("files") or [])
            found = _checked(faults, body, self.kind, user)
            assert context is not None
            command = submit.create(
                owner=user,
                config=found.config,
                context=context,
                workspace_number=workspace,
                idempotency_key=key,
                actor=actor(request),
                kind=self.kind,
                shown=self.shown(body),
            )
            if not is_repeated:  # the command of before was another use
                templates.note_use(found.template, user, f"{self.noun} {command.short_id}")
        return self._created(command, found.config, found.notices, body, request)

    def shown(self, body: Json) -> submit.Shown:
        """What a TensorBoard shows; nothing for the others."""
        return submit.Shown()

    def _created(
        self, command: Command, config: CommandConfig, notices: list[str], body: Json, request: Request
    ) -> Json:
        fresh = self.find(str(command.pk))
        warnings, more = warnings_for(fresh.command.job.pool, fresh.command.task)
        notices += more
        pool, linked = fresh.command.job.pool, fresh.command.owner.unix_user
        notices += host_remarks.remarks(command.config, command.context, pool, linked)
        if body.get("data"):
            notices.append(f"data has no effect on a {self.noun}; send files.")
        return {
            self.noun: self.encoded(fresh, request), "config": fresh.effective_config, "warnings": warnings,
            "notices": notices + config.remarks(),
        }  # fmt: skip


def _chosen(query: Json, kind: Job.Kind) -> QuerySet[Command]:
    rows = encoding.narrowed(
        task_list.of_kind(tasks.with_parts(), kind),
        query,
        users="owner__username__in",
        userIds="owner_id__in",
        workspaceId="workspace_number",
    )
    rows = rows.filter(phases.where(*query["phases"])) if query.get("phases") else rows
    if "arrayId" not in query:
        return arrays.folded(rows)
    job = arrays.find(query["arrayId"])
    if job is None:
        raise Missing(f"array {query['arrayId']} not found")
    return rows.filter(job=job)


class _Submission(NamedTuple):
    config: CommandConfig
    template: templates.Used | None
    notices: list[str]


def _checked(faults: Together, body: Json, kind: Job.Kind, user: User) -> _Submission:
    """Read a submission as a step of `faults`, whose other steps are done. Raises Refusal with the faults of all."""
    template, config = None, None
    values: Json = {}
    with faults:
        with faults.step():
            template = templates.used(body.get("templateName") or body.get("template_name"))
        with faults.step():
            values = _values(body.get("config") or {})
            config = check(values, template=template.config if template else None, kind=kind)
        if faults.refused:
            with faults.step(), transaction.atomic():
                if config is None:
                    accepting.refuse_unknown_pool(values)
                else:
                    submit.accepted(config.effective(), user)
    assert config is not None
    return _Submission(config, template, templates.changes_since_last_use(template, user))


def _values(given: Any) -> Json:
    """The values of a config that is a map, or YAML as text."""
    values = read_yaml(given, SUBJECT) if isinstance(given, str) else given
    if not isinstance(values, dict):
        raise BadRequest("config: must be a map, or YAML as text.")
    return values


def _workspace(number: int | None) -> int:
    if not number or number == 1:
        return 1
    workspace = existing(Workspace.objects, "workspace", pk=number)
    places.require_open(workspace)
    return number


class OneCommand(OfKind, ApiView):
    """One command with its config."""

    rights = {"GET": Right.READ}
    part = "one"

    def get(self, request: Request, command_id: str) -> Json:
        row = self.find(command_id)
        return {self.noun: self.encoded(row, request), "config": row.effective_config}


class CommandKill(OfKind, ApiView):
    """Kill a command immediately, or, by the ID of an array, all its elements. What has ended is left unchanged."""

    rights = {"POST": Right.EDIT}
    part = "changed"

    def post(self, request: Request, command_id: str) -> Json:
        row, array = self.found(command_id)
        command = row.command
        require_owner(person(request), command)
        if array is None:
            transitions.kill(command.pk, actor=actor(request))
        else:
            transitions.kill_array(array.pk, actor=actor(request))
        return {self.noun: self.encoded(self.find(str(command.pk)), request)}


class CommandPriority(OfKind, ApiView):
    """Set the priority of a command that has not ended."""

    rights = {"POST": Right.EDIT}
    bodies = {"POST": NewPriority}
    part = "changed"

    def post(self, request: Request, command_id: str) -> Json:
        priority = self.body(request)["priority"]
        command = self.find(command_id).command
        update = queue_edits.Update(str(command.job_id), priority=priority)
        with refused_as(Code.INVALID):
            queue_edits.apply([update], actor=actor(request), role=person(request).acting_role)
        return {self.noun: self.encoded(self.find(str(command.pk)), request)}


class NewService(NewCommand):
    """`config` may be left out, or be an object, or YAML as text."""

    config = serializers.JSONField(required=False, allow_null=True)


class ServiceRecord(CommandRecord):
    """A command's record with its address: `serviceAddress` is a path on this server."""

    service_address: str = ""
    ready: Maybe[bool] = None
    last_used: Maybe[Time] = None
    idle_timeout_seconds: Maybe[int] = None


class OfServiceKind(OfKind):
    """A kind whose program people use through the server."""

    record: ClassVar[type[CommandRecord]] = ServiceRecord

    def encoded(self, row: TaskRow, request: Request) -> ServiceRecord:
        service: Service = row.command.service
        return ServiceRecord.of(
            super().encoded(row, request),
            service_address=f"/proxy/{row.command.pk}/",
            ready=row.is_ready,
            last_used=service.used_at,
            idle_timeout_seconds=service.idle_timeout_seconds,
        )
