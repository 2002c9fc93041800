"""Users, their linked Unix accounts, and what the console remembers for them."""

from __future__ import annotations

from typing import Any, Literal

from django.db import transaction
from django.db.models import Q
from rest_framework import serializers
from rest_framework.request import Request

from accounts import names, users
from accounts.logins import confirms
from accounts.models import User, token_hash
from accounts.passwords import PASSWORD_CHARACTERS
from accounts.rights import Right
from webui import client_address
from webui.api import encoding
from webui.api.answers import Answer, Maybe, Pagination, Time
from webui.api.authentication import bearer_tokens
from webui.api.errors import BadRequest, Forbidden, existing
from webui.api.permissions import actor, person
from webui.api.views import ApiView, Json
from webui.models import UserSetting

_SORT = {
    "SORT_BY_USER_NAME": "username",
    "SORT_BY_DISPLAY_NAME": "display_name",
    "SORT_BY_ADMIN": "role",
    "SORT_BY_ACTIVE": "is_active",
    "SORT_BY_MODIFIED_TIME": "modified_at",
    "SORT_BY_NAME": "username",
    "SORT_BY_LAST_AUTH_TIME": "last_login",
}
#: fields of the dialect -> columns
_COLUMNS = {
    "username": "username",
    "displayName": "display_name",
    "email": "email",
    "active": "is_active",
    "role": "role",
}
_ACCOUNT = {
    "agentUser": "unix_user",
    "agentUid": "unix_uid",
    "agentGroup": "unix_group",
    "agentGid": "unix_gid",
}


class UnixAccountRecord(Answer):
    """The Unix account that the user's jobs run as on hosts."""

    agent_user: str
    agent_uid: int | None
    agent_group: str
    agent_gid: int | None


class UserRecord(Answer):
    id: int
    username: str
    display_name: str
    admin: bool
    active: bool
    role: Literal["viewer", "editor", "admin"]
    email: Maybe[str] = None
    remote: bool = False
    agent_user_group: UnixAccountRecord | None = None
    last_auth_at: Maybe[Time] = None
    last_seen_at: Maybe[Time] = None
    modified_at: Time


class UserAnswer(Answer):
    user: UserRecord


class UsersAnswer(Answer):
    users: list[UserRecord]
    pagination: Pagination


def encode_user(user: User) -> UserRecord:
    group = None
    if user.unix_user:
        group = UnixAccountRecord(
            agent_user=user.unix_user,
            agent_uid=user.unix_uid,
            agent_group=user.unix_group,
            agent_gid=user.unix_gid,
        )
    return UserRecord.of(
        user,
        admin=user.is_admin,
        active=user.is_active,
        email=user.email or None,
        agent_user_group=group,
        last_auth_at=user.last_login,
        last_seen_at=user.seen_at,
    )


class AgentUserGroup(serializers.Serializer[Any]):
    """The Unix account that the user's jobs run as on hosts, in the groups that the account has there.

    With `agentUid` and `agentGid`, jobs start only on hosts where the account has this UID and this primary GID.
    `agentGroup` is kept and answered for Determined's clients. null unlinks the user.
    """

    agentUser = serializers.RegexField(
        names.UNIX_NAME, max_length=names.UNIX_NAME_CHARACTERS, required=False, allow_null=True
    )
    agentUid = serializers.IntegerField(
        min_value=0, max_value=names.LARGEST_UNIX_ID, required=False, allow_null=True
    )
    agentGroup = serializers.RegexField(
        names.UNIX_NAME, max_length=names.UNIX_NAME_CHARACTERS, required=False, allow_null=True
    )
    agentGid = serializers.IntegerField(
        min_value=0, max_value=names.LARGEST_UNIX_ID, required=False, allow_null=True
    )


class UserFields(serializers.Serializer[Any]):
    username = serializers.CharField(required=False)
    displayName = serializers.CharField(required=False, allow_blank=True, allow_null=True)
    admin = serializers.BooleanField(required=False, allow_null=True)
    active = serializers.BooleanField(required=False, allow_null=True)
    role = serializers.ChoiceField(choices=User.Role.choices, required=False)
    agentUserGroup = AgentUserGroup(required=False, allow_null=True)
    email = serializers.EmailField(
        required=False,
        allow_blank=True,
        max_length=254,
        help_text="used by single sign-on to find the account",
    )


class NewUser(serializers.Serializer[Any]):
    user = UserFields()
    password = serializers.CharField(
        required=False, allow_blank=True, trim_whitespace=False, max_length=PASSWORD_CHARACTERS
    )
    isHashed = serializers.BooleanField(required=False, default=False)


class UserPatch(UserFields):
    password = serializers.CharField(
        required=False,
        allow_blank=True,
        allow_null=True,
        trim_whitespace=False,
        max_length=PASSWORD_CHARACTERS,
    )
    oldPassword = serializers.CharField(
        required=False,
        allow_blank=True,
        trim_whitespace=False,
        max_length=PASSWORD_CHARACTERS,
        help_text="the current password, hashed like the new one; required if you change your own",
    )
    isHashed = serializers.BooleanField(required=False, default=False)
    keepAccessTokens = serializers.BooleanField(
        default=False, help_text="keep the access tokens of a user whose password an admin sets"
    )
    remote = serializers.BooleanField(required=False, allow_null=True)


class UsersQuery(encoding.PageQuery):
    sortBy = encoding.sort_field("users", _SORT)
    name = serializers.CharField(required=False)
    active = serializers.BooleanField(required=False, allow_null=True, default=None)
    admin = serializers.BooleanField(required=False, allow_null=True, default=None)


