"""What an experiment is called and where it belongs is changed; before it is deleted, what goes with it is said."""

from __future__ import annotations

from typing import Self, cast

from django import forms
from django.contrib import messages
from django.db import transaction
from django.db.models import Count, Q, Sum
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.shortcuts import redirect

from accounts import rights
from accounts.refusals import Refusal
from accounts.rights import Right
from experiments import edits, places
from experiments.actions import ACTIONS
from experiments.models import Checkpoint, Experiment, Project
from experiments.states import CheckpointState
from logs.models import Chunk
from webui.forms import Form, Parsed
from webui.pages.experiments import experiment
from webui.pages.experiments.access import find
from webui.pages.frame import actor, form, show, user_of
from webui.query import as_id, as_whole

NAME_CHARACTERS = 255
LABEL_CHARACTERS = 128
MOST_LABELS = 50
LOG_DAYS_LEAST, LOG_DAYS_MOST = -1, 32_767


def days_of(text: str) -> int | None:
    """Days for which logs are kept; empty: as the server says. Raises Refusal."""
    if not text.strip():
        return None
    days = as_whole(text.strip(), LOG_DAYS_MOST, least=LOG_DAYS_LEAST)
    if days is None:
        raise Refusal(
            f"Logs are kept {LOG_DAYS_LEAST} (forever) or 0 to {LOG_DAYS_MOST} days after the end; found: {text[:40]}."
        )
    return days


def labels_of(text: str) -> list[str]:
    """Labels with commas between them. Raises Refusal."""
    labels = list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if len(labels) > MOST_LABELS or any(len(label) > LABEL_CHARACTERS for label in labels):
        raise Refusal(f"At most {MOST_LABELS} labels, each of at most {LABEL_CHARACTERS} characters.")
    return labels


def project_of(text: str) -> Project:
    """Raises Refusal."""
    project = Project.objects.select_related("workspace").filter(pk=as_id(text)).first()
    if project is None:
        raise Refusal("There is no such project; choose another.")
    return project


def _projects(found: Experiment) -> list[Project]:
    """Those that it can be moved into, and the one that it is in, which may be archived."""
    rows = list(places.open_projects())
    return rows if found.project in rows else [found.project, *rows]


def _in_menu(project: Project) -> str:
    is_archived = project.archived or project.workspace.archived
    return f"{project.workspace.name} / {project.name}{' (archived)' if is_archived else ''}"


class ExperimentForm(Form):
    name = forms.CharField(
        max_length=NAME_CHARACTERS,
        error_messages=dict.fromkeys(
            ("required", "max_length"), f"A name has 1 to {NAME_CHARACTERS} characters."
        ),
        widget=forms.TextInput({"autofocus": True}),
    )
    description = forms.CharField(required=False, widget=forms.Textarea({"rows": 3}))
    labels = Parsed("Labels", labels_of, help_text="Separated by commas.")
    project = Parsed("Project", project_of, widget=forms.Select())
    logs = Parsed(
        "Days to keep logs after the end",
        days_of,
        help_text="-1: forever; empty: the server's default.",
        widget=forms.TextInput({"inputmode": "numeric"}),
    )

    @classmethod
    def of_experiment(cls, request: HttpRequest, found: Experiment) -> Self:
        """What the experiment is now, with what was sent."""
        days = (found.config.get("retention_policy") or {}).get("log_retention_days")
        form = cls.of(
            request,
            {
                "name": found.name,
                "description": found.description,
                "labels": ", ".join(found.labels),
                "project": found.project_id,
                "logs": "" if days is None else str(days),
            },
        )
        project = form.fields["project"]
        cast("forms.Select", project.widget).choices = [
            (each.pk, _in_menu(each)) for each in _projects(found)
        ]
        if found.archived:
            project.disabled = True
            project.help_text = "Archived experiments cannot be moved. Unarchive it first."
        if found.unmanaged:
            del form.fields["logs"]
        return form


@form(Right.EDIT)
def edit(request: HttpRequest, experiment_id: int) -> HttpResponseBase:
    """GET: the form; POST: keep what it says."""
    found = find(experiment_id)
    rights.require_owner(user_of(request), found)
    form = ExperimentForm.of_experiment(request, found)
    if form.is_valid():
        try:
            _keep(found, form, actor(request))
            messages.success(request, f"Experiment {experiment_id} was changed.")
            return redirect(f"/experiments/{experiment_id}")
        except Refusal as refusal:
            form.add_error(None, str(refusal))
    context, status = {"experiment": found, "form": form}, 400 if form.errors else 200
    return show(request, "experiment_edit", context, room="Experiments", status=status)


@transaction.atomic
def _keep(found: Experiment, form: ExperimentForm, who: str) -> None:
    values = form.cleaned_data
    texts = {name: values[name] for name in ("name", "description", "labels")}
    edits.edit(found.pk, **texts, actor=who)
    if values["project"] != found.project:
        edits.move(found.pk, values["project"], actor=who)
    if "logs" in form.changed_data:
        edits.keep_logs(found.pk, values["logs"], actor=who)


@form(Right.EDIT)
def delete(request: HttpRequest, experiment_id: int) -> HttpResponseBase:
    """GET: what would go, with its sizes; POST: delete it."""
    if request.method == "POST":
        return experiment.act(request, experiment_id, "delete")
    found = find(experiment_id)
    rights.require_owner(user_of(request), found)
    context = {
        "experiment": found,
        "goes": what_goes([found.pk]),
        "forks": found.forks.order_by("pk")[:20],
        "is_allowed": ACTIONS["delete"].is_legal(found),
    }
    return show(request, "experiment_delete", context, room="Experiments")


def what_goes(experiments: list[int]) -> dict[str, int]:
    """Count what deleting these experiments removes: trials, stored checkpoints, bytes of checkpoints and logs."""
    stored = Checkpoint.objects.filter(trial__experiment__in=experiments).exclude(
        state=CheckpointState.DELETED
    )
    sizes = stored.order_by().aggregate(count=Count("pk"), size=Sum("size_bytes"))
    trials = Experiment.objects.filter(pk__in=experiments).order_by().aggregate(
        count=Count("trials"), measured=Count("trials", filter=~Q(trials__summary_metrics={}))
    )  # fmt: skip
    logs = (
        Chunk.objects.filter(task__trial__experiment__in=experiments)
        .order_by()
        .aggregate(size=Sum("text_bytes"))
    )
    return {
        "trials": trials["count"],
        "measured": trials["measured"],
        "checkpoints": sizes["count"],
        "checkpoint_bytes": sizes["size"] or 0,
        "log_bytes": logs["size"] or 0,
    }
