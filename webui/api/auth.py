"""Logging in and out, and who one is."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.utils import timezone
from rest_framework import serializers
from rest_framework.request import Request

from accounts.logins import log_in, note
from accounts.models import LoginToken, User, token_hash
from accounts.passwords import PASSWORD_CHARACTERS
from accounts.refusals import Code, Refusal
from accounts.rights import Right
from webui import client_address
from webui.api.answers import Answer
from webui.api.authentication import bearer_tokens
from webui.api.errors import Forbidden
from webui.api.permissions import person
from webui.api.users import UserAnswer, UserRecord, encode_user
from webui.api.views import ApiView


class LoginBody(serializers.Serializer[Any]):
    username = serializers.CharField(max_length=150)
    password = serializers.CharField(
        allow_blank=True, required=False, default="", trim_whitespace=False, max_length=PASSWORD_CHARACTERS
    )
    isHashed = serializers.BooleanField(required=False, default=False)


class LoginAnswer(Answer):
    token: str
    user: UserRecord


class Login(ApiView):
    """Get a token for a user name and password. 401: they do not match; 403: too many wrong ones, or deactivated."""

    rights = {"POST": Right.OPEN}
    authentication_classes = []
    bodies = {"POST": LoginBody}

    def post(self, request: Request) -> LoginAnswer:
        body, address = self.body(request), client_address.of(request)
        user = log_in(body["username"], body["password"], address=address, is_hashed=body["isHashed"])
        if user is None:
            raise Refusal("invalid credentials", Code.UNKNOWN_PERSON)
        if not user.is_active:
            raise Forbidden(f"user {user.username} is deactivated; an admin can activate it again")
        with transaction.atomic():
            User.objects.filter(pk=user.pk).update(last_login=timezone.now())
            token = LoginToken.issue(user)
            note(user, "logged_in")
        return LoginAnswer(token=token, user=encode_user(user))


class Logout(ApiView):
    """Revoke the token of this request."""

    rights = {"POST": Right.OWN}

    @transaction.atomic
    def post(self, request: Request) -> None:
        hashes = [token_hash(token) for token in bearer_tokens(request.headers)]
        if LoginToken.objects.filter(hash__in=hashes, user=person(request)).delete()[0]:
            note(person(request), "logged_out")


class Me(ApiView):
    """The user of this request."""

    rights = {"GET": Right.READ}

    def get(self, request: Request) -> UserAnswer:
        return UserAnswer(user=encode_user(person(request)))
