"""The list of experiments: newest first; filters, search, columns and sort in the URL, fresh without F5."""

from __future__ import annotations

from typing import Any, TypeVar

from django.core.paginator import Page, Paginator
from django.db.models import F, QuerySet
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from accounts.models import User
from experiments import counts, phases, words
from experiments.actions import ACTIONS
from experiments.models import Experiment, ExperimentCount, Project, Trial, Workspace
from experiments.states import EXPERIMENT_END_STATES, ExperimentState
from hosts.models import ResourcePool
from metrics.comparisons import metrics_of
from shown.experiments import log_labels, why_queued
from webui.pages.experiments import columns as experiment_columns
from webui.pages.experiments.chosen import EDITS
from webui.pages.experiments.columns import COLUMNS, Row
from webui.pages.frame import page, show, user_of
from webui.pages.search.charts import TRIALS_ASKED_FOR_NAMES
from webui.pages.table_columns import Column, Sort
from webui.pages.trials.columns import METRIC
from webui.query import as_id, choices

Rows = TypeVar("Rows", Experiment, ExperimentCount)

PER_PAGE = 50
#: the columns that stand in every list
NUMBER = Column[Row]("id", "ID", lambda row: str(row.experiment.pk), F("pk"), is_downwards=True, css="mono")
NAME = Column[Row]("name", "Name", lambda row: row.experiment.name)
#: chip -> states
CHIPS = {
    "active": [ExperimentState.ACTIVE],
    "paused": [ExperimentState.PAUSED],
    "completed": [ExperimentState.COMPLETED],
    "failed": [ExperimentState.ERROR],
    "canceled": [ExperimentState.CANCELED],
}
#: parameters of the filter that name one of something, by its number or name
FILTERS = ("workspace", "project", "user", "pool", "label")
#: filters for which no sums are kept (experiments.counts): what they leave is counted up to MOST_COUNTED rows
NOT_SUMMED = ("pool", "label", "q")
MOST_COUNTED = 250
#: the last page of what is counted
LAST_PAGE = 10_000
#: workspaces and projects that the filter offers
MOST_OFFERED = 500


#: what is done to those that are ticked: action of chosen.py -> its button; deleting comes last
BULK = {
    **{name: action.label for name, action in ACTIONS.items() if name != "delete"},
    **{name: edit.label for name, edit in EDITS.items()},
    "tensorboard": "TensorBoard",
    "delete": ACTIONS["delete"].label,
}
#: those of them that an experiment that has ended does not take
FOR_LIVE = {name for name, action in ACTIONS.items() if action.on_runs}


def _senseless(request: HttpRequest) -> set[str]:
    """Actions that nothing in the list could need."""
    return {"archive", "move"} | FOR_LIVE if "archived" in request.GET else {"unarchive"}


@page
def listing(request: HttpRequest) -> HttpResponse:
    """All experiments, or those that the filters leave."""
    user = user_of(request)
    wanted, wrong = choices(request.GET, {"state": CHIPS})
    shown = experiment_columns.chosen(user, wanted)
    table = [NUMBER, NAME, *(column for key in shown if (column := experiment_columns.column(key)))]
    sort = Sort.read(wanted.get("sort", ""), _sortable, f"-{NUMBER.key}")
    rows = filtered(user, wanted)
    ordered = experiment_columns.annotated(rows, [sort.key]).order_by(sort.expression, "-pk")
    pages = Paginator(ordered, PER_PAGE)
    pages.count = _count(rows, user, wanted)
    current = pages.get_page(wanted.get("page"))
    found = _rows(list(current.object_list), shown)
    context = {
        "page": current,
        "said": "" if _is_summed(wanted) or pages.count <= MOST_COUNTED else _more_than(current),
        "rows": [(row, [column.cell(row) for column in table[2:]]) for row in found],
        "heads": [sort.head(column) for column in table],
        "nothing_at_all": not found and not Experiment.objects.exists(),
        "chosen": wanted,
        "wrong": wrong,
        "end_states": EXPERIMENT_END_STATES,
    }
    if "part" not in wanted:
        context |= _form(request, shown, rows) | {
            "chips": list(CHIPS),
            "may_edit": user.may_edit,
            "for_live": FOR_LIVE,
            "bulk": [each for each in BULK.items() if each[0] not in _senseless(request)],
        }
    return show(request, "experiments", context, room="Experiments", fragment="experiments")


@page
@require_POST
def columns(request: HttpRequest) -> HttpResponse:
    """The list with the columns that were ticked (`c`, repeats). `do`: show, keep (them), forget (those kept)."""
    ticked, what = request.POST.getlist("c"), request.POST.get("do")
    rest = QueryDict(request.POST.get("rest", ""), mutable=True)
    rest.setlist("c", ticked if what == "show" else [])
    if what in {"keep", "forget"}:
        experiment_columns.keep(user_of(request), ticked if what == "keep" else [])
    query = rest.urlencode()
    return redirect(f"/experiments?{query}" if query else "/experiments")


def _count(rows: QuerySet[Experiment], user: User, wanted: QueryDict) -> int:
    """How many rows there are. Where no sum is kept, they are counted a few pages beyond the page that is shown."""
    if _is_summed(wanted):
        return counts.total(_summed(ExperimentCount.objects.all(), user, wanted))
    shown = PER_PAGE * min(as_id(wanted.get("page", "1")), LAST_PAGE)
    return rows.order_by()[: MOST_COUNTED + shown + 1].count()


