"""The list of experiments: newest first; filters, search, columns and sort in the URL, fresh without F5."""

from __future__ import annotations

from typing import Any

from django.core.paginator import Paginator
from django.db.models import F, QuerySet
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect

from accounts.models import User
from accounts.rights import Right
from experiments import counts
from experiments.actions import ACTIONS
from experiments.filters import ExperimentFilters
from experiments.models import Experiment, Project, Workspace
from experiments.states import EXPERIMENT_END_STATES, ExperimentState
from hosts.models import ResourcePool
from metrics.comparisons import metrics_of
from shown.experiments import ExperimentRow, rows_of
from shown.search.tried import TRIALS_ASKED_FOR_NAMES
from webui.pages.experiments import columns as experiment_columns
from webui.pages.experiments.chosen import EDITS
from webui.pages.experiments.columns import COLUMNS
from webui.pages.frame import page, posted, show, user_of
from webui.pages.table_columns import Column, Sort
from webui.pages.trials.table import METRIC
from webui.query import as_id, choices

PER_PAGE = 50
#: the columns that stand in every list
NUMBER = Column[ExperimentRow](
    "id", "ID", lambda row: str(row.experiment.pk), F("pk"), is_downwards=True, css="mono"
)
NAME = Column[ExperimentRow]("name", "Name", lambda row: row.experiment.name)
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
#: what filters leave for which no sums are kept (experiments.counts) is counted up to so many rows
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
    filters = filters_of(user, wanted)
    rows = _filtered(filters)
    ordered = experiment_columns.annotated(rows, [sort.key]).order_by(sort.expression, "-pk")
    pages = Paginator(ordered, PER_PAGE)
    pages.count = _count(rows, filters, as_id(wanted.get("page", "1")))
    current = pages.get_page(wanted.get("page"))
    found = rows_of(
        list(current.object_list),
        experiment_columns.annotated(Experiment.objects.all(), shown),
        with_best=experiment_columns.speak_of_the_best(shown),
    )
    context = {
        "page": current,
        "said": f"{current.start_index()} to {current.end_index()} of more than {MOST_COUNTED}"
        if pages.count > MOST_COUNTED and not filters.are_summed
        else "",
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


@posted(Right.OWN)
def columns(request: HttpRequest) -> HttpResponse:
    """The list with the columns that were ticked (`c`, repeats). `do`: show, keep (them), forget (those kept)."""
    ticked, what = request.POST.getlist("c"), request.POST.get("do")
    rest = QueryDict(request.POST.get("rest", ""), mutable=True)
    rest.setlist("c", ticked if what == "show" else [])
    if what in {"keep", "forget"}:
        experiment_columns.keep(user_of(request), ticked if what == "keep" else [])
    query = rest.urlencode()
    return redirect(f"/experiments?{query}" if query else "/experiments")


def filters_of(user: User, wanted: QueryDict) -> ExperimentFilters:
    """What the address asks for."""
    owner, project, workspace = (wanted.get(name) for name in ("user", "project", "workspace"))
    text, label = wanted.get("q", "").strip(), wanted.get("label", "").strip()
    return ExperimentFilters(
        archived="archived" in wanted,
        states=CHIPS.get(wanted.get("state", ""), []),
        users=[owner] if owner and owner != "me" else [],
        user_ids=[user.pk] if owner == "me" else [],
        project_id=as_id(project) if project else None,
        workspace_id=as_id(workspace) if workspace else None,
        pool=wanted.get("pool", "").strip(),
        labels=[label] if label else [],
        text=text,
        number=as_id(text),
    )


def _filtered(filters: ExperimentFilters) -> QuerySet[Experiment]:
    rows = Experiment.objects.select_related("owner", "job__pool", "project__workspace")
    rows = filters.of(rows.defer("search", "original_config", "template_config", "notes"))
    return rows.filter(unmanaged=False) if filters.pool else rows


def _count(rows: QuerySet[Experiment], filters: ExperimentFilters, page: int) -> int:
    """How many rows there are. Where no sum is kept, they are counted a few pages beyond the page that is shown."""
    total = filters.total()
    if total is not None:
        return total
    return rows.order_by()[: MOST_COUNTED + PER_PAGE * min(page, LAST_PAGE) + 1].count()


def _sortable(key: str) -> Column[ExperimentRow] | None:
    return NUMBER if key == NUMBER.key else experiment_columns.column(key)


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
        "charts": _without(wanted, "page", "sort", "c", at="/compare"),
        "carried": {
            "search": _pairs(wanted, "q"),
            "filter": _pairs(wanted, *FILTERS),
        },
    }


def _without(wanted: QueryDict, *names: str, at: str = "/experiments") -> str:
    rest = wanted.copy()
    for name in names:
        rest.pop(name, None)
    return f"{at}?{rest.urlencode()}" if rest else at


def _pairs(wanted: QueryDict, *but: str) -> list[tuple[str, str]]:
    """What a form of the page carries along."""
    names = [name for name in wanted if name not in {*but, "page", "part"}]
    return [(name, value) for name in names for value in wanted.getlist(name)]
