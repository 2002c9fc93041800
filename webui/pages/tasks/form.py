"""New notebooks, shells and TensorBoards from the page: pool, slots, template, and any field of the config."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from accounts import rights
from accounts.refusals import Refusal
from commands import submit
from commands.config import CommandConfig, check
from commands.models import Command
from commands.states import CommandState
from experiments.models import Template
from hosts.models import ResourcePool
from jobs.models import Job
from submissions import contexts
from trainmaster import yamltext
from webui.api.tensorboards import shown_of
from webui.pages.frame import actor, page, show, user_of
from webui.pages.tasks.commands import ROOM
from webui.query import LARGEST_INTEGER, as_ids, as_whole

KINDS = {
    "notebook": Job.Kind.NOTEBOOK,
    "shell": Job.Kind.SHELL,
    "tensorboard": Job.Kind.TENSORBOARD,
}
_EXAMPLE = """# any field of a command's config, such as
# environment:
#   python: /opt/venv/bin/python
"""


@page
def new(request: HttpRequest) -> HttpResponseBase:
    """GET: the form (`?type=notebook`, `?experiments=7,8`, `?trials=9`); POST: start it and wait for it."""
    given = request.POST if request.method == "POST" else request.GET
    kind = KINDS.get(given.get("type", "notebook"), Job.Kind.NOTEBOOK)
    problem = ""
    if request.method == "POST":
        rights.require_editor(user_of(request))
        try:
            return redirect(f"/tasks/{_start(request, kind).pk}")
        except Refusal as error:
            problem = str(error)
    context = {
        "type": kind.value.lower(),
        "types": [(name, each.label) for name, each in KINDS.items()],
        "label": kind.label,
        "label_in_text": kind.label if kind == Job.Kind.TENSORBOARD else kind.label.lower(),
        "given": given,
        "config": given.get("config", _EXAMPLE),
        "slots": given.get("slots", "0" if kind == Job.Kind.TENSORBOARD else "1"),
        "pools": list(ResourcePool.objects.order_by("name")),
        "templates": list(Template.objects.order_by("name").values_list("name", flat=True)),
        "problem": problem,
        "may_edit": user_of(request).may_edit,
    }
    return show(request, "task_form", context, room=ROOM)


@page
@require_POST
def tensorboard(request: HttpRequest) -> HttpResponseBase:
    """One press on an experiment's or trial's page: a TensorBoard of it, or the open one of the same person."""
    rights.require_editor(user_of(request))
    try:
        shown = shown_of(_numbers(request, "experiments"), _numbers(request, "trials"))
        open_one = Command.objects.filter(
            owner=user_of(request),
            state=CommandState.ACTIVE,
            job__kind=Job.Kind.TENSORBOARD,
            service__experiment_ids=list(shown.experiment_ids),
            service__trial_ids=list(shown.trial_ids),
        ).first()
        made = open_one or _made(request, Job.Kind.TENSORBOARD, check({}, kind=Job.Kind.TENSORBOARD), shown)
    except Refusal as error:
        messages.error(request, str(error))
        return redirect("/tasks")
    return redirect(f"/tasks/{made.pk}")


def _start(request: HttpRequest, kind: Job.Kind) -> Command:
    given = request.POST
    config = _config(given.get("config", ""))
    resources = dict(config.get("resources") or {})
    slots = given.get("slots", "").strip()
    if slots:
        if (number := as_whole(slots, LARGEST_INTEGER)) is None:
            raise Refusal(f"Slots are {slots!r}; allowed: a whole number from 0 to {LARGEST_INTEGER}.")
        resources["slots"] = number
    if pool := given.get("pool"):
        resources["resource_pool"] = pool
    config["resources"] = resources
    for name, field in (("description", "name"), ("idle_timeout", "idle_timeout")):
        if text := given.get(field, "").strip():
            config[name] = text if (found := as_whole(text)) is None else found
    template = None
    if chosen := given.get("template"):
        row = Template.objects.filter(name=chosen).first()
        if row is None:
            raise Refusal(f"Template {chosen} no longer exists; choose another.")
        template = row.config
    shown = submit.Shown()
    if kind == Job.Kind.TENSORBOARD:
        shown = shown_of(_numbers(request, "experiments"), _numbers(request, "trials"))
    return _made(request, kind, check(config, template=template, kind=kind), shown)


def _made(request: HttpRequest, kind: Job.Kind, config: CommandConfig, shown: submit.Shown) -> Command:
    user = user_of(request)
    with transaction.atomic():
        return submit.create(
            owner=user, config=config, context=contexts.store([]), workspace_number=1, idempotency_key=None,
            actor=actor(request), kind=kind, shown=shown,
        )  # fmt: skip


def _config(text: str) -> dict[str, Any]:
    try:
        found = yamltext.load(text.replace("\r\n", "\n"))
    except yamltext.YamlError as error:
        raise Refusal(f"The config is not YAML: {error}.") from error
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise Refusal("The config is not a map of fields, such as idle_timeout: 2h.")
    return dict(found)


def _numbers(request: HttpRequest, name: str) -> list[int]:
    words = request.POST.get(name, "").replace(",", " ").split()
    if wrong := [word for word in words if as_whole(word) is None]:
        raise Refusal(f"{wrong[0]!r} is not an ID. Enter comma-separated numbers.")
    return as_ids(words)
