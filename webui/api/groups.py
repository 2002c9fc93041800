"""Groups of people: departments and their teams. The fields of the dialect, and `parent`, the department's name."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from rest_framework import serializers
from rest_framework.request import Request

from accounts import user_groups
from accounts.models import Group, User
from accounts.rights import Right
from webui.api import encoding
from webui.api.answers import Answer, Pagination
from webui.api.errors import BadRequest, existing
from webui.api.permissions import actor
from webui.api.users import UserRecord, encode_user
from webui.api.views import ApiView


class GroupRecord(Answer):
    group_id: int
    name: str
    parent: str = ""


class GroupWithUsers(GroupRecord):
    users: list[UserRecord]


class GroupAnswer(Answer):
    group: GroupWithUsers


class FoundGroup(Answer):
    group: GroupRecord
    num_members: int


class GroupsAnswer(Answer):
    groups: list[FoundGroup]
    pagination: Pagination


class NewGroup(serializers.Serializer[Any]):
    """`addUsers`: ids; a user who is in another group moves."""

    name = serializers.CharField()
    parent = serializers.CharField(required=False, allow_blank=True, default="")  # type: ignore[assignment]
    addUsers = encoding.list_of(serializers.IntegerField())


class GroupChange(serializers.Serializer[Any]):
    """What is not sent stays as it is; an empty `parent` makes it a group of the first level."""

    name = serializers.CharField(required=False, allow_blank=True)
    parent = serializers.CharField(required=False, allow_blank=True)  # type: ignore[assignment]
    addUsers = encoding.list_of(serializers.IntegerField())
    removeUsers = encoding.list_of(serializers.IntegerField())


class GroupSearch(encoding.PageQuery):
    name = serializers.CharField(required=False, allow_blank=True)
    userId = serializers.IntegerField(required=False, allow_null=True)


def _answer(group: Group) -> GroupAnswer:
    users = [encode_user(user) for user in group.members.order_by("username")]
    return GroupAnswer(group=GroupWithUsers.of(group, **_named(group), users=users))


def _named(group: Group) -> dict[str, Any]:
    return {"group_id": group.pk, "parent": group.parent.name if group.parent else ""}


def _users(ids: list[int] | None) -> QuerySet[User]:
    found = User.objects.filter(pk__in=ids or [])
    if missing := set(ids or []) - set(found.values_list("pk", flat=True)):
        raise BadRequest(f"There is no user {min(missing)}.")
    return found


class Groups(ApiView):
    """Create a group."""

    rights = {"POST": Right.ADMIN}
    bodies = {"POST": NewGroup}

    def post(self, request: Request) -> GroupAnswer:
        body = self.body(request)
        add = _users(body.get("addUsers"))
        return _answer(user_groups.create(body["name"], parent=body["parent"], add=add, actor=actor(request)))


class GroupsFound(ApiView):
    """List the groups, or those of a name or a user."""

    rights = {"POST": Right.READ}
    bodies = {"POST": GroupSearch}

    def post(self, request: Request) -> GroupsAnswer:
        query = self.body(request)
        rows = encoding.narrowed(user_groups.every(), query, name="name")
        if query.get("userId"):
            rows = rows.filter(pk__in=User.objects.filter(pk=query["userId"]).values("group"))
        return encoding.page(GroupsAnswer, rows, query, _found)


def _found(row: Any) -> FoundGroup:
    return FoundGroup(group=GroupRecord.of(row, **_named(row)), num_members=row.people)


class OneGroup(ApiView):
    """One group with its users. It cannot be deleted while it has teams or the rules of a pool name it."""

    rights = {"GET": Right.READ, "PUT": Right.ADMIN, "DELETE": Right.ADMIN}
    bodies = {"PUT": GroupChange}

    def get(self, request: Request, group_id: int) -> GroupAnswer:
        return _answer(_find(group_id))

    def put(self, request: Request, group_id: int) -> GroupAnswer:
        body = self.body(request)
        return _answer(
            user_groups.change(
                _find(group_id),
                name=body.get("name") or None,
                parent=body.get("parent"),
                add=_users(body.get("addUsers")),
                remove=_users(body.get("removeUsers")),
                actor=actor(request),
            )
        )

    def delete(self, request: Request, group_id: int) -> None:
        user_groups.delete(_find(group_id), actor=actor(request))


def _find(group_id: int) -> Group:
    return existing(Group.objects, "group", pk=group_id)
