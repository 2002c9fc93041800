"""What a role may do. Viewers read; editors change what is theirs; admins change everything."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rest_framework.exceptions import NotAuthenticated
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from accounts import rights
from accounts.models import User
from accounts.rights import Right
from accounts.rights import require_admin as require_admin
from accounts.rights import require_owner as require_owner
from jobs.models import Allocation
from webui.api.authentication import NOBODY
from webui.api.errors import Forbidden

if TYPE_CHECKING:
    from rest_framework.views import APIView


class RolePermission(BasePermission):
    """Asks for the right that the view declares for the method."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        right = right_of(rights.declared_by(view), request.method or "GET")
        if right is Right.OPEN:
            return True
        who: Any = request.user
        if isinstance(who, Allocation):
            return require_run(right)
        if not isinstance(who, User):
            raise NotAuthenticated(NOBODY)
        rights.require(who, right)
        return True


def right_of(declared: Mapping[str, Right], method: str) -> Right:
    """The right that a method needs. One that a view lacks is refused as such, to people who may see the view."""
    if method == "HEAD":
        method = "GET"
    return declared.get(method, Right.OPEN if is_open(declared) else Right.READ)


def is_open(declared: Mapping[str, Right]) -> bool:
    """Whether nothing of a view needs a login."""
    return set(declared.values()) == {Right.OPEN}


def require_run(right: Right) -> bool:
    """Raises Forbidden where runs may not."""
    if Right.RUN in right:
        return True
    raise Forbidden("A run's token can only be used for that run's own reports.")


def person(request: Request) -> User:
    """The logged-in user; a run's token is no person."""
    who: Any = request.user
    if not isinstance(who, User):
        raise Forbidden("A run's token cannot be used here.")
    return who


def actor(request: Request) -> str:
    """How event rows name whoever asks."""
    who: Any = request.user
    return f"run:{who.pk}" if isinstance(who, Allocation) else f"user:{who.username}"


def idempotency_key(request: Request, user: User) -> str | None:
    """The header's key, kept apart per user: nobody learns of another's job by guessing."""
    key = request.headers.get("Idempotency-Key")
    return hashlib.sha256(f"{user.pk}:{key}".encode()).hexdigest() if key else None
