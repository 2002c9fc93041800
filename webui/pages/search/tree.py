"""The Search page of an experiment: its brackets, their rungs, and the trials that reached each rung."""

from __future__ import annotations

from collections.abc import Sequence

from django.core.paginator import Page, Paginator
from django.http import HttpRequest, HttpResponse

from experiments.models import Experiment
from experiments.search_preview import unit_of
from searching.rungs import Bracket, RungEntry, tree
from shown.search import progress, rungs
from shown.search.rungs import SearchTrials
from webui.pages.experiments import experiment as experiment_page
from webui.pages.experiments.access import find
from webui.pages.frame import page, show
from webui.query import as_ids, as_whole

PER_PAGE = 100


@page
def detail(request: HttpRequest, experiment_id: int) -> HttpResponse:
    """`fold` (numbers of brackets, with dots between) and `rung` (one that is shown in full, with `page`)."""
    experiment = find(experiment_id)
    context = experiment_page.head(request, experiment, "search")
    if request.GET.get("part") == "head":
        return show(request, "search_tree", context, room="Experiments", fragment="experiment")
    brackets, known = tree(experiment.search), rungs.trials_of(experiment)
    folded = set(as_ids(request.GET.get("fold", "").split(".")))
    context |= {
        "progress": progress.of(experiment, brackets, known.phases),
        "parts": rungs.parts(brackets, folded, known),
        "unit": unit_of(experiment.searcher),
        "has_rungs": any(bracket.rungs for bracket in brackets),
        "latest": rungs.latest(brackets, known),
        "one": _one(request, brackets, known, experiment),
        "trials_total": len(known.trials),
    }
    return show(request, "search_tree", context, room="Experiments", fragment="search_tree")


def _one(
    request: HttpRequest, brackets: Sequence[Bracket], known: SearchTrials, experiment: Experiment
) -> dict[str, object] | None:
    """All trials of the rung that the address names, a page of them."""
    first, _, second = request.GET.get("rung", "").partition(".")
    bracket = as_whole(first, len(brackets), least=1)
    levels = brackets[bracket - 1].rungs if bracket else ()
    level = as_whole(second, len(levels), least=1)
    if level is None:
        return None
    rung = levels[level - 1]
    entries: Page[RungEntry] = Paginator(rung.entries, PER_PAGE).get_page(request.GET.get("page"))
    lines = rungs.standings(experiment, list(entries.object_list), known)
    return {"bracket": bracket, "level": level, "rung": rung, "lines": lines, "page": entries}
