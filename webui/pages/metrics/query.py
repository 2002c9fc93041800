"""What the Metrics page of a trial asks for in its address, each checked. Faults are sentences."""

from __future__ import annotations

from django.http import QueryDict

from accounts.refusals import Refusal
from metrics.curves import MOST_SMOOTHING, Axis, CurveView, Wanted
from metrics.metric_table import Chosen
from webui.query import LARGEST_ID, as_whole, number, window

#: Curves that one request may ask for.
CURVES_MAX = 200
SEARCH_CHARACTERS = 200


def chosen(query: QueryDict) -> Chosen:
    """`q`, `prefix`, `m` and `pin` (each may repeat), `expand`, `page`. What makes no sense is left out."""
    return Chosen(
        search=query.get("q", "").strip()[:SEARCH_CHARACTERS],
        prefix=query.get("prefix", ""),
        ticked=query.getlist("m")[:CURVES_MAX],
        pins=query.getlist("pin")[:CURVES_MAX],
        expanded=query.get("expand", ""),
        page=query.get("page", ""),
    )


def view(query: QueryDict, begin: float) -> CurveView:
    """`x`, `smooth`, `from` and `to` in the unit of x (relative: seconds since `begin`; wall: epoch seconds).

    Raises Refusal.
    """
    name = query.get("x") or Axis.STEP
    if name not in list(Axis):
        raise Refusal(f"x is {name[:40]!r}; allowed: {', '.join(Axis)}.")
    return CurveView(
        Axis(name),
        *window(query, "from", "to"),
        number(query, "smooth", 0, MOST_SMOOTHING) or 0.0,
        begin=begin,
    )


def wanted(query: QueryDict) -> list[Wanted]:
    """`group`, `name` and optionally `after`, each once per curve. Raises Refusal."""
    groups, names, after = query.getlist("group"), query.getlist("name"), query.getlist("after")
    if not groups or len(groups) != len(names) or len(after) not in {0, len(names)}:
        raise Refusal(
            "`group` and `name` are required, and `group`, `name` and `after` must be given equally often."
        )
    if len(groups) > CURVES_MAX:
        raise Refusal(f"{len(groups)} curves are requested; at most {CURVES_MAX} are allowed at once.")
    steps = [_step(text) for text in after] or [None] * len(groups)
    return [Wanted(*each) for each in zip(groups, names, steps, strict=True)]


def _step(text: str) -> int | None:
    if not text:
        return None
    if (step := as_whole(text)) is None:
        raise Refusal(f"after is {text[:40]!r}; it must be a step: a whole number from 0 to {LARGEST_ID}.")
    return step
