"""Which ranks an expression chooses now: what the rank box asks."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, JsonResponse

from accounts.refusals import Refusal
from logs import rank_status
from logs.rank_expression import parse


def choose(request: HttpRequest, task_id: str) -> HttpResponse:
    """{"ranks", "count", "of", "changes"} for the expression in `ranks`, or {"fault": a sentence}: it is being typed.

    `ranks` is what a filter of lines takes (empty: all; logs.rank_expression.NOBODY alone: no line fits), `count` how
    many ranks that are and `of` how many are known. `changes` says that the answer may change as the job goes on.
    """
    try:
        expression = parse(request.GET.get("ranks", ""))
    except Refusal as fault:
        return JsonResponse({"fault": str(fault)})
    known = rank_status.known(task_id)
    chosen = expression.ranks(known)
    return JsonResponse(
        {
            "ranks": sorted(expression.for_filter(known)),
            "count": sum(rank >= 0 for rank in chosen),
            "of": len(known),
            "changes": expression.needs_facts,
        }
    )
