"""Workspaces: what groups projects. Number 1, "Uncategorized", always is there."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from typing_extensions import TypedDict

from experiments import places
from hosts.models import ResourcePool
from webui.api import encoding
from webui.api.answers import Nothing, Pagination
from webui.api.errors import Missing
from webui.api.permissions import person
from webui.api.views import ApiView, Json

_SORT = {"SORT_BY_NAME": "name", "SORT_BY_ID": "id"}


class WorkspaceRecord(TypedDict):
    """`userId` 0: nobody owns it."""

    id: int
    name: str
    archived: bool
    immutable: bool
    numProjects: int
    numExperiments: int
    pinned: bool
    state: str
    errorMessage: str
    userId: int
    username: str


class WorkspacesAnswer(TypedDict):
    workspaces: list[WorkspaceRecord]
    pagination: Pagination


class WorkspaceAnswer(TypedDict):
    workspace: WorkspaceRecord


class NewWorkspaceAnswer(WorkspaceAnswer):
    namespaceBindings: Json


class CompletedAnswer(TypedDict):
    completed: bool


class PoolNamesAnswer(TypedDict):
    resourcePools: list[str]
    pagination: Pagination


def encode_workspace(row: Any) -> Json:
    return {
        "id": row.pk,
        "name": row.name,
        "archived": row.archived,
        "immutable": row.immutable,
        "numProjects": row.num_projects,
        "numExperiments": row.num_experiments,
        "pinned": False,
        "state": "WORKSPACE_STATE_UNSPECIFIED",
        "errorMessage": "",
        "userId": row.owner_id or 0,
        "username": row.owner.username if row.owner else "",
    }


def find(workspace_id: int) -> Any:
    row = places.workspaces_with_numbers().filter(pk=workspace_id).first()
    if row is None:
        raise Missing(f"workspace {workspace_id} not found")
    return row


class WorkspacesQuery(encoding.PageQuery):
    sortBy = serializers.CharField(required=False)
    name = serializers.CharField(required=False, allow_blank=True)
    nameCaseSensitive = serializers.CharField(required=False, allow_blank=True)
    archived = serializers.BooleanField(required=False, allow_null=True, default=None)
    users = serializers.ListField(child=serializers.CharField(), required=False)


class WorkspaceBody(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=places.NAME_CHARACTERS, min_length=1)


class Workspaces(ApiView):
    """All workspaces; a new one."""

    bodies = {"POST": WorkspaceBody}
    queries = {"GET": WorkspacesQuery}
    answers = {"GET": WorkspacesAnswer, "POST": NewWorkspaceAnswer}

    def get(self, request: Request) -> Response:
        query = self.query(request)
        rows = places.workspaces_with_numbers()
        if query.get("name"):  # the published SDK takes the first answer for the one that it has asked for
            rows = rows.filter(name__iexact=query["name"])
        if query.get("nameCaseSensitive"):
            rows = rows.filter(name=query["nameCaseSensitive"])
        if query["archived"] is not None:
            rows = rows.filter(archived=query["archived"])
        if query.get("users"):
            rows = rows.filter(owner__username__in=query["users"])
        rows = rows.order_by(*encoding.ordering(query, _SORT, "id", tie="id"))
        return Response(encoding.page(rows, query, "workspaces", encode_workspace))

    def post(self, request: Request) -> Response:
        row = places.make_workspace(person(request), self.body(request)["name"])
        # the client walks over the bindings of Kubernetes namespaces; there are none here
        return Response({"workspace": encode_workspace(find(row.pk)), "namespaceBindings": {}})


class OneWorkspace(ApiView):
    """One workspace; only an empty one can be deleted."""

    bodies = {"PATCH": WorkspaceBody}
    answers = {"GET": WorkspaceAnswer, "PATCH": WorkspaceAnswer, "DELETE": CompletedAnswer}

    def get(self, request: Request, workspace_id: int) -> Response:
        return Response({"workspace": encode_workspace(find(workspace_id))})

    def patch(self, request: Request, workspace_id: int) -> Response:
        places.change(person(request), find(workspace_id), {"name": self.body(request)["name"]})
        return Response({"workspace": encode_workspace(find(workspace_id))})

    def delete(self, request: Request, workspace_id: int) -> Response:
        places.delete(person(request), find(workspace_id))
        return Response({"completed": True})


class WorkspaceArchive(ApiView):
    """Archive a workspace, or bring it back."""

    answers = {"POST": Nothing}
    archived = True

    def post(self, request: Request, workspace_id: int) -> Response:
        places.archive(person(request), find(workspace_id), self.archived)
        return Response({})


class AvailablePools(ApiView):
    """Every workspace may use every pool."""

    answers = {"GET": PoolNamesAnswer}

    def get(self, request: Request, workspace_id: int) -> Response:
        find(workspace_id)
        names = list(ResourcePool.objects.values_list("name", flat=True))
        query = {"offset": 0, "limit": -1}
        return Response({"resourcePools": names, "pagination": encoding.pagination(query, len(names))})