class Users(ApiView):
    """List all users; or create one."""

    rights = {"GET": Right.READ, "POST": Right.ADMIN}
    bodies = {"POST": NewUser}
    queries = {"GET": UsersQuery}

    def get(self, request: Request) -> UsersAnswer:
        query = self.query(request)
        rows = User.objects.all()
        if name := query.get("name"):
            rows = rows.filter(Q(username__icontains=name) | Q(display_name__icontains=name))
        rows = encoding.narrowed(rows, query, active="is_active")
        if query["admin"] is not None:
            rows = rows.filter(role=User.Role.ADMIN) if query["admin"] else rows.exclude(role=User.Role.ADMIN)
        rows = rows.order_by(*encoding.ordering(query, _SORT, "username"))
        return encoding.page(UsersAnswer, rows, query, encode_user)

    def post(self, request: Request) -> UserAnswer:
        body = self.body(request)
        fields = body["user"]
        if not fields.get("username"):
            raise BadRequest("user.username: a name is required.")
        user = users.create(
            _columns(fields, User()),
            password=body.get("password") or "",
            is_hashed=body["isHashed"],
            actor=actor(request),
        )
        return UserAnswer(user=encode_user(user))


def _columns(fields: Json, user: User) -> Json:
    """What was sent, as columns; with Determined's `admin` beside our `role`."""
    sent = {column: fields.get(name) for name, column in _COLUMNS.items()}
    found = {column: value for column, value in sent.items() if value is not None}
    if not found.get("role") and fields.get("admin") is not None:
        other = User.Role.EDITOR if user.role == User.Role.ADMIN else user.role
        found["role"] = User.Role.ADMIN if fields["admin"] else other
    return found | (_account(fields["agentUserGroup"], user) if "agentUserGroup" in fields else {})


def _account(group: Json | None, user: User) -> Json:
    """The columns of the linked Unix account."""
    if group is not None and not group.get("agentUser"):
        raise BadRequest(
            "agentUserGroup: agentUser is missing; name the Unix account, or send null for agentUserGroup to "
            "unlink the user."
        )
    group = group or {}
    if group.get("agentUser") == user.unix_user:  # what is not sent of the same account stays pinned
        group = {**{name: getattr(user, column) for name, column in _ACCOUNT.items()}, **group}
    found = {column: group.get(name) for name, column in _ACCOUNT.items()}
    return {**found, "unix_user": found["unix_user"] or "", "unix_group": found["unix_group"] or ""}


class OneUser(ApiView):
    """One user. Users change their own name and password; the rest is for admins."""

    rights = {"GET": Right.READ, "PATCH": Right.OWN | Right.FULL}
    bodies = {"PATCH": UserPatch}

    def get(self, request: Request, user_id: int) -> UserAnswer:
        return UserAnswer(user=encode_user(existing(User.objects, "user", pk=user_id)))

    def patch(self, request: Request, user_id: int) -> UserAnswer:
        body, asking = self.body(request), person(request)
        if user_id == asking.pk and body.get("password") is not None:
            # before the transaction, which would take the event of a wrong one back
            _require_old_password(request, asking, body)
        user = existing(User.objects, "user", pk=user_id)
        users.change(
            user,
            _columns(body, user),
            asking=asking,
            password=body.get("password"),
            is_hashed=body["isHashed"],
            keep_logins=[token_hash(token) for token in bearer_tokens(request.headers)],
            keep_tokens=body["keepAccessTokens"],
        )
        return UserAnswer(user=encode_user(user))


def _require_old_password(request: Request, asking: User, body: Json) -> None:
    """A browser left open or a token that leaked is not enough to take an account over."""
    if not asking.has_usable_password():
        return
    old = body.get("oldPassword")
    if old is None:
        raise BadRequest(
            "oldPassword: your current password is required; the page Settings and `trainmaster user change-password` "
            "ask for it."
        )
    if not confirms(asking, old, address=client_address.of(request), is_hashed=body["isHashed"]):
        raise Forbidden("oldPassword: this is not your current password.")


class UserByName(ApiView):
    """One user by name."""

    rights = {"GET": Right.READ}

    def get(self, request: Request, username: str) -> UserAnswer:
        user = existing(User.objects, "user", username=username)
        return UserAnswer(user=encode_user(user))


class Setting(serializers.Serializer[Any]):
    key = serializers.CharField(max_length=128)
    storagePath = serializers.CharField(max_length=255, required=False, allow_blank=True, default="")
    value = serializers.CharField(required=False, allow_null=True, allow_blank=True, max_length=65_536)


class SettingRecord(Answer):
    key: str
    storage_path: str
    value: str


class SettingsAnswer(Answer):
    settings: list[SettingRecord]


class SettingsBody(serializers.Serializer[Any]):
    settings = Setting(many=True, required=False)
    setting = Setting(required=False)


class UserSettings(ApiView):
    """A user's page settings: columns, filters, theme."""

    rights = {"GET": Right.READ, "POST": Right.OWN}
    bodies = {"POST": SettingsBody}

    def get(self, request: Request) -> SettingsAnswer:
        rows = UserSetting.objects.filter(user=person(request))
        settings = [SettingRecord.of(row) for row in rows]
        return SettingsAnswer(settings=settings)

    @transaction.atomic
    def post(self, request: Request) -> None:
        body, user = self.body(request), person(request)
        for row in [*body.get("settings", []), *([body["setting"]] if "setting" in body else [])]:
            key = {"user": user, "storage_path": row["storagePath"], "key": row["key"]}
            if row.get("value") is None:
                UserSetting.objects.filter(**key).delete()
            else:
                UserSetting.objects.update_or_create(**key, defaults={"value": row["value"]})


class UserSettingsReset(ApiView):
    """Reset all settings of the requesting user."""

    rights = {"POST": Right.OWN}

    def post(self, request: Request) -> None:
        UserSetting.objects.filter(user=person(request)).delete()
