"""A new experiment from the page: a config with its faults as one types, a zip or folder of code, or a fork."""

from __future__ import annotations

import hashlib
import uuid
from typing import Any

from django.conf import settings
from django.core.files.uploadedfile import UploadedFile
from django.db import transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.template.loader import render_to_string

from accounts import rights
from accounts.refusals import Refusal
from accounts.rights import Right
from experiments import drafts, places, submit
from experiments.config import masked_text
from experiments.config.reading import SUBJECT
from experiments.models import Checkpoint, Experiment, Template
from experiments.states import USABLE
from shown import pools
from submissions import contexts, unpacking
from submissions.config.reading import read_yaml
from submissions.models import Context
from trainmaster import bounded_json, yamltext
from webui.pages.experiments.access import find
from webui.pages.frame import actor, form, posted, show, user_of
from webui.pages.tasks import form as tasks
from webui.query import LARGEST_SECONDS, as_id, as_number, as_uuid, as_whole

#: what the editor of a new experiment begins with
EXAMPLE = """name: my-experiment
entrypoint: python3 train.py
searcher:
  name: single
  metric: validation_loss
  max_length: {batches: 1000}
resources:
  slots_per_trial: 1
hyperparameters:
  learning_rate: 0.001
"""


@form(Right.EDIT, view_asks=True)
def new(request: HttpRequest) -> HttpResponseBase:
    """GET: the form, with `?template=<name>` building on that one; POST: make the experiment."""
    return _form_or_experiment(request, None)


@form(Right.EDIT, view_asks=True)
def fork(request: HttpRequest, experiment_id: int) -> HttpResponseBase:
    """GET: the form, `?checkpoint=<uuid>` beginning with that one, `?hparams=<trial>` of that trial; POST: make it."""
    return _form_or_experiment(request, find(experiment_id))


@posted(Right.OWN)
def check(request: HttpRequest) -> HttpResponse:
    """What is wrong with the config in an editor, and what it would be with template and defaults."""
    kind, text, parent = request.POST.get("kind"), request.POST.get("config", ""), _parent(request)
    if kind == "template":
        draft = drafts.of_template(text)
    elif kind == "changes" and parent is not None:
        draft = drafts.of_changes(text, parent, user_of(request).role)
    elif kind == "task":
        draft = tasks.draft_of(request)
    else:
        draft = _draft(request, request.POST.dict(), parent)
    response = render(request, "fragments/config_check.html", {"draft": draft})
    response["Cache-Control"] = "no-store"
    return response


def _draft(request: HttpRequest, given: dict[str, str], parent: Experiment | None) -> drafts.Draft:
    seconds = as_number(given.get("seconds_per_unit", "")) or 0.0
    typed = drafts.Typed(
        template=given.get("template", ""),
        name=given.get("name", "").strip(),
        project_id=as_id(given.get("project", "")),
        seconds_per_unit=seconds if 0 < seconds <= LARGEST_SECONDS else 0.0,
        paths=given.get("paths", "").splitlines(),
    )
    return drafts.of_experiment(given.get("config", ""), typed, parent, user_of(request))


def _parent(request: HttpRequest) -> Experiment | None:
    number = as_whole(request.POST.get("parent", ""))
    return None if number is None else find(number)


def _form_or_experiment(request: HttpRequest, parent: Experiment | None) -> HttpResponseBase:
    user = user_of(request)
    if request.method != "POST":
        return _form(request, parent, _beginning(request, parent), None)
    draft = _draft(request, request.POST.dict(), parent)
    if not user.may_edit:
        draft.refuse("", str(rights.viewer(user.username)))
    made = _make(request, draft, parent)
    wants_json = request.headers.get("Accept") == "application/json"
    if made is not None:
        href = f"/experiments/{made.pk}"
        return JsonResponse({"href": href}) if wants_json else redirect(href)
    if wants_json:
        checked = render_to_string("fragments/config_check.html", {"draft": draft}, request)
        return JsonResponse({"checked": checked}, status=400)
    return _form(request, parent, request.POST.dict(), draft)


