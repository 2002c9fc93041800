"""Workspaces and projects are made, changed, archived and deleted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib import messages
from django.db.models import Q
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from accounts import rights
from accounts.refusals import Code, Refusal, refused_as
from experiments import places
from experiments.models import Project, Workspace
from webui.pages.frame import page, show, user_of
from webui.pages.places import ROOM, find_project, find_workspace


@page
def new_workspace(request: HttpRequest) -> HttpResponseBase:
    """GET: the form; POST: make it."""
    rights.require_editor(user_of(request))
    return _form(request, None, None, {"name": ""})


@page
def edit_workspace(request: HttpRequest, workspace_id: int) -> HttpResponseBase:
    """GET: the form; POST: keep what it says."""
    found = find_workspace(workspace_id)
    _require_owner(request, found)
    return _form(request, found, None, {"name": found.name})


@page
def new_project(request: HttpRequest, workspace_id: int) -> HttpResponseBase:
    """GET: the form; POST: make it in this workspace."""
    rights.require_editor(user_of(request))
    return _form(request, None, find_workspace(workspace_id), {"name": "", "description": "", "key": ""})


@page
def edit_project(request: HttpRequest, project_id: int) -> HttpResponseBase:
    """GET: the form; POST: keep what it says."""
    found = find_project(project_id)
    _require_owner(request, found)
    beginning = {"name": found.name, "description": found.description, "key": found.key}
    return _form(request, found, found.workspace, {**beginning, "workspace": str(found.workspace_id)})


def _form(
    request: HttpRequest,
    found: Workspace | Project | None,
    workspace: Workspace | None,
    given: Mapping[str, str],
) -> HttpResponseBase:
    problem = ""
    if request.method == "POST":
        given = {field: request.POST.get(field, value).strip() for field, value in given.items()}
        try:
            return redirect(_kept(request, found, workspace, given))
        except Refusal as refusal:
            problem = str(refusal)
    here = Q(pk=workspace.pk if workspace else None)
    context = {
        "found": found,
        "workspace": workspace,
        "given": given,
        "problem": problem,
        "workspaces": Workspace.objects.filter(here | Q(archived=False)).order_by("name"),
        "most": places.NAME_CHARACTERS,
    }
    answer = show(request, "place_form", context, room=ROOM)
    if problem:
        answer.status_code = 400
    return answer


def _kept(
    request: HttpRequest,
    found: Workspace | Project | None,
    workspace: Workspace | None,
    given: Mapping[str, str],
) -> str:
    """The address of what was made or changed. Raises Refusal."""
    user, values = user_of(request), _checked(given, is_new=found is None)
    if isinstance(found, Project):
        places.settle(user, found, values, _workspace(given["workspace"]))
        return f"/projects/{found.pk}"
    if found is not None:
        places.change(user, found, values)
        return f"/workspaces/{found.pk}"
    if workspace is not None:
        return f"/projects/{places.make_project(user, workspace, **values).pk}"
    return f"/workspaces/{places.make_workspace(user, values['name']).pk}"


def _checked(given: Mapping[str, str], *, is_new: bool) -> dict[str, Any]:
    """The columns. A new project may leave its key empty. Raises Refusal."""
    name = given["name"]
    if not 0 < len(name) <= places.NAME_CHARACTERS or not name.isprintable():
        raise Refusal(f"A name has 1 to {places.NAME_CHARACTERS} printable characters.")
    key = given.get("key")
    if key is not None and not (is_new and not key) and not places.KEY.fullmatch(key):
        raise Refusal(f"A key has one to five letters and digits; found: {key or 'nothing'}.")
    return {field: value for field, value in given.items() if field != "workspace"}


def _workspace(text: str) -> Workspace:
    """Raises Refusal."""
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
    found = Workspace.objects.filter(pk=number).first()
    if found is None:
        raise Refusal("There is no such workspace; choose another.")
    return found


@page
@require_POST
def act(request: HttpRequest, kind: str, place_id: int, action: str) -> HttpResponse:
    """archive, unarchive, delete. `kind`: workspaces or projects."""
    found = find_workspace(place_id) if kind == "workspaces" else find_project(place_id)
    above = "/workspaces" if isinstance(found, Workspace) else f"/workspaces/{found.workspace_id}"
    try:
        if action == "delete":
            places.delete(user_of(request), found)
            messages.success(request, f"{found.name} was deleted.")
            return redirect(above)
        if action not in {"archive", "unarchive"}:
            raise Http404(f"There is no action {action}.")
        places.archive(user_of(request), found, action == "archive")
    except Refusal as refusal:
        messages.error(request, f"Nothing was changed: {refusal}")
    return redirect(f"/{kind}/{place_id}")


def _require_owner(request: HttpRequest, found: Workspace | Project) -> None:
    with refused_as(Code.FORBIDDEN):
        places.require_changeable(user_of(request), found)
