"""Users, their linked Unix accounts, and what the console remembers for them."""

from __future__ import annotations

from typing import Any, Literal

from django.db import IntegrityError, transaction
from django.db.models import Q
from rest_framework import serializers
from rest_framework.request import Request

from accounts import names, tokens
from accounts.logins import confirms
from accounts.models import LoginToken, User, token_hash
from accounts.passwords import PASSWORD_CHARACTERS, hash_fault, set_password, weakness
from accounts.rights import Right
from events.models import Event
from events.record import differences, record
from hosts.login_accounts import accounts_changed
from webui import client_address
from webui.api import encoding
from webui.api.answers import Answer, Maybe, Pagination, Time
from webui.api.authentication import bearer_tokens
from webui.api.errors import BadRequest, Conflict, Forbidden, existing
from webui.api.permissions import actor, person, require_admin
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
    )


class AgentUserGroup(serializers.Serializer[Any]):
    """The Unix account that the user's jobs run as on hosts, in the groups that the account has there.

    With `agentUid` and `agentGid`, jobs start only on hosts where the account has this UID and this primary GID.
    `agentGroup` is kept and answered for Determined's clients. null unlinks the user.
    """

    agentUser = serializers.RegexField(
        r"^[a-z_][a-z0-9_.-]*\$?$", max_length=64, required=False, allow_null=True
    )
    agentUid = serializers.IntegerField(min_value=0, max_value=2**31 - 1, required=False, allow_null=True)
    agentGroup = serializers.RegexField(
        r"^[a-z_][a-z0-9_.-]*\$?$", max_length=64, required=False, allow_null=True
    )
    agentGid = serializers.IntegerField(min_value=0, max_value=2**31 - 1, required=False, allow_null=True)


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
        users = User.objects.all()
        if name := query.get("name"):
            users = users.filter(Q(username__icontains=name) | Q(display_name__icontains=name))
        users = encoding.narrowed(users, query, active="is_active")
        if query["admin"] is not None:
            users = (
                users.filter(role=User.Role.ADMIN) if query["admin"] else users.exclude(role=User.Role.ADMIN)
            )
        users = users.order_by(*encoding.ordering(query, _SORT, "username"))
        return encoding.page(UsersAnswer, users, query, encode_user)

    def post(self, request: Request) -> UserAnswer:
        body = self.body(request)
        fields = body["user"]
        if not fields.get("username"):
            raise BadRequest("user.username: a name is required.")
        user = User()
        _apply(user, fields)
        if body.get("password"):
            _set_password(user, body["password"], body["isHashed"])
        else:
            user.set_unusable_password()
        try:
            with transaction.atomic():
                user.save(force_insert=True)
                accounts_changed()
                record(Event.Kind.USER, user.pk, to_state=user.role, reason="created", actor=actor(request))
        except IntegrityError as error:
            raise Conflict(f"user already exists: {user.username}.") from error  # another request was faster
        return UserAnswer(user=encode_user(user))


def _apply(user: User, fields: Json) -> None:
    """Take over what was sent, with Determined's `admin` beside our `role`."""
    if (name := fields.get("username")) and name != user.username:
        names.check_name(user, name)
        user.username = name
    if (called := fields.get("displayName")) is not None and called != user.display_name:
        names.check_display_name(user, called)
        user.display_name = called
    if "email" in fields:
        user.email = fields["email"]
    if fields.get("active") is not None:
        user.is_active = fields["active"]
    if fields.get("role"):
        user.role = fields["role"]
    elif fields.get("admin") is not None and fields["admin"] != user.is_admin:
        user.role = User.Role.ADMIN if fields["admin"] else User.Role.EDITOR
    if "agentUserGroup" in fields:
        group = fields["agentUserGroup"]
        if group is not None and not group.get("agentUser"):
            raise BadRequest(
                "agentUserGroup: agentUser is missing; name the Unix account, or send null for agentUserGroup to "
                "unlink the user."
            )
        group = group or {}
        if group.get("agentUser") == user.unix_user:  # what is not sent of the same account stays pinned
            pinned = {"agentUid": user.unix_uid, "agentGroup": user.unix_group, "agentGid": user.unix_gid}
            group = {**pinned, **group}
        user.unix_user = group.get("agentUser") or ""
        user.unix_uid = group.get("agentUid")
        user.unix_group = group.get("agentGroup") or ""
        user.unix_gid = group.get("agentGid")
        if "root" in (user.unix_user, user.unix_group) or 0 in (user.unix_uid, user.unix_gid):
            raise BadRequest("agentUserGroup: jobs cannot run as root; link an ordinary account.")


def _set_password(user: User, password: str, is_hashed: bool) -> None:
    if not password:
        raise BadRequest("password: must not be empty.")
    if sentence := hash_fault(password) if is_hashed else weakness(password):
        raise BadRequest(sentence)
    set_password(user, password, is_hashed=is_hashed)


#: fields whose former and new values an event of a change has
_TOLD = ("username", "display_name", "role", "is_active", "unix_user")


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
        return self._changed(request, body, asking, user_id)

    @transaction.atomic
    def _changed(self, request: Request, body: Json, asking: User, user_id: int) -> UserAnswer:
        user = existing(User.objects, "user", pk=user_id)
        own = {"displayName", "password"}
        beside = {"isHashed", "oldPassword", "keepAccessTokens"}
        changes = {
            name for name, value in body.items() if name == "agentUserGroup" or value is not None
        } - beside
        if user.pk != asking.pk or changes - own:
            require_admin(asking)
        before, former = user.role, {field: getattr(user, field) for field in _TOLD}
        _apply(user, body)
        _refuse_last_admin(user)
        if body.get("password") is not None:
            if user.pk != asking.pk and not body["keepAccessTokens"]:
                tokens.revoke_all(user)
            _set_password(user, body["password"], body["isHashed"])
            used_now = [token_hash(token) for token in bearer_tokens(request)]
            LoginToken.objects.filter(user=user).exclude(hash__in=used_now).delete()
        try:
            with transaction.atomic():
                user.save()
        except IntegrityError as error:
            raise Conflict(f"a user {user.username} already exists.") from error
        if not user.is_active:
            LoginToken.objects.filter(user=user).delete()
            tokens.revoke_all(user)
        if changes - own:
            accounts_changed()
        now = {field: getattr(user, field) for field in _TOLD}
        detail: Json = {"changed": sorted(changes), "changes": differences(former, now)}
        if "password" in changes and user.pk != asking.pk:
            detail["accessTokens"] = "kept" if body["keepAccessTokens"] else "revoked"
        record(
            Event.Kind.USER, user.pk, from_state=before, to_state=user.role, reason="changed", actor=actor(request),
            detail=detail,
        )  # fmt: skip
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


def _refuse_last_admin(user: User) -> None:
    if user.is_admin and user.is_active:
        return
    others = User.objects.filter(role=User.Role.ADMIN, is_active=True).exclude(pk=user.pk)
    was_admin = User.objects.filter(pk=user.pk, role=User.Role.ADMIN, is_active=True).exists()
    if was_admin and not others.exists():
        raise BadRequest(f"{user.username} is the only active admin; make another user an admin first.")


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
