"""What users may be called, wherever a name is given: REST, pages, the command line and single sign-on."""

from __future__ import annotations

import re

from django.db.models import Q

from accounts.models import User
from accounts.refusals import Code, Refusal
from events.models import BY_PEOPLE, Event

NAME_CHARACTERS = 150
#: of Unix accounts and groups, and of their numbers
UNIX_NAME = r"^[a-z_][a-z0-9_.-]*\$?$"
UNIX_NAME_CHARACTERS = 64
LARGEST_UNIX_ID = 2**31 - 1
#: No spaces or slashes, because names are parts of addresses and commands; no letters that look like others.
_OTHERS = re.compile(r"[^A-Za-z0-9._@+$-]")


def check_name(user: User, name: str) -> None:
    """Refuse a new name of the user that is not allowed or could be taken for another user. Raises Refusal."""
    if not 0 < len(name) <= NAME_CHARACTERS or _OTHERS.search(name):
        raise Refusal(
            f"username is {name[:NAME_CHARACTERS]!r}; allowed: 1 to {NAME_CHARACTERS} of the letters A-Z and a-z, "
            "digits and the characters . _ @ + $ and -.",
            field="username",
        )
    if User.objects.exclude(pk=user.pk).filter(username=name).exists():
        raise Refusal(f"user already exists: {name}.", Code.TAKEN, field="username")
    if name != user.username and _acted_as(user, name):
        raise Refusal(
            f"username is {name!r}, which another user was called when they made changes here; choose another.",
            Code.TAKEN,
            field="username",
        )
    if is_anothers(user, name):
        raise Refusal(
            f"username is {name!r}, which another user is called except for upper and lower case; choose another.",
            Code.TAKEN,
            field="username",
        )


def _acted_as(user: User, name: str) -> bool:
    """Whether someone else made changes here under this name."""
    by_people = Event.objects.filter(BY_PEOPLE)
    if not by_people.filter(actor=f"user:{name}").exists():
        return False
    renamed = by_people.filter(kind=Event.Kind.USER, subject=str(user.pk), reason="changed")
    return not renamed.filter(detail__changes__username__0=name).exists()


def check_display_name(user: User, name: str) -> None:
    """Refuse a display name by which the user could be taken for another one. Raises Refusal."""
    if len(name) > NAME_CHARACTERS or not name.isprintable():
        raise Refusal(f"At most {NAME_CHARACTERS} printable characters are allowed.", field="displayName")
    if name and is_anothers(user, name):
        raise Refusal(
            f"{name!r} is the name or display name of another user, perhaps in other case; choose another.",
            field="displayName",
        )


def is_anothers(user: User, name: str) -> bool:
    """Whether another user has this name or display name, in upper or lower case."""
    same = Q(username__iexact=name) | Q(display_name__iexact=name)
    return User.objects.exclude(pk=user.pk).filter(same).exists()


def free_name(wanted: str) -> str:
    """A name that nobody has, as much like the wanted one as is allowed."""
    name = _OTHERS.sub("-", wanted)[: NAME_CHARACTERS - 10].strip("-") or "user"
    taken = {
        each.lower()
        for each in User.objects.filter(username__istartswith=name).values_list("username", flat=True)
    }
    return next(
        each for each in (name, *(f"{name}-{n}" for n in range(2, 10_000))) if each.lower() not in taken
    )
