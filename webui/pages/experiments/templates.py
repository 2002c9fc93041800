"""Templates: the list, and an editor with faults as one types; who changed one, and what was submitted with it."""

from __future__ import annotations

from urllib.parse import quote

from django import forms
from django.contrib import messages
from django.db import transaction
from django.db.models import OuterRef, Subquery
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect

from accounts import rights
from accounts.refusals import Code, Refusal
from accounts.rights import Right
from experiments import counts, drafts, templates
from experiments.config import MASK, ConfigError, masked_text, shown_template
from experiments.models import Template, Workspace
from trainmaster import yamltext
from webui.forms import Form
from webui.pages.frame import form, or_404, page, posted, show, user_of

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


class TemplateForm(Form):
    """The name and the text of a template; `experiments.templates` checks them."""

    name = forms.CharField(
        required=False,
        widget=forms.TextInput({"maxlength": templates.NAME_CHARACTERS, "autocomplete": "off"}),
    )
    config = forms.CharField(required=False, strip=False)

    def clean_config(self) -> str:
        return str(self.cleaned_data["config"]).replace("\r\n", "\n")


class NewTemplateForm(TemplateForm):
    workspace = forms.ModelChoiceField(
        Workspace.objects.filter(archived=False).order_by("name"),
        empty_label=None,
        error_messages=dict.fromkeys(
            ("required", "invalid_choice"), "There is no such workspace; choose another."
        ),
    )


@form(Right.EDIT)
def new(request: HttpRequest) -> HttpResponseBase:
    """GET: the form, with `?copy=<name>` beginning with that one's content; POST: make the template."""
    copied = templates.find(request.POST.get("copy") or request.GET.get("copy") or "")
    text = _text(copied) if copied else EXAMPLE
    form = NewTemplateForm.of(request, {"name": f"{copied.name}-copy" if copied else "", "config": text})
    if form.is_valid():
        try:
            made = templates.create(
                form.cleaned_data["name"],
                form.cleaned_data["config"],
                workspace=form.cleaned_data["workspace"],
                user=user_of(request),
                copy_of=copied,
            )
            messages.success(request, f"Template {made.name} was created.")
            return redirect(_address(made.name))
        except Refusal as refusal:
            _add_refused(form, refusal)
    return _form(request, None, form, copied=copied)


@form(Right.EDIT)
def detail(request: HttpRequest, name: str) -> HttpResponseBase:
    """GET: one template in its editor; POST: give it this content and name."""
    template = or_404(templates.find(name), f"There is no template {name}.")
    form = TemplateForm.of(request, {"name": name, "config": _text(template)})
    if form.is_valid():
        to = form.cleaned_data["name"]
        try:
            with transaction.atomic():
                seen = request.POST.get("seen", "")
                templates.replace(name, form.cleaned_data["config"], user=user_of(request), seen=seen)
                templates.rename(name, to, user=user_of(request))
            messages.success(request, f"Template {to} was saved.")
            return redirect(_address(to))
        except Refusal as refusal:
            if refusal.code in (Code.NOT_FOUND, Code.FORBIDDEN):
                raise
            _add_refused(form, refusal)
    return _form(request, template, form)


def _add_refused(form: TemplateForm, refusal: Refusal) -> None:
    is_text = isinstance(refusal, ConfigError)
    sentence = "the errors are listed next to the text." if is_text else str(refusal)
    form.add_error("name" if refusal.field == "name" else None, sentence)


@posted(Right.EDIT)
def remove(request: HttpRequest, name: str) -> HttpResponse:
    """Remove it; what was made of it stays as it is."""
    templates.remove(name, user=user_of(request))
    messages.success(request, f"Template {name} was removed.")
    return redirect("/templates")


def _address(name: str) -> str:
    return f"/templates/{quote(name, safe='')}"


def _text(template: Template) -> str:
    """As it was written, with its secrets masked."""
    return masked_text(template.source) if template.source else yamltext.dump(shown_template(template.config))


def _form(
    request: HttpRequest, template: Template | None, form: TemplateForm, *, copied: Template | None = None
) -> HttpResponse:
    text = form["config"].value().replace("\r\n", "\n")
    draft, kept_as = drafts.of_template(text), template.name if template else ""
    may_change = rights.may_change(user_of(request), template) if template else user_of(request).may_edit
    if not may_change:
        form.fields["name"].widget.attrs["readonly"] = True
    context = {
        "template": template,
        "address": _address(template.name) if template else "/templates/+new",
        "form": form,
        "text": text,
        "draft": draft,
        "copied": copied,
        "hides_secrets": MASK in text,
        "stamp": templates.stamp(template) if template else "",
        "uses": templates.uses(kept_as).select_related("owner").order_by("-pk")[:MOST_SHOWN],
        "use_count": counts.by_template().get(kept_as, 0),
        "may_edit": user_of(request).may_edit,
        "may_change": may_change,
    }
    is_conflict = form.non_field_errors() and not draft.problems
    status = (409 if is_conflict else 400) if form.errors else 200
    return show(request, "template", context, room="Templates", status=status)
