"""Workspaces, the projects in one, and a project: what it holds, how that stands, and its notes."""

from __future__ import annotations

from typing import TypeVar

from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse

from accounts.models import User
from experiments import counts, phases, places
from experiments.models import Experiment, Project, Workspace
from webui.pages.experiments.listing import CHIPS
from webui.pages.frame import or_404, page, show, user_of

Row = TypeVar("Row", Workspace, Project)

PER_PAGE = 100
LATEST = 10
ROOM = "Workspaces"


@page
def workspaces(request: HttpRequest) -> HttpResponse:
    """All workspaces, or those whose name has `?q`; with `?archived` the archived ones."""
    rows = places.workspaces_with_numbers().order_by("pk").filter(archived="archived" in request.GET)
    rows = _named(rows, request)
    context = {
        "page": Paginator(rows, PER_PAGE).get_page(request.GET.get("page")),
        "q": request.GET.get("q", ""),
        "may_edit": user_of(request).may_edit,
    }
    return show(request, "workspaces", context, room=ROOM, fragment="workspaces")


@page
def workspace(request: HttpRequest, workspace_id: int) -> HttpResponse:
    """The projects of one workspace; with `?archived` its archived ones."""
    found = find_workspace(workspace_id)
    rows = places.projects_with_numbers().filter(workspace=found, archived="archived" in request.GET)
    rows = _named(rows.order_by("pk"), request)
    context = {
        "workspace": found,
        "page": Paginator(rows, PER_PAGE).get_page(request.GET.get("page")),
        "q": request.GET.get("q", ""),
        "may_edit": user_of(request).may_edit,
        "may_change": places.may_change(user_of(request), found),
    }
    return show(request, "workspace", context, room=ROOM, fragment="projects")


@page
def project(request: HttpRequest, project_id: int, tab: str = "overview") -> HttpResponse:
    """What is in it, by state and the latest."""
    found = find_project(project_id)
    rows = Experiment.objects.filter(project=found).select_related("owner").order_by("-pk")
    # neither configs nor the states of searches, which may be a megabyte each
    latest = list(rows.only("name", "state", "archived", "started_at", "owner__username")[:LATEST])
    words = phases.of_experiments(latest)
    context = head(user_of(request), found, tab) | {
        "states": _by_state(found),
        "latest": [(each, words[each.pk]) for each in latest],
    }
    return show(request, "project", context, room=ROOM, fragment="project")


def head(user: User, found: Project, tab: str) -> dict[str, object]:
    """What stands above both tabs."""
    return {
        "project": found,
        "workspace": found.workspace,
        "tab": tab,
        "is_open": not (found.archived or found.workspace.archived),
        "may_edit": user.may_edit,
        "may_change": places.may_change(user, found),
    }


def _by_state(found: Project) -> list[tuple[str, int]]:
    """(chip of the list of experiments, how many), without those of none."""
    by_state = counts.by_state(found)
    by_chip = {chip: sum(by_state.get(state, 0) for state in states) for chip, states in CHIPS.items()}
    return [(chip, count) for chip, count in by_chip.items() if count]


def _named(rows: QuerySet[Row], request: HttpRequest) -> QuerySet[Row]:
    text = request.GET.get("q", "").strip()
    return rows.filter(name__icontains=text) if text else rows


def find_workspace(workspace_id: int) -> Workspace:
    """With its numbers, or 404."""
    found = places.workspaces_with_numbers().filter(pk=workspace_id).first()
    return or_404(found, f"There is no workspace {workspace_id}.")


def find_project(project_id: int) -> Project:
    """With its numbers, or 404."""
    found = places.projects_with_numbers().filter(pk=project_id).first()
    return or_404(found, f"There is no project {project_id}.")
