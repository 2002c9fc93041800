"""Users are created and changed here, whoever asks: REST, pages, commands of manage.py.

Each change leaves an event in its transaction, and `accounts_changed` tells the rooms above.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Q
from django.dispatch import Signal

from accounts import names, passwords, tokens
from accounts.models import LoginToken, User
from accounts.refusals import Code, Refusal
from accounts.rights import require_admin
from events import origin
from events.models import Event
from events.record import differences, record

#: sent in the transaction in which a user is new, or has another account, role or state
accounts_changed = Signal()
#: what users may change of themselves; the rest is for admins
OWN = {"display_name"}
_COLUMNS = (
    "username", "display_name", "email", "role", "is_active", "unix_user", "unix_uid", "unix_group", "unix_gid"
)  # fmt: skip


@transaction.atomic
def create(values: Mapping[str, Any], *, actor: str, password: str = "", is_hashed: bool = False) -> User:
    """A new user with these columns; without a password, they can only log in by single sign-on. Raises Refusal."""
    user = User()
    _take(user, values)
    if password:
        _set_password(user, password, is_hashed)
    else:
        user.set_unusable_password()
    _save(user)
    accounts_changed.send(User)
    record(Event.Kind.USER, user.pk, to_state=user.role, reason="created", actor=actor, detail=_named(user))
    return user


@transaction.atomic
def change(
    user: User,
    values: Mapping[str, Any],
    *,
    asking: User | None,
    password: str | None = None,
    is_hashed: bool = False,
    keep_logins: Collection[str] = (),
    keep_tokens: bool = False,
) -> User:
    """Give the user these columns and this password. Raises Refusal.

    `asking`: None for whoever runs a command on the server's machine. Another password ends the logins of the CLI and
    the SDK but those with the hashes `keep_logins`, and browser sessions; if someone else sets it, it also revokes
    access tokens, unless `keep_tokens`.
    """
    is_own = asking is not None and asking.pk == user.pk
    if asking is not None and not (is_own and values.keys() <= OWN):
        require_admin(asking)
    known = user.password
    _lock(user, with_admins=bool(values.keys() - OWN))
    if is_own and not user.is_active:
        raise Refusal("This account has been deactivated.", Code.FORBIDDEN)
    if is_own and password is not None and user.password != known:
        raise Refusal("Your password has just been changed by someone else. Log in again.", Code.CONFLICT)
    former = {name: getattr(user, name) for name in _COLUMNS}
    _take(user, values)
    _refuse_last_admin(user)
    changes = differences(former, {name: getattr(user, name) for name in _COLUMNS})
    told: dict[str, Any] = {}
    if password is not None:
        _set_password(user, password, is_hashed)
        LoginToken.objects.filter(user=user).exclude(hash__in=keep_logins).delete()
        changes["password"] = ["", ""]
        if not is_own:
            told["accessTokens"] = "kept" if keep_tokens else "revoked"
    if not changes:
        return user
    _save(user)
    if not user.is_active:
        LoginToken.objects.filter(user=user).delete()
        told["accessTokens"] = "revoked"
    if told.get("accessTokens") == "revoked":
        tokens.revoke_all(user)
    if not changes.keys() <= {*OWN, "password"}:
        accounts_changed.send(User)
    record(
        Event.Kind.USER, user.pk, from_state=former["role"], to_state=user.role, reason="changed",
        actor=f"user:{asking.username}" if asking else origin.account(),
        detail={**_named(user), "changes": changes, **told},
    )  # fmt: skip
    return user


def _named(user: User) -> dict[str, str]:
    return {"name": user.username}


def _take(user: User, values: Mapping[str, Any]) -> None:
    """Raises Refusal for values that contradict each other or what others have; each alone has been checked."""
    if (name := values.get("username", user.username)) != user.username or not name:
        names.check_name(user, name)
    if (called := values.get("display_name", user.display_name)) != user.display_name:
        names.check_display_name(user, called)
    for column, value in values.items():
        setattr(user, column, value)
    group = (user.unix_uid, user.unix_group, user.unix_gid)
    if not user.unix_user and group != (None, "", None):
        raise Refusal(
            "A Unix group or number without an account: name the account, or leave all four empty.",
            field="unix_user",
        )
    if "root" in (user.unix_user, user.unix_group) or 0 in (user.unix_uid, user.unix_gid):
        raise Refusal("agentUserGroup: jobs cannot run as root; link an ordinary account.", field="unix_user")


def _set_password(user: User, password: str, is_hashed: bool) -> None:
    if not password:
        raise Refusal("password: must not be empty.", field="password")
    if sentence := passwords.hash_fault(password) if is_hashed else passwords.weakness(password):
        raise Refusal(sentence, field="password")
    passwords.set_password(user, password, is_hashed=is_hashed)


def _lock(user: User, *, with_admins: bool) -> None:
    """Read the row again and keep it: what was read before may be old, and saving it would undo another's change.

    The admins are locked with it and in one order, for two who step down at once.
    """
    rows = Q(pk=user.pk)
    if with_admins:
        rows |= Q(role=User.Role.ADMIN, is_active=True)
    list(User.objects.select_for_update().filter(rows).order_by("pk").values_list("pk"))
    user.refresh_from_db()


def _refuse_last_admin(user: User) -> None:
    """Raises Refusal where no admin would be left who can log in."""
    if user.role == User.Role.ADMIN and user.is_active:
        return
    admins = User.objects.filter(role=User.Role.ADMIN, is_active=True)
    if list(admins.values_list("pk", flat=True)) == [user.pk]:
        raise Refusal(f"{user.username} is the only active admin; make another user an admin first.")


def _save(user: User) -> None:
    try:
        with transaction.atomic():
            user.save()
    except IntegrityError as error:  # another request was faster
        raise Refusal(f"user already exists: {user.username}.", Code.TAKEN, field="username") from error
