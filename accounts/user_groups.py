"""Groups of people are created and changed here, whoever asks. A user is in one group at most.

There are two levels: a department may have teams, a team has none. The members of a department are in no team of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from django.db import transaction
from django.db.models import Count, QuerySet
from django.dispatch import Signal

from accounts.models import Group, User
from accounts.refusals import Code, Refusal
from events.models import Event
from events.record import record

#: Sent in the transaction of each change. `was` and `now`: the name of the group, empty where there is none.
#: Who needs the group as it was raises Refusal.
group_changed = Signal()
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def every() -> QuerySet[Group]:
    """All groups, each with `people`: the number of its own members."""
    return Group.objects.select_related("parent").annotate(people=Count("members")).order_by("name")


def named(name: str) -> Group:
    """The group of this name. Raises Refusal."""
    group = Group.objects.select_related("parent").filter(name=name).first()
    if group is None:
        raise Refusal(f"There is no group {name}.", Code.NOT_FOUND, field="group")
    return group


@transaction.atomic
def create(name: str, *, parent: str = "", add: Iterable[User] = (), actor: str) -> Group:
    """A new group, a team if `parent` names its department. Raises Refusal."""
    group = Group()
    _rename(group, name)
    _place(group, parent)
    group.save()
    moved = _take_in(group, add)
    group_changed.send(Group, was="", now=name)
    _record(group, "created", actor, {"parent": ["", parent], "members": ["", moved]})
    return group


@transaction.atomic
def change(
    group: Group,
    *,
    name: str | None = None,
    parent: str | None = None,
    add: Iterable[User] = (),
    remove: Iterable[User] = (),
    actor: str,
) -> Group:
    """Rename a group, give it another department (empty: none), move users into and out of it. Raises Refusal."""
    group = Group.objects.select_for_update(of=("self",)).select_related("parent").get(pk=group.pk)
    was, former = group.name, group.parent.name if group.parent else ""
    if name is not None and name != was:
        _rename(group, name)
    if parent is not None and parent != former:
        _place(group, parent)
    group.save()
    gone = [user.username for user in remove if user.group_id == group.pk]
    group.members.filter(username__in=gone).update(group=None)
    changes = {
        "name": [was, group.name],
        "parent": [former, group.parent.name if group.parent else ""],
        "members": [", ".join(gone), _take_in(group, add)],
    }
    changes = {field: pair for field, pair in changes.items() if pair[0] != pair[1]}
    if changes:
        group_changed.send(Group, was=was, now=group.name)
        _record(group, "changed", actor, changes)
    return group


@transaction.atomic
def delete(group: Group, *, actor: str) -> None:
    """Its members are in no group then. Raises Refusal while it has teams, or a pool's rules name it."""
    if teams := [team.name for team in group.teams.all()]:
        raise Refusal(
            f"Group {group.name} has teams: {', '.join(teams)}. Delete them, or move them out, first.",
            Code.CONFLICT,
        )
    group_changed.send(Group, was=group.name, now="")
    _record(group, "deleted", actor, {})
    group.delete()


def _rename(group: Group, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise Refusal(
            f"Found {name!r}; allowed: 1 to 64 letters, digits, '.', '_' and '-', a letter or digit first.",
            field="name",
        )
    if Group.objects.exclude(pk=group.pk).filter(name__iexact=name).exists():
        raise Refusal(f"A group named {name!r} already exists.", Code.TAKEN, field="name")
    group.name = name


def _place(group: Group, parent: str) -> None:
    above = named(parent) if parent else None
    if above and above.pk == group.pk:
        raise Refusal(f"Group {group.name} cannot be in itself.", field="parent")
    if above and above.parent:
        raise Refusal(
            f"{above.name} is a team of {above.parent.name} and cannot have teams: there are two levels.",
            field="parent",
        )
    if above and group.pk and group.teams.exists():
        raise Refusal(
            f"Group {group.name} has teams and cannot become a team: there are two levels.", field="parent"
        )
    group.parent = above


def _take_in(group: Group, users: Iterable[User]) -> str:
    """Move the users here, out of the groups they were in; their names."""
    names = sorted(user.username for user in users if user.group_id != group.pk)
    User.objects.filter(username__in=names).update(group=group)
    return ", ".join(names)


def _record(group: Group, reason: str, actor: str, changes: dict[str, list[str]]) -> None:
    detail: dict[str, Any] = {"name": group.name} | ({"changes": changes} if changes else {})
    record(Event.Kind.GROUP, group.pk, reason=reason, actor=actor, detail=detail)
