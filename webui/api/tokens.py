"""Access tokens in the dialect's words; a token's scope is ours."""

from __future__ import annotations

import re
from typing import Any, Literal

from rest_framework import serializers
from rest_framework.request import Request

from accounts import tokens
from accounts.models import AccessToken, Scope, User
from accounts.rights import Right
from webui.api import encoding
from webui.api.answers import Answer, Maybe, Pagination, Time
from webui.api.errors import BadRequest, Missing, existing
from webui.api.permissions import actor, person, require_admin
from webui.api.views import ApiView

_SORT = {
    "SORT_BY_USER_ID": "user_id",
    "SORT_BY_EXPIRY": "expires_at",
    "SORT_BY_CREATED_AT": "created_at",
    "SORT_BY_TOKEN_TYPE": "id",
    "SORT_BY_REVOKED": "revoked_at",
    "SORT_BY_DESCRIPTION": "description",
}
_DURATION = re.compile(r"(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,9})s)?")


class TokenRecord(Answer):
    """A token's record; the token itself is shown only once, when it is created."""

    id: int
    user_id: int
    username: str
    description: str
    scope: Literal["read", "write", "full"]
    created_at: Time
    expiry: Time | None = None
    last_used_at: Maybe[Time] = None
    revoked: bool
    token_type: Literal["TOKEN_TYPE_ACCESS_TOKEN"]


class TokenAnswer(Answer):
    token_info: TokenRecord


class TokensAnswer(Answer):
    token_info: list[TokenRecord]
    pagination: Pagination


class NewTokenAnswer(Answer):
    token: str
    token_id: int
    token_info: TokenRecord


def encode_token(row: AccessToken) -> TokenRecord:
    return TokenRecord.of(
        row,
        username=row.user.username,
        expiry=row.expires_at,
        last_used_at=row.used_at,
        revoked=row.revoked_at is not None,
        token_type="TOKEN_TYPE_ACCESS_TOKEN",
    )


def days_of(lifespan: str | None) -> float | None:
    """`240h`, `1h30m`, or `-1`, as Determined writes durations. Raises BadRequest."""
    if not lifespan:
        return None
    if lifespan == "-1":
        return -1.0
    found = _DURATION.fullmatch(lifespan)
    if found is None:
        raise BadRequest(f"lifespan: found {lifespan!r}; allowed: a duration such as 240h, or -1.")
    hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return (hours * 3600 + minutes * 60 + seconds) / 86_400


class NewToken(serializers.Serializer[Any]):
    userId = serializers.IntegerField(required=False, allow_null=True, min_value=0)
    lifespan = serializers.CharField(
        required=False,
        allow_null=True,
        allow_blank=True,
        max_length=32,
        help_text="such as 240h; -1: never expires",
    )
    description = serializers.CharField(
        required=False, allow_null=True, allow_blank=True, max_length=tokens.DESCRIPTION_CHARACTERS
    )
    scope = serializers.ChoiceField(choices=Scope.choices, required=False, default=Scope.FULL)


class TokenPatch(serializers.Serializer[Any]):
    tokenId = serializers.CharField(required=False, allow_null=True)
    description = serializers.CharField(
        required=False, allow_null=True, allow_blank=True, max_length=tokens.DESCRIPTION_CHARACTERS
    )
    setRevoked = serializers.BooleanField(required=False, default=False)


class TokensQuery(encoding.PageQuery):
    sortBy = encoding.sort_field("tokens", _SORT)
    username = serializers.CharField(required=False, allow_blank=True)
    showInactive = serializers.BooleanField(required=False, default=False)
    tokenIds = encoding.list_of(serializers.IntegerField(min_value=0))


class Tokens(ApiView):
    """List active access tokens (admins: everyone's). POST creates one and shows it only this once."""

    rights = {"GET": Right.READ, "POST": Right.OWN | Right.FULL}
    bodies = {"POST": NewToken}
    queries = {"GET": TokensQuery}

    def get(self, request: Request) -> TokensAnswer:
        query, rows = self.query(request), tokens.of(person(request))
        if query.get("username"):
            rows = rows.filter(user__username=query["username"])
        if query.get("tokenIds"):
            rows = rows.filter(pk__in=query["tokenIds"])
        elif not query["showInactive"]:
            rows = rows.filter(pk__in=[row.pk for row in rows if row.counts])
        rows = rows.order_by(*encoding.ordering(query, _SORT, "id"))
        return encoding.page(TokensAnswer, rows, query, encode_token)

    def post(self, request: Request) -> NewTokenAnswer:
        body, asking = self.body(request), person(request)
        user = _user(asking, body.get("userId"))
        row, token = tokens.create(
            user,
            description=body.get("description") or "",
            days=days_of(body.get("lifespan")),
            scope=Scope(body["scope"]),
            actor=actor(request),
        )
        return NewTokenAnswer(token=token, token_id=row.pk, token_info=encode_token(row))


def _user(asking: User, user_id: int | None) -> User:
    if user_id in (None, asking.pk):
        return asking
    require_admin(asking)
    user = User.objects.filter(pk=user_id, is_active=True).first()
    if user is None:
        raise Missing(f"user {user_id} not found, or not active")
    return user


class OneToken(ApiView):
    """One access token: change its description, or revoke it permanently."""

    rights = {"GET": Right.READ, "PATCH": Right.OWN | Right.FULL}
    bodies = {"PATCH": TokenPatch}

    def get(self, request: Request, token_id: int) -> TokenAnswer:
        return TokenAnswer(token_info=encode_token(_find(request, token_id)))

    def patch(self, request: Request, token_id: int) -> TokenAnswer:
        body, row = self.body(request), _find(request, token_id)
        if body.get("description") is not None:
            tokens.describe(row, body["description"], actor=actor(request))
        if body["setRevoked"]:
            tokens.revoke(row, actor=actor(request))
        return TokenAnswer(token_info=encode_token(row))


def _find(request: Request, token_id: int) -> AccessToken:
    row: AccessToken = existing(tokens.of(person(request)), "token", pk=token_id)
    return row