def _more_than(current: Page[Experiment]) -> str:
    return f"{current.start_index()} to {current.end_index()} of more than {MOST_COUNTED}"


def _is_summed(wanted: QueryDict) -> bool:
    return not any(wanted.get(name, "").strip() for name in NOT_SUMMED)


def filtered(user: User, wanted: QueryDict) -> QuerySet[Experiment]:
    """Those that the filters of the address leave."""
    rows = Experiment.objects.select_related("owner", "job__pool", "project__workspace")
    rows = rows.defer("search", "original_config", "template_config", "notes")
    rows = _summed(rows, user, wanted)
    if pool := wanted.get("pool", "").strip():
        rows = rows.filter(job__pool__name=pool, unmanaged=False)
    if label := wanted.get("label", "").strip():
        rows = rows.filter(labels__contains=[label])
    if text := wanted.get("q", "").strip():
        rows = words.containing(rows, text, as_id(text))
    return rows


def _summed(rows: QuerySet[Rows], user: User, wanted: QueryDict) -> QuerySet[Rows]:
    """The rows that are left by those filters for which sums are kept (experiments.counts)."""
    rows = rows.filter(archived="archived" in wanted)
    if states := CHIPS.get(wanted.get("state", "")):
        rows = rows.filter(state__in=states)
    if owner := wanted.get("user"):
        rows = rows.filter(owner=user) if owner == "me" else rows.filter(owner__username=owner)
    if project := wanted.get("project"):
        rows = rows.filter(project=as_id(project))
    if workspace := wanted.get("workspace"):
        rows = rows.filter(project__workspace=as_id(workspace))
    return rows


def _sortable(key: str) -> Column[Row] | None:
    return NUMBER if key == NUMBER.key else experiment_columns.column(key)


def _rows(found: list[Experiment], shown: list[str]) -> list[Row]:
    standing = phases.of_experiments(found)
    # of the page alone: beside the rows, they would be counted for all pages before it too
    numbers = experiment_columns.annotated(Experiment.objects.only("pk"), shown).in_bulk(list(standing))
    why, labels = why_queued(found, standing), log_labels(found)
    best: dict[int | None, Trial] = {}
    if experiment_columns.speak_of_the_best(shown):
        trials = Trial.objects.only("latest_validation", "summary_metrics")
        best = {**trials.in_bulk([each.best_trial_id for each in found if each.best_trial_id])}
    return [
        Row(
            each,
            standing[each.pk],
            why.get(each.pk, ""),
            labels.get(each.pk, []),
            numbers[each.pk],
            best.get(each.best_trial_id),
        )
        for each in found
        if each.pk in numbers
    ]


def _offered(rows: QuerySet[Experiment], shown: list[str]) -> dict[str, list[tuple[str, str, bool]]]:
    """Group -> (key, title, is it shown) of the columns that one may choose.

    Of metrics those that the best trials of the newest experiments of the list have reported, and those shown.
    """
    best = rows.exclude(best_trial_id=None).order_by("-pk").values_list("best_trial_id", flat=True)
    reported = metrics_of([pk for pk in best[:TRIALS_ASKED_FOR_NAMES] if pk])
    metrics = dict.fromkeys(
        [*(key for key in shown if key not in COLUMNS), *(f"{METRIC}{each}" for each in reported)]
    )
    offered = {"In addition to ID and name": [*COLUMNS], "Latest of the best trial": [*metrics]}
    return {
        group: [(key, each.title, key in shown) for key in keys if (each := experiment_columns.column(key))]
        for group, keys in offered.items()
        if keys
    }


def _form(request: HttpRequest, shown: list[str], rows: QuerySet[Experiment]) -> dict[str, Any]:
    """What the menus of filters and columns offer, and where in the tree of projects the list stands."""
    wanted = request.GET
    project = Project.objects.select_related("workspace").filter(pk=as_id(wanted.get("project", ""))).first()
    workspace = Workspace.objects.filter(pk=as_id(wanted.get("workspace", ""))).first()
    projects = Project.objects.select_related("workspace").order_by("workspace__name", "name")
    return {
        "project": project,
        "workspace": project.workspace if project else workspace,
        "workspaces": Workspace.objects.order_by("name")[:MOST_OFFERED],
        "projects": projects[:MOST_OFFERED],
        "users": counts.owners().order_by("username"),
        "pools": ResourcePool.objects.order_by("name"),
        "filters": sum(1 for name in FILTERS if wanted.get(name)),
        "columns": _offered(rows, shown),
        "unfiltered": _without(wanted, *FILTERS, "page"),
        "carried": {
            "search": _pairs(wanted, "q"),
            "filter": _pairs(wanted, *FILTERS),
        },
    }


def _without(wanted: QueryDict, *names: str) -> str:
    rest = wanted.copy()
    for name in names:
        rest.pop(name, None)
    return f"?{rest.urlencode()}" if rest else "/experiments"


def _pairs(wanted: QueryDict, *but: str) -> list[tuple[str, str]]:
    """What a form of the page carries along."""
    names = [name for name in wanted if name not in {*but, "page", "part"}]
    return [(name, value) for name in names for value in wanted.getlist(name)]
