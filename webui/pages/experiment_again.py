"""Continue an experiment that has ended, or fork one: a form with the config that it is to have."""

from __future__ import annotations

import uuid
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from experiments import continuing, submit
from experiments.config import ConfigError, masked_text, parse, restored
from experiments.config.reading import SUBJECT
from experiments.models import Checkpoint, Experiment, Trial
from experiments.states import EXPERIMENT_END_STATES, USABLE
from experiments.transitions import IllegalStep
from jobs.accepting import Refused
from submissions.config.reading import read_yaml
from trainmaster import yamltext
from webui.pages.experiment_access import find, may_act
from webui.pages.frame import actor, page, show, user_of


def links(request: HttpRequest, experiment: Experiment) -> list[dict[str, str]]:
    """What stands beside the actions of an experiment: buttons that lead to a form."""
    found: list[dict[str, str]] = []
    if experiment.unmanaged:
        return found
    if can_continue(experiment) and may_act(request, experiment):
        found.append({"label": "Continue", "href": f"/experiments/{experiment.pk}/continue"})
    if user_of(request).may_edit:
        found.append({"label": "Fork", "href": f"/experiments/{experiment.pk}/fork"})
    return found


def can_continue(experiment: Experiment) -> bool:
    searcher = (experiment.config.get("searcher") or {}).get("name")
    ended = experiment.state in EXPERIMENT_END_STATES and not experiment.archived
    return ended and searcher in continuing.SEARCHERS


@page
def go_on(request: HttpRequest, experiment_id: int) -> HttpResponse:
    """GET: the form; POST: continue it with these changes."""
    experiment = find(experiment_id)
    allowed = may_act(request, experiment)
    text = request.POST.get("config", "")
    problem = "" if allowed else "Only the owner of an experiment or an admin may continue it."
    if request.method == "POST" and allowed:
        try:
            changes = read_yaml(text, "change of the config") if text.strip() else {}
            role = user_of(request).role
            continuing.go_on(experiment_id, changes, actor=actor(request), role=role)
            return redirect(f"/experiments/{experiment_id}")
        except (ConfigError, Refused, IllegalStep) as error:
            problem = str(error)
    searcher = experiment.config.get("searcher") or {}
    context = {
        "what": "continue",
        "text": text if request.method == "POST" else _length(searcher),
        "is_single": searcher.get("name") == "single",
        "trials": _starts(experiment),
    }
    return _form(request, experiment, context, problem)


def _length(searcher: dict[str, Any]) -> str:
    """The change that is wanted most: to train for longer."""
    if searcher.get("name") != "single" or not searcher.get("max_length"):
        return ""
    return yamltext.dump({"searcher": {"max_length": searcher["max_length"]}})


def _starts(experiment: Experiment) -> list[Trial]:
    return list(experiment.trials.select_related("latest_checkpoint").order_by("pk")[:20])


@page
def fork(request: HttpRequest, experiment_id: int) -> HttpResponse:
    """GET: the form, with `?checkpoint=<uuid>` or `?trial=<id>` beginning with that one; POST: make the experiment."""
    parent = find(experiment_id)
    user = user_of(request)
    problem = "" if user.may_edit else f"{user.username} is a viewer and may not submit anything."
    given = request.POST if request.method == "POST" else request.GET
    source = _source(given.get("checkpoint", ""))
    text = request.POST.get("config") or masked_text(_config(parent, source))
    name = request.POST.get("name") or parent.name
    if request.method == "POST" and user.may_edit:
        try:
            made = _make(request, parent, text, name)
            return redirect(f"/experiments/{made.pk}")
        except (ConfigError, Refused) as error:
            problem = str(error)
    context = {"what": "fork", "text": text, "name": name, "source": source}
    return _form(request, parent, context, problem)


def _source(text: str) -> Checkpoint | None:
    try:
        return Checkpoint.objects.filter(pk=uuid.UUID(text), state__in=USABLE).select_related("trial").first()
    except ValueError:
        return None


def _config(parent: Experiment, source: Checkpoint | None) -> str:
    """The config as it was submitted; with a source its trials begin with that checkpoint."""
    config = read_yaml(parent.original_config, SUBJECT)
    config.setdefault("description", f"Fork of experiment {parent.pk}")
    searcher = config.get("searcher")
    if source and isinstance(searcher, dict):
        searcher.pop("source_trial_id", None)
        searcher["source_checkpoint_uuid"] = str(source.pk)
    return yamltext.dump(config)


def _make(request: HttpRequest, parent: Experiment, text: str, name: str) -> Experiment:
    """The new experiment. Secrets that were masked for the form are those of the parent again, for who may see them."""
    values = read_yaml(text, SUBJECT)
    if may_act(request, parent):
        values = restored(values, read_yaml(parent.original_config, SUBJECT))
    values["name"] = name
    original = yamltext.dump(values)
    return submit.create(
        owner=user_of(request),
        config=parse(original),
        original=original,
        context=parent.context,
        project=parent.project,
        parent=parent,
        activate=True,
        idempotency_key=None,
        actor=actor(request),
    )


def _form(
    request: HttpRequest, experiment: Experiment, context: dict[str, Any], problem: str
) -> HttpResponse:
    answer = show(
        request,
        "experiment_again",
        {"experiment": experiment, "problem": problem, **context},
        room="Experiments",
    )
    if problem and request.method == "POST":
        answer.status_code = 400
    return answer