def _make(request: HttpRequest, draft: drafts.Draft, parent: Experiment | None) -> Experiment | None:
    """The experiment, or None with all reasons among the problems of the draft."""
    with transaction.atomic():
        context, made = None, None
        with draft.step():
            context = _code(request, parent)
        if context is not None and not draft.problems:
            assert draft.config is not None and draft.project is not None
            with draft.step():
                made = submit.create(
                    owner=user_of(request),
                    config=draft.config,
                    original=draft.original,
                    context=context,
                    project=draft.project,
                    parent=parent,
                    activate="paused" not in request.POST,
                    idempotency_key=_key(request),
                    actor=actor(request),
                    template=draft.template,
                )
        if made is None:
            transaction.set_rollback(True)
    return made


def _code(request: HttpRequest, parent: Experiment | None) -> Context:
    """What was chosen, else the parent's code, else none. Raises Refusal."""
    archive, contents = request.FILES.get("zip"), request.FILES.get("contents")
    if isinstance(contents, UploadedFile) and contents.file is not None:
        try:
            manifest = bounded_json.loads(request.POST.get("manifest", ""))
        except ValueError as error:
            raise Refusal("The list of files is invalid. Choose the folder again.", field="code") from error
        return contexts.store_plain(unpacking.from_folder(manifest, contents.file).files)
    if isinstance(archive, UploadedFile) and archive.file is not None:
        return contexts.store_plain(unpacking.from_zip(archive.file).files)
    return parent.context if parent else contexts.empty()


def _key(request: HttpRequest) -> str | None:
    """The form's own key, kept apart per user: sending a form twice makes one experiment."""
    key = request.POST.get("key")
    return hashlib.sha256(f"{user_of(request).pk}:page:{key}".encode()).hexdigest() if key else None


def _beginning(request: HttpRequest, parent: Experiment | None) -> dict[str, str]:
    """What the form begins with."""
    template = request.GET.get("template", "")
    if parent is None:
        return {"config": EXAMPLE, "template": template, "project": request.GET.get("project", "1")}
    return {
        "config": masked_text(_config(request, parent)),
        "name": parent.name,
        "template": parent.template_name,
        "project": str(parent.project_id),
        "checkpoint": request.GET.get("checkpoint", ""),
    }


def _source(text: str) -> Checkpoint | None:
    found = Checkpoint.objects.filter(state__in=USABLE).select_related("trial")
    return found.filter(pk=number).first() if (number := as_uuid(text)) else None


def _config(request: HttpRequest, parent: Experiment) -> str:
    """The config as it was submitted; with a source its trials begin with that checkpoint."""
    source, config = _source(request.GET.get("checkpoint", "")), read_yaml(parent.original_config, SUBJECT)
    trial = parent.trials.filter(pk=as_id(request.GET.get("hparams", ""))).first()
    if trial is not None:
        config = drafts.of_trial(config, trial)
        if source is not None:
            config["description"] = f"Continuation of trial {trial.pk}, experiment {parent.pk}"
    elif source is None:
        return _described(parent.original_config, config, f"Fork of experiment {parent.pk}")
    config.setdefault("description", f"Fork of experiment {parent.pk}")
    searcher = config.get("searcher")
    if source and isinstance(searcher, dict):
        searcher.pop("source_trial_id", None)
        searcher["source_checkpoint_uuid"] = str(source.pk)
    return yamltext.dump(config)


def _described(text: str, config: dict[str, Any], description: str) -> str:
    """The text as it was written, with a description if it has none."""
    if "description" in config:
        return text
    described = f"{text.rstrip()}\ndescription: {description}\n"
    wanted = {**config, "description": description}
    try:
        return described if yamltext.load(described) == wanted else yamltext.dump(wanted)
    except yamltext.YamlError:  # a text in JSON, or one that ends in a comment
        return yamltext.dump(wanted)


def _form(
    request: HttpRequest, parent: Experiment | None, chosen: dict[str, str], draft: drafts.Draft | None
) -> HttpResponse:
    names = list(Template.objects.order_by("name").values_list("name", flat=True))
    if parent is not None and parent.template_name and parent.template_name not in names:
        names.append(parent.template_name)
    context: dict[str, Any] = {
        "parent": parent,
        "chosen": chosen,
        "draft": draft or _draft(request, chosen, parent),
        "was_sent": draft is not None,
        "source": _source(chosen.get("checkpoint", "")),
        "templates": names,
        "pools": pools.choices(user_of(request)),
        "projects": places.open_projects(),
        "key": uuid.uuid4().hex,
        "may_edit": user_of(request).may_edit,
        "limit_mib": settings.CONTEXT_BYTES // 2**20,
    }
    return show(request, "experiment_create", context, room="Experiments", status=400 if draft else 200)
