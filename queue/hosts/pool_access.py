"""Who may use a pool: everyone, or the groups and workspaces that its rule `open_to` names."""

from __future__ import annotations

import uuid

from django.dispatch import Signal

from accounts.models import Group, User
from accounts.refusals import Code, Refusal
from hosts.models import ResourcePool
from scheduling.reasons import listed

#: Sent with `numbers`, those of workspaces; a receiver returns the ones that exist.
workspaces_asked = Signal()
#: Sent with `job_id`; the receiver that knows the job returns the number of its workspace, others None.
workspace_of_job = Signal()
_EXAMPLE = 'such as {"groups": ["vision"], "workspaces": [3]}, or {}: everyone'


def fault(value: object) -> str | None:
    """What is wrong with a rule."""
    if not isinstance(value, dict) or value.keys() - {"groups", "workspaces"}:
        return f"allowed: names of groups and numbers of workspaces, {_EXAMPLE}"
    groups, workspaces = value.get("groups", []), value.get("workspaces", [])
    if not (isinstance(groups, list) and all(isinstance(name, str) for name in groups)):
        return f"allowed for groups: a list of names, {_EXAMPLE}"
    if not (isinstance(workspaces, list) and all(type(number) is int for number in workspaces)):
        return f"allowed for workspaces: a list of numbers, {_EXAMPLE}"
    if missing := sorted(
        set(groups) - set(Group.objects.filter(name__in=groups).values_list("name", flat=True))
    ):
        return f"there is no group {missing[0]}"
    found: set[int] = set()
    for _, numbers in workspaces_asked.send(ResourcePool, numbers=workspaces):
        found.update(map(int, numbers or ()))
    if gone := sorted(set(workspaces) - found):
        return f"there is no workspace {gone[0]}"
    return None


def may_use(pool: ResourcePool, user: User, workspace: int | None = None) -> bool:
    """May work of this user be put into the pool? `workspace`: the number of its workspace, None if not yet known."""
    groups, workspaces = pool.open_to.get("groups", []), pool.open_to.get("workspaces", [])
    if not (groups or workspaces):
        return True
    if user.group and set(user.group.path) & set(groups):
        return True
    return bool(workspaces) and (workspace is None or workspace in workspaces)


def refuse_others(pool: ResourcePool, user: User, workspace: int | None = None) -> None:
    """Raises Refusal where the user, or the workspace, may not use the pool."""
    if may_use(pool, user, workspace):
        return
    groups, workspaces = pool.open_to.get("groups", []), pool.open_to.get("workspaces", [])
    whose = [f"group {name}" for name in groups] + [f"workspace {number}" for number in workspaces]
    own = f"group {user.group.name}" if user.group else "no group"
    raise Refusal(
        f"Pool {pool.name} is only for {listed(whose)}; {user.username} is in {own}. Choose another pool.",
        Code.FORBIDDEN,
        field="pool",
    )


def refuse_move(pool: ResourcePool, owner: User, job_id: uuid.UUID) -> None:
    """Raises Refusal where a job of this owner may not be moved into the pool."""
    numbers = [int(found) for _, found in workspace_of_job.send(ResourcePool, job_id=job_id) if found]
    refuse_others(pool, owner, numbers[0] if numbers else 0)


def group_changed(was: str, now: str, **_: object) -> None:
    """The rules follow a new name; a group that one names is not deleted. Raises Refusal."""
    for pool in ResourcePool.objects.select_for_update(no_key=True).exclude(open_to={}):
        groups = pool.open_to.get("groups", [])
        if was in groups and not now:
            raise Refusal(
                f"Group {was} cannot be deleted: pool {pool.name} is for it. Change that first.",
                Code.CONFLICT,
            )
        if was in groups and was != now:
            pool.open_to = {**pool.open_to, "groups": [now if name == was else name for name in groups]}
            pool.save(update_fields=["open_to"])
