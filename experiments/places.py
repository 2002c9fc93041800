"""Workspaces and projects, which group experiments: how they are made, changed, archived, deleted, and by whom.

Number 1 of each, "Uncategorized", came with the server and stays as it is. Sources: features.md 4.8, 11.7.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from django.db import IntegrityError, transaction
from django.db.models import Count, OuterRef, Q, QuerySet, Subquery, Sum
from django.db.models.functions import Coalesce

from accounts import rights
from accounts.models import User
from accounts.refusals import Code, Refusal
from events.announce import announce
from events.models import Event
from events.record import differences, record
from experiments.models import Experiment, Project, Template, Workspace
from experiments.states import ExperimentState

NAME_CHARACTERS = 80
KEY = re.compile(r"[A-Za-z0-9]{1,5}")

Place = Workspace | Project
Made = TypeVar("Made")


def workspaces_with_numbers() -> QuerySet[Workspace]:
    """With `num_projects` and `num_experiments`."""
    return Workspace.objects.select_related("owner").annotate(
        num_projects=Count("projects", distinct=True),
        num_experiments=Coalesce(Sum("projects__counts__experiments"), 0),
    )


def projects_with_numbers() -> QuerySet[Project]:
    """With `num_experiments`, `num_active`, `num_runs` (trials) and `last_started` (of its newest experiment)."""
    newest = Experiment.objects.filter(project=OuterRef("pk")).order_by("-pk")
    active = Q(counts__state=ExperimentState.ACTIVE)
    return Project.objects.select_related("owner", "workspace").annotate(
        num_experiments=Coalesce(Sum("counts__experiments"), 0),
        num_active=Coalesce(Sum("counts__experiments", filter=active), 0),
        num_runs=Coalesce(Sum("counts__trials"), 0),
        last_started=Subquery(newest.values("started_at")[:1]),
    )


def open_projects() -> QuerySet[Project]:
    """Those that experiments can be put into, by workspace and name."""
    rows = Project.objects.select_related("workspace").filter(archived=False, workspace__archived=False)
    return rows.order_by("workspace__name", "name")


def chosen(workspace: Any, name: Any, number: int | None) -> Project:
    """The project that a config names, else the one with this number, else Uncategorized. Raises Refusal.

    A workspace without a project, or the reverse, is a fault of the config, which says so itself.
    """
    projects = Project.objects.select_related("workspace")
    if isinstance(name, str) and isinstance(workspace, str) and name and workspace:
        project = projects.filter(name=name, workspace__name=workspace).first()
        wanted = f"project {name} in workspace {workspace}"
    else:
        project, wanted = projects.filter(pk=number or 1).first(), f"project {number or 1}"
    if project is None:
        raise Refusal(f"{wanted} not found", Code.NOT_FOUND, "project")
    require_open(project)
    return project


def may_change(user: User, place: Place) -> bool:
    return not place.immutable and rights.may_change(user, place)


def require_changeable(user: User, place: Place) -> None:
    """Its owner and admins change a workspace or project, nobody those that came with the server. Raises Refusal."""
    what = _word(place)
    if place.immutable:
        raise Refusal(f"{what} {place.name} is built in and cannot be changed.")
    rights.require_owner(user, place, f"{what} {place.name}")


def _word(place: Place) -> str:
    return "workspace" if isinstance(place, Workspace) else "project"


def make_workspace(user: User, name: str) -> Workspace:
    """Raises Refusal."""

    def make() -> Workspace:
        made = Workspace.objects.create(name=name, owner=user)
        _record(user, made, "made")
        return made

    return _unique(make, f"a workspace {name} already exists; choose another name.")


def make_project(user: User, workspace: Workspace, name: str, description: str, key: str) -> Project:
    """`key`: empty takes a free one from the name. Raises Refusal."""
    require_open(workspace)

    def make() -> Project:
        made = Project.objects.create(
            workspace=workspace,
            name=name,
            description=description,
            key=(key or _free_key(name)).upper(),
            owner=user,
        )
        _record(user, made, "made")
        return made

    return _unique(make, f"a project named {name} or with this key already exists here; choose another.")


def require_open(place: Place) -> None:
    """Nothing is put into what is archived, or lies in a workspace that is. Raises Refusal."""
    for each in (place, place.workspace) if isinstance(place, Project) else (place,):
        if each.archived:
            raise Refusal(
                f"{_word(each)} {each.name} is archived; nothing can be added to it until it is unarchived.",
                field=_word(place),
            )


def _free_key(name: str) -> str:
    """A short key from the name that no project has yet."""
    stem = (re.sub(r"[^A-Za-z0-9]", "", name).upper() or "P")[:3]
    taken = set(Project.objects.filter(key__startswith=stem).values_list("key", flat=True))
    return next(key for key in (stem, *(f"{stem}{n}" for n in range(2, 100_000))) if key not in taken)


def change(user: User, place: Place, changes: Mapping[str, Any]) -> None:
    """Give it these columns. What an `archived` one holds stays as it is. Raises Refusal."""
    require_changeable(user, place)
    if "key" in changes:
        changes = {**changes, "key": str(changes["key"]).upper()}
    if changes:
        taken = f"a {_word(place)} with this name or key already exists; choose another."
        _unique(lambda: _write(user, place, changes), taken)


def _write(user: User, place: Place, changes: Mapping[str, Any]) -> None:
    standing = type(place).objects.select_for_update().filter(pk=place.pk).first()
    if standing is None:
        return
    former = {field: getattr(standing, field) for field in changes}
    if told := differences(former, changes):
        type(place).objects.filter(pk=place.pk).update(**changes)
        _record(user, place, "changed", changes=told)


def _record(user: User, place: Place, reason: str, **detail: Any) -> None:
    kind = Event.Kind(_word(place))
    record(
        kind, place.pk, reason=reason, actor=f"user:{user.username}", detail={"name": place.name, **detail}
    )


def _unique(step: Callable[[], Made], taken: str) -> Made:
    try:
        with transaction.atomic():
            made = step()
    except IntegrityError as error:
        raise Refusal(taken, Code.TAKEN) from error
    announce("experiments")
    return made


def move(user: User, project: Project, workspace: Workspace) -> None:
    """Put a project, with all that is in it, into another workspace. Raises Refusal."""
    require_changeable(user, project)
    if project.archived:
        raise Refusal(f"project {project.name} is archived; unarchive it before moving it.")
    require_open(workspace)
    _unique(
        lambda: _write(user, project, {"workspace": workspace}),
        f"workspace {workspace.name} already has a project {project.name}; rename one of them first.",
    )


@transaction.atomic
def settle(user: User, project: Project, changes: Mapping[str, Any], workspace: Workspace) -> None:
    """All of it or nothing: these columns, and this workspace. Raises Refusal."""
    if workspace.pk != project.workspace_id:
        move(user, project, workspace)
    change(user, project, changes)


@transaction.atomic
def delete(user: User, place: Place) -> None:
    """Only an empty one. Raises Refusal."""
    require_changeable(user, place)
    type(place).objects.select_for_update().filter(pk=place.pk).first()  # nothing is put into it meanwhile
    if isinstance(place, Project):
        if Experiment.objects.filter(project=place).exists():
            raise Refusal(f"project {place.name} still has experiments; delete or move them first.")
    elif (
        Project.objects.filter(workspace=place).exists() or Template.objects.filter(workspace=place).exists()
    ):
        raise Refusal(f"workspace {place.name} still has projects or templates; delete or move them first.")
    type(place).objects.filter(pk=place.pk).delete()
    _record(user, place, "deleted")
    announce("experiments")


def existing_workspaces(numbers: Collection[int], **_: object) -> list[int]:
    return list(Workspace.objects.filter(pk__in=numbers).values_list("pk", flat=True))


def workspace_of_job(job_id: uuid.UUID, **_: object) -> int | None:
    """The number of the workspace that the experiment of a job is in, if the job has one."""
    return Experiment.objects.filter(job=job_id).values_list("project__workspace", flat=True).first()


def may_write_notes(user: User, project: Project) -> bool:
    """Every editor writes into Uncategorized."""
    return user.may_edit if project.immutable else may_change(user, project)


def locked_notes(project_id: int) -> list[dict[str, str]]:
    """Its pages of notes, which nobody else writes until the transaction ends. Raises Refusal where it was deleted."""
    found = Project.objects.select_for_update().filter(pk=project_id).first()
    if found is None:
        raise Refusal("the project has been deleted.")
    return list(found.notes)


def write_notes(user: User, project: Project, notes: list[dict[str, str]]) -> None:
    """All its pages of notes, each with `name` and `contents`. Raises Refusal."""
    if not may_write_notes(user, project):
        rights.require_owner(user, project, f"project {project.name}")
    with transaction.atomic():
        _write(user, project, {"notes": notes})
    announce("experiments")
