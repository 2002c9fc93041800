"""Projects: what groups experiments. Number 1, "Uncategorized", always is there."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from rest_framework import serializers
from rest_framework.request import Request

from accounts.rights import Right
from experiments import places
from webui.api import encoding, workspaces
from webui.api.answers import Answer, Pagination, Time
from webui.api.errors import Missing, existing
from webui.api.permissions import person
from webui.api.views import ApiView, Json

_SORT = {
    "SORT_BY_NAME": "name",
    "SORT_BY_DESCRIPTION": "description",
    "SORT_BY_ID": "id",
    "SORT_BY_CREATION_TIME": "id",
    "SORT_BY_LAST_EXPERIMENT_START_TIME": "last_started",
}


class NoteRecord(Answer):
    name: str
    contents: str


class ProjectRecord(Answer):
    """`archived`: the project or its workspace is archived. `userId` 0: no owner."""

    id: int
    name: str
    description: str
    key: str
    notes: list[NoteRecord]
    archived: bool
    immutable: bool
    num_experiments: int
    num_active_experiments: int
    num_runs: int
    last_experiment_started_at: Time | None = None
    state: str = "WORKSPACE_STATE_UNSPECIFIED"
    error_message: str = ""
    user_id: int
    username: str
    workspace_id: int
    workspace_name: str


class ProjectsAnswer(Answer):
    projects: list[ProjectRecord]
    pagination: Pagination


class ProjectAnswer(Answer):
    project: ProjectRecord


class NotesAnswer(Answer):
    notes: list[NoteRecord]


def encode_project(row: Any) -> ProjectRecord:
    return ProjectRecord.of(
        row,
        archived=row.archived or row.workspace.archived,
        num_active_experiments=row.num_active,
        last_experiment_started_at=row.last_started,
        user_id=row.owner_id or 0,
        username=row.owner.username if row.owner else "",
        workspace_name=row.workspace.name,
    )


def find(project_id: int) -> Any:
    return existing(places.projects_with_numbers(), "project", pk=project_id)


class Note(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=255, allow_blank=True)
    contents = serializers.CharField(allow_blank=True, trim_whitespace=False)


class NotesBody(serializers.Serializer[Any]):
    notes = Note(many=True)


class ProjectBody(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=places.NAME_CHARACTERS, min_length=1)
    description = serializers.CharField(required=False, allow_blank=True, allow_null=True)
    key = serializers.RegexField(rf"^{places.KEY.pattern}$", required=False, allow_null=True)


class ProjectPatch(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=places.NAME_CHARACTERS, required=False, allow_null=True)
    description = serializers.CharField(required=False, allow_blank=True, allow_null=True)
    key = serializers.RegexField(rf"^{places.KEY.pattern}$", required=False, allow_null=True)


class ProjectMoveBody(serializers.Serializer[Any]):
    destinationWorkspaceId = serializers.IntegerField()


class ProjectsQuery(encoding.PageQuery):
    sortBy = serializers.CharField(required=False)
    name = serializers.CharField(required=False, allow_blank=True)
    archived = serializers.BooleanField(required=False, allow_null=True, default=None)


class WorkspaceProjects(ApiView):
    """List the projects of a workspace (0: of all); or create one."""

    rights = {"GET": Right.READ, "POST": Right.EDIT}
    bodies = {"POST": ProjectBody}
    queries = {"GET": ProjectsQuery}

    def get(self, request: Request, workspace_id: int) -> ProjectsAnswer:
        query = self.query(request)
        rows = places.projects_with_numbers()
        if workspace_id:
            workspaces.find(workspace_id)
            rows = rows.filter(workspace_id=workspace_id)
        # the published SDK takes the first answer for the one that it has asked for
        rows = encoding.narrowed(rows, query, name="name__iexact", archived="archived")
        rows = rows.order_by(*encoding.ordering(query, _SORT, "id", tie="id"))
        return encoding.page(ProjectsAnswer, rows, query, encode_project)

    def post(self, request: Request, workspace_id: int) -> ProjectAnswer:
        body = self.body(request)
        row = places.make_project(
            person(request),
            workspaces.find(workspace_id),
            body["name"],
            description=body.get("description") or "",
            key=body.get("key") or "",
        )
        return ProjectAnswer(project=encode_project(find(row.pk)))


class OneProject(ApiView):
    """One project; it can be deleted only if it is empty."""

    rights = {"GET": Right.READ, "PATCH": Right.EDIT, "DELETE": Right.EDIT}
    bodies = {"PATCH": ProjectPatch}

    def get(self, request: Request, project_id: int) -> ProjectAnswer:
        return ProjectAnswer(project=encode_project(find(project_id)))

    def patch(self, request: Request, project_id: int) -> ProjectAnswer:
        changes = {name: value for name, value in self.body(request).items() if value is not None}
        places.change(person(request), find(project_id), changes)
        return ProjectAnswer(project=encode_project(find(project_id)))

    def delete(self, request: Request, project_id: int) -> workspaces.CompletedAnswer:
        places.delete(person(request), find(project_id))
        return workspaces.CompletedAnswer()


class ProjectByKey(ApiView):
    """One project by its key."""

    rights = {"GET": Right.READ}

    def get(self, request: Request, key: str) -> ProjectAnswer:
        row = places.projects_with_numbers().filter(key=key.upper()).first()
        if row is None:
            raise Missing(f"project {key} not found")
        return ProjectAnswer(project=encode_project(row))


class ProjectArchive(ApiView):
    """Archive or unarchive a project."""

    rights = {"POST": Right.EDIT}
    archived = True

    def post(self, request: Request, project_id: int) -> None:
        places.change(person(request), find(project_id), {"archived": self.archived})


class ProjectMove(ApiView):
    """Move a project with its contents to another workspace."""

    rights = {"POST": Right.EDIT}
    bodies = {"POST": ProjectMoveBody}

    def post(self, request: Request, project_id: int) -> None:
        workspace = workspaces.find(self.body(request)["destinationWorkspaceId"])
        places.move(person(request), find(project_id), workspace)


class ProjectNotes(ApiView):
    """A project's pages of notes: add one, or replace all."""

    rights = {"POST": Right.EDIT, "PUT": Right.EDIT}
    bodies = {"POST": Note, "PUT": NotesBody}

    def post(self, request: Request, project_id: int) -> NotesAnswer:
        with transaction.atomic():
            notes = places.locked_notes(find(project_id).pk)  # two that are added at once both stay
            return self._store(request, project_id, [*notes, self.body(request)])

    def put(self, request: Request, project_id: int) -> NotesAnswer:
        return self._store(request, project_id, [dict(note) for note in self.body(request)["notes"]])

    def _store(self, request: Request, project_id: int, notes: list[Json]) -> NotesAnswer:
        places.write_notes(person(request), find(project_id), notes)
        return NotesAnswer(notes=[NoteRecord(**note) for note in notes])
