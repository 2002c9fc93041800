"""Workspaces: what groups projects. Number 1, "Uncategorized", always is there."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field
from rest_framework import serializers
from rest_framework.request import Request

from accounts.rights import Right
from experiments import places
from hosts import pool_access
from hosts.models import ResourcePool
from webui.api import encoding
from webui.api.answers import Answer, Pagination
from webui.api.errors import existing
from webui.api.permissions import person
from webui.api.views import ApiView, Json

_SORT = {"SORT_BY_NAME": "name", "SORT_BY_ID": "id"}


class WorkspaceRecord(Answer):
    """`userId` 0: no owner."""

    id: int
    name: str
    archived: bool
    immutable: bool
    num_projects: int
    num_experiments: int
    pinned: bool = False
    state: str = "WORKSPACE_STATE_UNSPECIFIED"
    error_message: str = ""
    default_compute_pool: str = ""
    default_aux_pool: str = ""
    user_id: int
    username: str


class WorkspacesAnswer(Answer):
    workspaces: list[WorkspaceRecord]
    pagination: Pagination


class WorkspaceAnswer(Answer):
    workspace: WorkspaceRecord


class ChangedWorkspaceAnswer(WorkspaceAnswer):
    # the client iterates over this
    namespace_bindings: Annotated[Json, Field(description="for Kubernetes; always empty")] = {}


class CompletedAnswer(Answer):
    completed: bool = True


class PoolNamesAnswer(Answer):
    resource_pools: list[str]
    pagination: Pagination


def encode_workspace(row: Any) -> WorkspaceRecord:
    username = row.owner.username if row.owner else ""
    return WorkspaceRecord.of(row, user_id=row.owner_id or 0, username=username)


def find(workspace_id: int) -> Any:
    return existing(places.workspaces_with_numbers(), "workspace", pk=workspace_id)


class WorkspacesQuery(encoding.PageQuery):
    sortBy = serializers.CharField(required=False)
    name = serializers.CharField(required=False, allow_blank=True)
    nameCaseSensitive = serializers.CharField(required=False, allow_blank=True)
    archived = serializers.BooleanField(required=False, allow_null=True, default=None)
    users = encoding.list_of(serializers.CharField())


class WorkspaceBody(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=places.NAME_CHARACTERS, min_length=1)


class Workspaces(ApiView):
    """List all workspaces; or create one."""

    rights = {"GET": Right.READ, "POST": Right.EDIT}
    bodies = {"POST": WorkspaceBody}
    queries = {"GET": WorkspacesQuery}

    def get(self, request: Request) -> WorkspacesAnswer:
        query = self.query(request)
        rows = encoding.narrowed(
            places.workspaces_with_numbers(),
            query,
            name="name__iexact",  # the published SDK takes the first answer for the one that it has asked for
            nameCaseSensitive="name",
            archived="archived",
            users="owner__username__in",
        )
        rows = rows.order_by(*encoding.ordering(query, _SORT, "id", tie="id"))
        return encoding.page(WorkspacesAnswer, rows, query, encode_workspace)

    def post(self, request: Request) -> ChangedWorkspaceAnswer:
        row = places.make_workspace(person(request), self.body(request)["name"])
        return ChangedWorkspaceAnswer(workspace=encode_workspace(find(row.pk)))


class OneWorkspace(ApiView):
    """One workspace; it can be deleted only if it is empty."""

    rights = {"GET": Right.READ, "PATCH": Right.EDIT, "DELETE": Right.EDIT}
    bodies = {"PATCH": WorkspaceBody}

    def get(self, request: Request, workspace_id: int) -> WorkspaceAnswer:
        return WorkspaceAnswer(workspace=encode_workspace(find(workspace_id)))

    def patch(self, request: Request, workspace_id: int) -> ChangedWorkspaceAnswer:
        places.change(person(request), find(workspace_id), {"name": self.body(request)["name"]})
        return ChangedWorkspaceAnswer(workspace=encode_workspace(find(workspace_id)))

    def delete(self, request: Request, workspace_id: int) -> CompletedAnswer:
        places.delete(person(request), find(workspace_id))
        return CompletedAnswer()


class WorkspaceArchive(ApiView):
    """Archive or unarchive a workspace."""

    rights = {"POST": Right.EDIT}
    archived = True

    def post(self, request: Request, workspace_id: int) -> None:
        places.change(person(request), find(workspace_id), {"archived": self.archived})


class AvailablePools(ApiView):
    """The pools that the caller can use in this workspace."""

    rights = {"GET": Right.READ}

    def get(self, request: Request, workspace_id: int) -> PoolNamesAnswer:
        find(workspace_id)
        pools = ResourcePool.objects.all()
        names = [pool.name for pool in pools if pool_access.may_use(pool, person(request), workspace_id)]
        return encoding.page(PoolNamesAnswer, names, {"offset": 0, "limit": -1}, str)
