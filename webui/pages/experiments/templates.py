"""Templates: the list, and an editor with faults as one types; who changed one, and what was submitted with it."""

from __future__ import annotations

from urllib.parse import quote

from django.contrib import messages
from django.db import transaction
from django.db.models import OuterRef, Subquery
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from accounts import rights
from accounts.refusals import Code, Refusal
from experiments import counts, drafts, templates
from experiments.config import ConfigError, masked_text, shown_template
from experiments.models import Template, Workspace
from trainmaster import yamltext
from webui.pages.frame import page, show, user_of
from webui.query import as_id

#: what the editor of a new template begins with
EXAMPLE = """description: from a template
resources:
  slots_per_trial: 1
environment:
  environment_variables:
    - OMP_NUM_THREADS=4
"""
MOST_SHOWN = 20


@page
def listing(request: HttpRequest) -> HttpResponse:
    """All templates, or those whose name has `?q`."""
    text = request.GET.get("q", "").strip()
    rows = Template.objects.select_related("workspace", "changed_by").order_by("name")
    if text:
        rows = rows.filter(name__icontains=text)
    newest = templates.uses(OuterRef("name")).order_by("-pk").values("started_at")[:1]
    uses = counts.by_template()
    context = {
        "rows": [
            (row, sorted(row.config), uses.get(row.name, 0), row.last_used)
            for row in rows.annotate(last_used=Subquery(newest))
        ],
        "q": text,
        "may_edit": user_of(request).may_edit,
    }
    return show(request, "templates", context, room="Templates", fragment="templates")


@page
def new(request: HttpRequest) -> HttpResponseBase:
    """GET: the form, with `?copy=<name>` beginning with that one's content; POST: make the template."""
    user = user_of(request)
    copied = templates.find(request.POST.get("copy") or request.GET.get("copy") or "")
    if request.method != "POST":
        text = _text(copied) if copied else EXAMPLE
        return _form(request, None, text, name=f"{copied.name}-copy" if copied else "", copied=copied)
    rights.require_editor(user_of(request))
    name, text = request.POST.get("name", "").strip(), request.POST.get("config", "").replace("\r\n", "\n")
    workspace = Workspace.objects.filter(pk=as_id(request.POST.get("workspace", "")), archived=False).first()
    try:
        if workspace is None:
            raise Refusal("There is no such workspace; choose another.", field="name")
        made = templates.create(name, text, workspace=workspace, user=user, copy_of=copied)
    except Refusal as error:
        return _form(request, None, text, name=name, copied=copied, problem=_sentence(error))
    messages.success(request, f"Template {made.name} was created.")
    return redirect(_address(made.name))


@page
def detail(request: HttpRequest, name: str) -> HttpResponseBase:
    """GET: one template in its editor; POST: give it this content and name."""
    template = templates.find(name)
    if template is None:
        raise Http404(f"There is no template {name}.")
    if request.method != "POST":
        return _form(request, template, _text(template), name=name)
    rights.require_editor(user_of(request))
    to, text = request.POST.get("name", "").strip(), request.POST.get("config", "").replace("\r\n", "\n")
    try:
        with transaction.atomic():
            templates.replace(name, text, user=user_of(request), seen=request.POST.get("seen", ""))
            templates.rename(name, to, user=user_of(request))
    except Refusal as error:
        if error.code is Code.NOT_FOUND:
            raise
        return _form(request, template, text, name=to, problem=_sentence(error))
    messages.success(request, f"Template {to} was saved.")
    return redirect(_address(to))


@page
@require_POST
def remove(request: HttpRequest, name: str) -> HttpResponse:
    """Remove it; what was made of it stays as it is."""
    rights.require_editor(user_of(request))
    templates.remove(name)
    messages.success(request, f"Template {name} was removed.")
    return redirect("/templates")


def _sentence(error: Exception) -> str:
    return "" if isinstance(error, ConfigError) else str(error)


def _address(name: str) -> str:
    return f"/templates/{quote(name, safe='')}"


def _text(template: Template) -> str:
    """As it was written, with its secrets masked."""
    return masked_text(template.source) if template.source else yamltext.dump(shown_template(template.config))


def _form(
    request: HttpRequest,
    template: Template | None,
    text: str,
    *,
    name: str,
    copied: Template | None = None,
    problem: str = "",
) -> HttpResponse:
    draft, kept_as = drafts.of_template(text), template.name if template else ""
    context = {
        "template": template,
        "address": _address(template.name) if template else "/templates/+new",
        "name": name,
        "text": text,
        "draft": draft,
        "copied": copied,
        "problem": problem,
        "stamp": templates.stamp(template) if template else "",
        "uses": templates.uses(kept_as).select_related("owner").order_by("-pk")[:MOST_SHOWN],
        "use_count": counts.by_template().get(kept_as, 0),
        "workspaces": Workspace.objects.filter(archived=False).order_by("name"),
        "may_edit": user_of(request).may_edit,
    }
    answer = show(request, "template", context, room="Templates")
    if request.method == "POST":
        answer.status_code = 409 if problem and not draft.problems else 400
    return answer
