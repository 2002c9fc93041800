"""Workspaces: what groups projects. Number 1, "Uncategorized", always is there."""

from __future__ import annotations

from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Count, QuerySet
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.models import User
from experiments.models import Template, Workspace
from hosts.models import ResourcePool
from webui.api import encoding
from webui.api.errors import BadRequest, Conflict, Forbidden, Missing
from webui.api.permissions import person
from webui.api.views import ApiView, Json

_SORT = {"SORT_BY_NAME": "name", "SORT_BY_ID": "id"}


def workspaces_with_numbers() -> QuerySet[Workspace]:
    return Workspace.objects.select_related("owner").annotate(
        num_projects=Count("projects", distinct=True),
        num_experiments=Count("projects__experiments", distinct=True),
    )


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
    row = workspaces_with_numbers().filter(pk=workspace_id).first()
    if row is None:
        raise Missing(f"workspace {workspace_id} not found")
    return row


def require_changeable(user: User, thing: Any, what: str) -> None:
    """Its owner and admins change a workspace or project; nobody changes the ones that came with the server."""
    if thing.immutable:
        raise BadRequest(f"{what} {thing.name} came with the server and cannot be changed.")
    if not user.is_admin and thing.owner_id != user.pk:
        raise Forbidden(
            f"{what} {thing.name} belongs to another user; only its owner or an admin may change it."
        )


class WorkspacesQuery(encoding.PageQuery):
    sortBy = serializers.CharField(required=False)
    name = serializers.CharField(required=False, allow_blank=True)
    nameCaseSensitive = serializers.CharField(required=False, allow_blank=True)
    archived = serializers.BooleanField(required=False, allow_null=True, default=None)
    users = serializers.ListField(child=serializers.CharField(), required=False)


class WorkspaceBody(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=80, min_length=1)


class Workspaces(ApiView):
    """All workspaces; a new one."""

    bodies = {"POST": WorkspaceBody}
    queries = {"GET": WorkspacesQuery}

    def get(self, request: Request) -> Response:
        query = self.query(request)
        rows = workspaces_with_numbers()
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
        name = self.body(request)["name"]
        try:
            with transaction.atomic():
                row = Workspace.objects.create(name=name, owner=person(request))
        except IntegrityError as error:
            raise Conflict(f"there is already a workspace {name}") from error
        # the client walks over the bindings of Kubernetes namespaces; there are none here
        return Response({"workspace": encode_workspace(find(row.pk)), "namespaceBindings": {}})


class OneWorkspace(ApiView):
    """One workspace; only an empty one can be deleted."""

    bodies = {"PATCH": WorkspaceBody}

    def get(self, request: Request, workspace_id: int) -> Response:
        return Response({"workspace": encode_workspace(find(workspace_id))})

    def patch(self, request: Request, workspace_id: int) -> Response:
        row = find(workspace_id)
        require_changeable(person(request), row, "workspace")
        try:
            with transaction.atomic():
                Workspace.objects.filter(pk=workspace_id).update(name=self.body(request)["name"])
        except IntegrityError as error:
            raise Conflict("there is already a workspace of this name") from error
        return Response({"workspace": encode_workspace(find(workspace_id))})

    def delete(self, request: Request, workspace_id: int) -> Response:
        row = find(workspace_id)
        require_changeable(person(request), row, "workspace")
        if row.num_projects or Template.objects.filter(workspace_id=workspace_id).exists():
            raise BadRequest(
                f"workspace {row.name} still has projects or templates; delete or move them first."
            )
        Workspace.objects.filter(pk=workspace_id).delete()
        return Response({"completed": True})


class WorkspaceArchive(ApiView):
    """Archive a workspace, or bring it back."""

    archived = True

    def post(self, request: Request, workspace_id: int) -> Response:
        require_changeable(person(request), find(workspace_id), "workspace")
        Workspace.objects.filter(pk=workspace_id).update(archived=self.archived)
        return Response({})


class AvailablePools(ApiView):
    """Every workspace may use every pool."""

    def get(self, request: Request, workspace_id: int) -> Response:
        find(workspace_id)
        names = list(ResourcePool.objects.values_list("name", flat=True))
        query = {"offset": 0, "limit": -1}
        return Response({"resourcePools": names, "pagination": encoding.pagination(query, len(names))})
