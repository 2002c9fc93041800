"""Checkpoints of an experiment or a trial as a table, and a page for each: files, metadata, what it is good for."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from django.core.paginator import Page, Paginator
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect

from accounts import rights
from accounts.rights import Right
from events.models import Event
from experiments import checkpoint_deletion
from experiments.continuing import can_continue
from experiments.models import Checkpoint, Experiment, Trial
from experiments.states import GONE, USABLE, CheckpointState
from shown import checkpoints, timeline
from shown.checkpoints import CheckpointPlace, CheckpointRow
from webui.pages.experiments.access import may_act
from webui.pages.frame import actor, or_404, page, posted, refusals_told, show, user_of
from webui.query import choices

PER_PAGE = 100
#: chip -> states; the first one is what a page opens with: after a search the deleted ones would hide the rest
CHIPS = {
    "stored": [*USABLE, CheckpointState.PARTIAL],
    "failed": [CheckpointState.ERROR],
    "deleted": [*GONE],
    "all": [*CheckpointState],
}
SORTS = {"newest": "Newest", "steps": "Steps", "metric": "Metric", "size": "Size"}


@dataclass(frozen=True)
class CheckpointTable:
    rows: list[CheckpointRow]
    page: Page[CheckpointPlace]
    best: uuid.UUID | None
    metric: str  # "" where the config names none
    chip: str
    sort: str
    of_trial: bool
    wrong: list[str]  # a sentence for each filter of the address that is none
    chips = CHIPS
    sorts = SORTS


def table(experiment: Experiment, query: QueryDict, trial: Trial | None = None) -> CheckpointTable:
    """Build the table for one trial, or all, by `state`, `sort` and `page`; invalid values are dropped and named."""
    chosen, wrong = choices(query, {"state": CHIPS, "sort": SORTS})
    chip, sort = chosen.get("state") or "stored", chosen.get("sort") or "newest"
    listed = checkpoints.listed(experiment, CHIPS[chip], sort, trial)
    current = Paginator(listed.places, PER_PAGE).get_page(query.get("page"))
    rows, metric = listed.rows(current.object_list), checkpoints.metric_name(experiment)
    return CheckpointTable(rows, current, listed.best, metric, chip, sort, trial is not None, wrong)


def find(trial_id: int, checkpoint_uuid: uuid.UUID) -> Checkpoint:
    """The checkpoint or 404."""
    related = ("trial__experiment__owner", "trial__experiment__job__pool", "trial__task")
    rows = Checkpoint.objects.select_related(*related).filter(pk=checkpoint_uuid, trial_id=trial_id)
    return or_404(rows.first(), f"Trial {trial_id} has no checkpoint {checkpoint_uuid}.")


@page
def detail(request: HttpRequest, trial_id: int, checkpoint_uuid: uuid.UUID) -> HttpResponse:
    row = find(trial_id, checkpoint_uuid)
    experiment = row.trial.experiment
    facts = checkpoints.facts_of(experiment, {trial_id})
    context = {
        "checkpoint": row,
        "trial": row.trial,
        "experiment": experiment,
        "metric_name": checkpoints.metric_name(experiment),
        "row": checkpoints.one(row, facts),
        "files": sorted((path, size) for path, size in row.resources.items() if not path.endswith("/")),
        "metadata": {"steps_completed": row.steps_completed, **row.metadata},
        "began": row.started.select_related("experiment").order_by("pk"),
        "command": f"trainmaster checkpoint download {row.pk}",
        "is_there": row.state in USABLE,
        "is_gone": row.state in GONE,
        "may_act": may_act(request, experiment),
        "may_continue": row.trial.latest_checkpoint_id == row.pk
        and can_continue(experiment)
        and may_act(request, experiment),
        "may_fork": user_of(request).may_edit and not experiment.unmanaged,
        "losses": checkpoint_deletion.lost_with(row, facts),
        "objections": list(checkpoint_deletion.objections([row])),
        "entries": timeline.of(Event.objects.filter(kind=Event.Kind.CHECKPOINT, subject=str(row.pk))),
    }
    return show(request, "checkpoint", context, room="Experiments", fragment="checkpoint")


@posted(Right.EDIT)
def delete(request: HttpRequest, trial_id: int, checkpoint_uuid: uuid.UUID) -> HttpResponse:
    row = find(trial_id, checkpoint_uuid)
    with refusals_told(request):
        rights.require_owner(user_of(request), row.trial.experiment)
        checkpoint_deletion.delete([row.pk], actor=actor(request))
    return redirect(f"/trials/{trial_id}/checkpoints/{checkpoint_uuid}")
