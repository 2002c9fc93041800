"""Access tokens: made, changed and revoked here; shown once, when they are made."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from accounts.models import ACCESS_PREFIX, AccessToken, Scope, User, new_token, token_hash
from accounts.refusals import Code, Refusal
from events.models import Event
from events.record import record

DESCRIPTION_CHARACTERS = 255
DAYS_MAX = 36_500


def of(user: User) -> Any:
    """Those that somebody may see and revoke: their own, and all for an admin."""
    rows = AccessToken.objects.select_related("user")
    return rows if user.is_admin else rows.filter(user=user)


def create(
    user: User, *, description: str, days: float | None, scope: Scope, actor: str
) -> tuple[AccessToken, str]:
    """The token's row, and the token. `days` None: as the server is set; -1: for ever. Raises Refusal."""
    expires_at = _expiry(settings.ACCESS_TOKEN_DAYS if days is None else days)
    most = settings.ACCESS_TOKENS_PER_USER
    if AccessToken.objects.filter(user=user, revoked_at=None).count() >= most:
        raise Refusal(
            f"{user.username} has {most} access tokens, as many as this server allows "
            "(TRAINMASTER_ACCESS_TOKENS_PER_USER); revoke some first.",
            Code.CONFLICT,
        )
    token = ACCESS_PREFIX + new_token()
    with transaction.atomic():
        row = AccessToken.objects.create(
            hash=token_hash(token), user=user, description=_checked(description), scope=scope, expires_at=expires_at
        )  # fmt: skip
        _record(row, "access token created", actor)
    return row, token


def _expiry(days: float) -> Any:
    longest = settings.ACCESS_TOKEN_DAYS_MAX
    if days == -1:
        if longest != -1:
            raise Refusal(f"On this server an access token is valid for at most {longest:g} days.")
        return None
    if not (math.isfinite(days) and 0 < days <= DAYS_MAX):
        raise Refusal(
            f"found {days:g} days; allowed: more than 0 and at most {DAYS_MAX}, or -1 to never expire."
        )
    if longest != -1 and days > longest:
        raise Refusal(
            f"found {days:g} days; on this server an access token is valid for at most {longest:g} days."
        )
    return timezone.now() + timedelta(days=days)


def _checked(description: str) -> str:
    if len(description) > DESCRIPTION_CHARACTERS or "\0" in description:
        raise Refusal(f"description: allowed: at most {DESCRIPTION_CHARACTERS} characters.")
    return description.strip()


def describe(row: AccessToken, description: str, *, actor: str) -> None:
    row.description = _checked(description)
    with transaction.atomic():
        row.save(update_fields=["description"])
        _record(row, "access token description changed", actor)


def revoke(row: AccessToken, *, actor: str) -> None:
    """It counts no more, at once and for good."""
    with transaction.atomic():
        if AccessToken.objects.filter(pk=row.pk, revoked_at=None).update(revoked_at=timezone.now()):
            _record(row, "access token revoked", actor)
    row.refresh_from_db()


def revoke_all(user: User) -> int:
    """Revoke all tokens of a user who may no longer log in; return how many there were."""
    return AccessToken.objects.filter(user=user, revoked_at=None).update(revoked_at=timezone.now())


def _record(row: AccessToken, what: str, actor: str) -> None:
    detail = {"token": row.pk, "description": row.description, "scope": row.scope}
    record(Event.Kind.USER, row.user_id, reason=what, actor=actor, detail=detail)
