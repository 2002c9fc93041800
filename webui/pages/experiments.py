"""The list of experiments: newest first, filters and search in the URL, fresh without F5."""

from __future__ import annotations

from django.core.paginator import Paginator
from django.db.models import Count, Q, QuerySet
from django.http import HttpRequest, HttpResponse

from accounts.models import User
from dispatch import last_plan
from experiments import phases
from experiments.models import Experiment, Trial
from experiments.states import EXPERIMENT_END_STATES, ExperimentState
from webui.pages.frame import page, show, user_of

PER_PAGE = 50
#: chip -> states
CHIPS = {
    "active": [ExperimentState.ACTIVE],
    "paused": [ExperimentState.PAUSED],
    "completed": [ExperimentState.COMPLETED],
    "failed": [ExperimentState.ERROR],
    "canceled": [ExperimentState.CANCELED],
}


#: what is done to those that are ticked: action of experiments_chosen -> its button
BULK = [
    ("activate", "Activate"), ("pause", "Pause"), ("cancel", "Stop and save"), ("kill", "Kill"),
    ("archive", "Archive"), ("unarchive", "Unarchive"), ("move", "Move"), ("label", "Label"),
    ("unlabel", "Take labels off"), ("delete", "Delete"),
]  # fmt: skip


def _senseless(request: HttpRequest) -> set[str]:
    """Actions that nothing in the list could need."""
    return (
        {"archive", "move", "activate", "pause", "cancel", "kill"}
        if "archived" in request.GET
        else {"unarchive"}
    )


@page
def listing(request: HttpRequest) -> HttpResponse:
    """All experiments, or those that the filters leave."""
    rows = _filtered(request)
    pages = Paginator(rows, PER_PAGE)
    current = pages.get_page(request.GET.get("page"))
    found = list(current.object_list)
    words = phases.of_experiments(found)
    why, labels = _why(found, words), _log_labels(found)
    context = {
        "page": current,
        "experiments": [
            (each, words[each.pk], why.get(each.pk, ""), labels.get(each.pk, [])) for each in found
        ],
        "chips": list(CHIPS),
        "users": User.objects.filter(experiments__isnull=False).distinct().order_by("username"),
        "chosen": request.GET,
        "nothing_at_all": not found and not Experiment.objects.exists(),
        "ended": EXPERIMENT_END_STATES,
        "may_edit": user_of(request).may_edit,
        "bulk": [each for each in BULK if each[0] not in _senseless(request)],
    }
    return show(request, "experiments", context, room="Experiments", fragment="experiments")


def _why(found: list[Experiment], words: dict[int, str]) -> dict[int, str]:
    """Experiment id -> why it waits, for those that are queued: what the last pass said of their first trial."""
    queued = {each.pk: last_plan.of(each.job.pool).waits for each in found if words[each.pk] == phases.QUEUED}
    tasks = (
        Trial.objects.filter(experiment__in=queued).order_by("-pk").values_list("experiment_id", "task_id")
    )
    return {
        experiment: str(queued[experiment][task]["sentence"])
        for experiment, task in tasks
        if task in queued[experiment]
    }


def _log_labels(found: list[Experiment]) -> dict[int, list[str]]:
    """Experiment id -> names of the log policies that lines of its trials have matched."""
    rows = Trial.objects.filter(experiment__in=found).exclude(log_labels=[])
    labels: dict[int, list[str]] = {}
    for experiment, names in rows.values_list("experiment_id", "log_labels"):
        labels[experiment] = sorted({*labels.get(experiment, []), *names})
    return labels


def _filtered(request: HttpRequest) -> QuerySet[Experiment]:
    wanted = request.GET
    rows = Experiment.objects.select_related("owner", "job__pool")
    rows = rows.annotate(trial_count=Count("trials"))
    rows = rows.filter(archived="archived" in wanted)
    if states := CHIPS.get(wanted.get("state", "")):
        rows = rows.filter(state__in=states)
    if owner := wanted.get("user"):
        rows = rows.filter(owner=user_of(request)) if owner == "me" else rows.filter(owner__username=owner)
    if text := wanted.get("q", "").strip():
        match = Q(name__icontains=text) | Q(description__icontains=text) | Q(labels__contains=[text])
        if text.isdigit():
            match |= Q(pk=int(text))
        rows = rows.filter(match)
    return rows.order_by("-pk")
