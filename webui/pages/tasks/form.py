"""New notebooks, shells and TensorBoards from the page: pool, slots, template, and any field of the config."""

from __future__ import annotations

from typing import Any, Self, cast

from django import forms
from django.db import transaction
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.shortcuts import redirect

from accounts import rights
from accounts.refusals import Refusal
from accounts.rights import Right
from commands import submit
from commands.config import CommandConfig, check, typed
from commands.models import Command
from commands.states import CommandState
from experiments import drafts
from experiments.models import Template
from jobs.models import Job
from shown import pools
from submissions import contexts
from webui.api.tensorboards import shown_of
from webui.forms import Chosen, Form, Parsed
from webui.pages.frame import actor, form, posted, refusals_told, show, user_of
from webui.pages.tasks.page import ROOM
from webui.query import LARGEST_INTEGER, as_ids, as_whole

KINDS = {kind.value.lower(): kind for kind in (Job.Kind.NOTEBOOK, Job.Kind.SHELL, Job.Kind.TENSORBOARD)}
_EXAMPLE = """# any field of a command's config, such as
# environment:
#   python: /opt/venv/bin/python
"""


def _slots(text: str) -> int | None:
    if not text:
        return None
    if (number := as_whole(text, LARGEST_INTEGER)) is None:
        raise Refusal(f"Slots are {text!r}; allowed: a whole number from 0 to {LARGEST_INTEGER}.")
    return number


def _ids(text: str) -> list[int]:
    words = text.replace(",", " ").split()
    if wrong := [word for word in words if as_whole(word) is None]:
        raise Refusal(f"{wrong[0]!r} is not an ID. Enter comma-separated numbers.")
    return as_ids(words)


def _template(name: str) -> dict[str, Any] | None:
    row = Template.objects.filter(name=name).first()
    if name and row is None:
        raise Refusal(f"Template {name} no longer exists; choose another.")
    return row.config if row else None


class TaskForm(Form):
    """A new notebook, shell or TensorBoard. `commands.config` checks the values together."""

    type = forms.CharField(required=False, widget=forms.HiddenInput)
    name = forms.CharField(required=False, widget=forms.TextInput({"maxlength": 100, "autofocus": True}))
    experiments = Parsed("Experiments", _ids, help_text="All trials of these experiments are included.")
    trials = Parsed("Trials", _ids)
    template = Parsed("Template", _template, widget=forms.Select)
    pool = Chosen("Resource pool")
    slots = Parsed("Slots", _slots, help_text="GPUs, all on one host; 0 for none.")
    idle_timeout = forms.CharField(
        label="Idle timeout",
        required=False,
        help_text="Ends the task and frees its slots after this long without use: 30m, 2h, 1d.",
    )
    config = forms.CharField(required=False, strip=False)

    @classmethod
    def of_kind(cls, request: HttpRequest, kind: Job.Kind) -> Self:
        """What the address or the form sent, and else what such a task usually has."""
        is_tensorboard = kind == Job.Kind.TENSORBOARD
        usual = {"config": _EXAMPLE, "slots": "0" if is_tensorboard else "1"}
        form = cls.of(request, {**usual, **request.GET.dict(), "type": kind.value.lower()})
        placeholders = {
            "name": kind.label,
            "experiments": "7, 8",
            "slots": "",
            "idle_timeout": "30m" if is_tensorboard else "never",
        }
        for name, text in placeholders.items():
            form.fields[name].widget.attrs["placeholder"] = text
        form.fields["slots"].widget.attrs["inputmode"] = "numeric"
        menus = {
            "template": ("none", Template.objects.order_by("name").values_list("name", flat=True)),
            "pool": (
                "the default pool",
                [pool.name for pool in pools.choices(user_of(request))],
            ),
        }
        for name, (none, names) in menus.items():
            cast("forms.Select", form.fields[name].widget).choices = [
                ("", none),
                *((each, each) for each in names),
            ]
        if not is_tensorboard:
            del form.fields["experiments"], form.fields["trials"]
        return form


def _kind(request: HttpRequest) -> Job.Kind:
    given = request.POST if request.method == "POST" else request.GET
    return KINDS.get(given.get("type", "notebook"), Job.Kind.NOTEBOOK)


@form(Right.EDIT)
def new(request: HttpRequest) -> HttpResponseBase:
    """GET: the form (`?type=notebook`, `?experiments=7,8`, `?trials=9`); POST: start it and wait for it."""
    form = TaskForm.of_kind(request, kind := _kind(request))
    if request.method == "POST":
        rights.require_editor(user_of(request))
    if form.is_valid():
        try:
            return redirect(f"/tasks/{_start(request, kind, form.cleaned_data).pk}")
        except Refusal as refusal:
            form.add_error(None, str(refusal))
    context = {
        "form": form,
        "draft": draft_of(request),
        "type": kind.value.lower(),
        "types": [(name, each.label) for name, each in KINDS.items()],
        "label_in_text": kind.label if kind == Job.Kind.TENSORBOARD else kind.label.lower(),
        "may_edit": user_of(request).may_edit,
    }
    return show(request, "task_form", context, room=ROOM, status=400 if form.errors else 200)


@posted(Right.EDIT)
def tensorboard(request: HttpRequest) -> HttpResponseBase:
    """One press on an experiment's or trial's page: a TensorBoard of it, or the open one of the same person."""
    rights.require_editor(user_of(request))
    with refusals_told(request):
        shown = shown_of(_ids(request.POST.get("experiments", "")), _ids(request.POST.get("trials", "")))
        open_one = Command.objects.filter(
            owner=user_of(request),
            state=CommandState.ACTIVE,
            job__kind=Job.Kind.TENSORBOARD,
            service__experiment_ids=list(shown.experiment_ids),
            service__trial_ids=list(shown.trial_ids),
        ).first()
        made = open_one or _made(request, Job.Kind.TENSORBOARD, check({}, kind=Job.Kind.TENSORBOARD), shown)
        return redirect(f"/tasks/{made.pk}")
    return redirect("/tasks")


def draft_of(request: HttpRequest) -> drafts.Draft:
    """What is wrong with the config in the editor, with the fields beside it that are right."""
    form = TaskForm.of_kind(request, kind := _kind(request))
    draft = drafts.Draft(form["config"].value().replace("\r\n", "\n"))
    if form.is_bound:
        form.full_clean()
        values = dict.fromkeys(form.fields) | form.cleaned_data
        with draft.step():
            submit.accepted(_config(kind, values).effective(), user_of(request))
    return draft


def _start(request: HttpRequest, kind: Job.Kind, values: dict[str, Any]) -> Command:
    """Raises Refusal."""
    shown = submit.Shown()
    if kind == Job.Kind.TENSORBOARD:
        shown = shown_of(values["experiments"], values["trials"])
    return _made(request, kind, _config(kind, values), shown)


def _config(kind: Job.Kind, values: dict[str, Any]) -> CommandConfig:
    resources = {"slots": values["slots"], "resource_pool": values["pool"]}
    beside = {"description": values["name"], "idle_timeout": values["idle_timeout"], "resources": resources}
    return typed(values["config"], beside, template=values["template"], kind=kind)


def _made(request: HttpRequest, kind: Job.Kind, config: CommandConfig, shown: submit.Shown) -> Command:
    user = user_of(request)
    with transaction.atomic():
        return submit.create(
            owner=user, config=config, context=contexts.store([]), workspace_number=1, idempotency_key=None,
            actor=actor(request), kind=kind, shown=shown,
        )  # fmt: skip
