"""Workspaces, the projects in one, and a project: what it holds and how that stands; both are made and changed."""

from __future__ import annotations

from typing import Any, TypeVar, cast

from django import forms
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.core.paginator import Paginator
from django.db.models import Q, QuerySet
from django.forms.models import model_to_dict
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect

from accounts import rights
from accounts.models import User
from accounts.refusals import Code, Refusal, refused_as
from accounts.rights import Right
from experiments import counts, phases, places
from experiments.models import Experiment, Project, Workspace
from webui.forms import Form
from webui.pages.experiments.listing import CHIPS
from webui.pages.frame import form, or_404, page, posted, show, user_of

Row = TypeVar("Row", Workspace, Project)

PER_PAGE = 100
LATEST = 10
ROOM = "Workspaces"


def _key(more_help: str = "", *, required: bool = True) -> forms.RegexField:
    wrong = "A key must have one to five letters and digits"
    return forms.RegexField(
        rf"\A{places.KEY.pattern}\Z",
        label="Key",
        help_text=f"One to five letters and digits, not used by another project{more_help}.",
        required=required,
        strip=True,
        error_messages={"required": f"{wrong}; found: nothing.", "invalid": f"{wrong}."},
        widget=forms.TextInput({"class": "mono", "autocomplete": "off", "maxlength": 5}),
    )


class _Name(forms.CharField):
    def validate(self, value: str) -> None:
        super().validate(value)
        if not value.isprintable():
            raise ValidationError(self.error_messages["invalid"], "invalid")


class PlaceForm(Form):
    name = _Name(
        label="Name",
        max_length=places.NAME_CHARACTERS,
        error_messages=dict.fromkeys(
            ("required", "max_length", "invalid"),
            f"A name has 1 to {places.NAME_CHARACTERS} printable characters.",
        ),
        widget=forms.TextInput({"autofocus": True}),
    )


class NewProjectForm(PlaceForm):
    description = forms.CharField(label="Description", required=False, widget=forms.Textarea({"rows": 3}))
    key = _key("; leave empty to generate one", required=False)


class ProjectForm(NewProjectForm):
    key = _key()
    workspace = forms.ModelChoiceField(
        Workspace.objects.none(),
        empty_label=None,
        error_messages={"invalid_choice": "There is no such workspace; choose another."},
    )


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
def project(request: HttpRequest, project_id: int) -> HttpResponse:
    """What is in it, by state and the latest."""
    found = find_project(project_id)
    rows = Experiment.objects.filter(project=found).select_related("owner").order_by("-pk")
    # neither configs nor the states of searches, which may be a megabyte each
    latest = list(rows.only("name", "state", "archived", "started_at", "owner__username")[:LATEST])
    words = phases.of_experiments(latest)
    context = head(user_of(request), found, "overview") | {
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


@form(Right.EDIT)
def new_workspace(request: HttpRequest) -> HttpResponseBase:
    """GET: the form; POST: make it."""
    rights.require_editor(user_of(request))
    return _answer(request, PlaceForm.of(request))


@form(Right.EDIT)
def edit_workspace(request: HttpRequest, workspace_id: int) -> HttpResponseBase:
    """GET: the form; POST: keep what it says."""
    found = find_workspace(workspace_id)
    _require_owner(request, found)
    return _answer(request, PlaceForm.of(request, {"name": found.name}), found)


@form(Right.EDIT)
def new_project(request: HttpRequest, workspace_id: int) -> HttpResponseBase:
    """GET: the form; POST: make it in this workspace."""
    rights.require_editor(user_of(request))
    return _answer(request, NewProjectForm.of(request), workspace=find_workspace(workspace_id))


@form(Right.EDIT)
def edit_project(request: HttpRequest, project_id: int) -> HttpResponseBase:
    """GET: the form; POST: keep what it says."""
    found = find_project(project_id)
    _require_owner(request, found)
    form = ProjectForm.of(request, model_to_dict(found, ["name", "description", "key", "workspace"]))
    open_ones = Workspace.objects.filter(Q(pk=found.workspace_id) | Q(archived=False)).order_by("name")
    cast("forms.ModelChoiceField[Workspace]", form.fields["workspace"]).queryset = open_ones
    return _answer(request, form, found, found.workspace)


def _answer(
    request: HttpRequest,
    form: PlaceForm,
    found: Workspace | Project | None = None,
    workspace: Workspace | None = None,
) -> HttpResponseBase:
    if form.is_valid():
        try:
            return redirect(_kept(user_of(request), found, workspace, form.cleaned_data))
        except Refusal as refusal:
            form.add_error(None, str(refusal))
    context = {"found": found, "workspace": workspace, "form": form}
    return show(request, "place_form", context, room=ROOM, status=400 if form.errors else 200)


def _kept(
    user: User, found: Workspace | Project | None, workspace: Workspace | None, values: dict[str, Any]
) -> str:
    """The address of what was made or changed. Raises Refusal."""
    if isinstance(found, Project):
        places.settle(user, found, values, values.pop("workspace"))
        return f"/projects/{found.pk}"
    if found is not None:
        places.change(user, found, values)
        return f"/workspaces/{found.pk}"
    if workspace is not None:
        return f"/projects/{places.make_project(user, workspace, **values).pk}"
    return f"/workspaces/{places.make_workspace(user, values['name']).pk}"


@posted(Right.EDIT)
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
        places.change(user_of(request), found, {"archived": action == "archive"})
    except Refusal as refusal:
        messages.error(request, f"Nothing was changed: {refusal}")
    return redirect(f"/{kind}/{place_id}")


def _require_owner(request: HttpRequest, found: Workspace | Project) -> None:
    with refused_as(Code.FORBIDDEN):
        places.require_changeable(user_of(request), found)
