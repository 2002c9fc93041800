"""Projects: what groups experiments. Number 1, "Uncategorized", always is there."""

from __future__ import annotations

import re
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Count, Max, Q, QuerySet
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from experiments.models import Project
from experiments.states import ExperimentState
from webui.api import encoding, workspaces
from webui.api.errors import BadRequest, Conflict, Missing
from webui.api.permissions import person
from webui.api.views import ApiView, Json

_SORT = {
    "SORT_BY_NAME": "name",
    "SORT_BY_DESCRIPTION": "description",
    "SORT_BY_ID": "id",
    "SORT_BY_CREATION_TIME": "id",
    "SORT_BY_LAST_EXPERIMENT_START_TIME": "last_started",
}


def projects_with_numbers() -> QuerySet[Project]:
    active = Q(experiments__state=ExperimentState.ACTIVE)
    return Project.objects.select_related("owner", "workspace").annotate(
        num_experiments=Count("experiments", distinct=True),
        num_active=Count("experiments", filter=active, distinct=True),
        num_runs=Count("experiments__trials", distinct=True),
        last_started=Max("experiments__started_at"),
    )


def encode_project(row: Any) -> Json:
    return encoding.without_none(
        {
            "id": row.pk,
            "name": row.name,
            "description": row.description,
            "key": row.key,
            "notes": row.notes,
            "archived": row.archived or row.workspace.archived,
            "immutable": row.immutable,
            "numExperiments": row.num_experiments,
            "numActiveExperiments": row.num_active,
            "numRuns": row.num_runs,
            "lastExperimentStartedAt": encoding.time(row.last_started),
            "state": "WORKSPACE_STATE_UNSPECIFIED",
            "errorMessage": "",
            "userId": row.owner_id or 0,
            "username": row.owner.username if row.owner else "",
            "workspaceId": row.workspace_id,
            "workspaceName": row.workspace.name,
        }
    )


def find(project_id: int) -> Any:
    row = projects_with_numbers().filter(pk=project_id).first()
    if row is None:
        raise Missing(f"project {project_id} not found")
    return row


class Note(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=255, allow_blank=True)
    contents = serializers.CharField(allow_blank=True, trim_whitespace=False)


class NotesBody(serializers.Serializer[Any]):
    notes = Note(many=True)


class ProjectBody(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=80, min_length=1)
    description = serializers.CharField(required=False, allow_blank=True, allow_null=True)
    key = serializers.RegexField(r"^[A-Za-z0-9]{1,5}$", required=False, allow_null=True)


class ProjectPatch(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=80, required=False, allow_null=True)
    description = serializers.CharField(required=False, allow_blank=True, allow_null=True)
    key = serializers.RegexField(r"^[A-Za-z0-9]{1,5}$", required=False, allow_null=True)


class ProjectsQuery(encoding.PageQuery):
    sortBy = serializers.CharField(required=False)
    name = serializers.CharField(required=False, allow_blank=True)
    archived = serializers.BooleanField(required=False, allow_null=True, default=None)


class WorkspaceProjects(ApiView):
    """The projects of a workspace (0: of all); a new one."""

    bodies = {"POST": ProjectBody}
    queries = {"GET": ProjectsQuery}

    def get(self, request: Request, workspace_id: int) -> Response:
        query = self.query(request)
        rows = projects_with_numbers()
        if workspace_id:
            workspaces.find(workspace_id)
            rows = rows.filter(workspace_id=workspace_id)
        if query.get("name"):  # the published SDK takes the first answer for the one that it has asked for
            rows = rows.filter(name__iexact=query["name"])
        if query["archived"] is not None:
            rows = rows.filter(archived=query["archived"])
        rows = rows.order_by(*encoding.ordering(query, _SORT, "id", tie="id"))
        return Response(encoding.page(rows, query, "projects", encode_project))

    def post(self, request: Request, workspace_id: int) -> Response:
        body = self.body(request)
        workspace = workspaces.find(workspace_id)
        if workspace.archived:
            raise BadRequest(f"workspace {workspace.name} is archived; nothing can be added to it.")
        try:
            with transaction.atomic():
                row = Project.objects.create(
                    workspace_id=workspace_id,
                    name=body["name"],
                    description=body.get("description") or "",
                    key=(body.get("key") or _free_key(body["name"])).upper(),
                    owner=person(request),
                )
        except IntegrityError as error:
            raise Conflict(f"there is already a project {body['name']} here, or one with this key") from error
        return Response({"project": encode_project(find(row.pk))})


def _free_key(name: str) -> str:
    """A short key from the name that no project has yet."""
    stem = (re.sub(r"[^A-Za-z0-9]", "", name).upper() or "P")[:3]
    taken = set(Project.objects.filter(key__startswith=stem).values_list("key", flat=True))
    return next(key for key in (stem, *(f"{stem}{n}" for n in range(2, 100_000))) if key not in taken)


class OneProject(ApiView):
    """One project; only an empty one can be deleted."""

    bodies = {"PATCH": ProjectPatch}

    def get(self, request: Request, project_id: int) -> Response:
        return Response({"project": encode_project(find(project_id))})

    def patch(self, request: Request, project_id: int) -> Response:
        workspaces.require_changeable(person(request), find(project_id), "project")
        changes = {name: value for name, value in self.body(request).items() if value is not None}
        if "key" in changes:
            changes["key"] = changes["key"].upper()
        try:
            with transaction.atomic():
                if changes:
                    Project.objects.filter(pk=project_id).update(**changes)
        except IntegrityError as error:
            raise Conflict("there is already a project of this name or key") from error
        return Response({"project": encode_project(find(project_id))})

    def delete(self, request: Request, project_id: int) -> Response:
        row = find(project_id)
        workspaces.require_changeable(person(request), row, "project")
        if row.num_experiments:
            raise BadRequest(f"project {row.name} still has experiments; delete or move them first.")
        Project.objects.filter(pk=project_id).delete()
        return Response({"completed": True})


class ProjectByKey(ApiView):
    """One project by its key."""

    def get(self, request: Request, key: str) -> Response:
        row = projects_with_numbers().filter(key=key.upper()).first()
        if row is None:
            raise Missing(f"project {key} not found")
        return Response({"project": encode_project(row)})


class ProjectArchive(ApiView):
    """Archive a project, or bring it back."""

    archived = True

    def post(self, request: Request, project_id: int) -> Response:
        workspaces.require_changeable(person(request), find(project_id), "project")
        Project.objects.filter(pk=project_id).update(archived=self.archived)
        return Response({})


class ProjectNotes(ApiView):
    """The pages of notes of a project: add one, or put all."""

    bodies = {"POST": Note, "PUT": NotesBody}

    def post(self, request: Request, project_id: int) -> Response:
        with transaction.atomic():
            return self._store(request, project_id, [*find(project_id).notes, self.body(request)])

    def put(self, request: Request, project_id: int) -> Response:
        return self._store(request, project_id, [dict(note) for note in self.body(request)["notes"]])

    def _store(self, request: Request, project_id: int, notes: list[Json]) -> Response:
        user, row = person(request), find(project_id)
        if not row.immutable:  # everybody writes into Uncategorized
            workspaces.require_changeable(user, row, "project")
        Project.objects.filter(pk=project_id).update(notes=notes)
        return Response({"notes": notes})
