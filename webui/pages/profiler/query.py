"""What the Profiler page of a trial asks for in its address, each checked. Faults are sentences."""

from __future__ import annotations

from dataclasses import dataclass

from django.http import QueryDict

from accounts.refusals import Refusal
from metrics import sample_charts
from webui.query import LARGEST_INTEGER, as_whole, choice

#: charts that one request may ask for, and hosts and GPUs that an address may name
CHARTS_MAX, CHOSEN_MAX = 200, 1000
#: hosts with charts unless the address names others
FIRST_HOSTS = 8
AXES = {"time": "time of day", "relative": "time since the start"}


@dataclass(frozen=True)
class Chosen:
    """What is shown: `hosts` are those that have charts, `gpus` UUIDs or empty for all, `axis` one of AXES."""

    hosts: list[str]
    gpus: list[str]
    axis: str
    rank: int | None


def chosen(query: QueryDict, known: list[str]) -> Chosen:
    """`host` and `gpu` (each may repeat), `x` and `rank`; `known`: all hosts. What makes no sense is left out."""
    asked = [host for host in dict.fromkeys(query.getlist("host")) if host in known]
    return Chosen(
        hosts=sorted(asked, key=known.index) or known[:FIRST_HOSTS],
        gpus=query.getlist("gpu")[:CHOSEN_MAX],
        axis=choice(query, "x", AXES, next(iter(AXES))),
        rank=rank(query),
    )


def rank(query: QueryDict) -> int | None:
    """The rank whose timings are shown; None: the mean of all."""
    return as_whole(query.get("rank", ""), LARGEST_INTEGER)


def charts(query: QueryDict) -> list[str]:
    """The charts of samples that `chart` lists. Raises Refusal."""
    asked = list(dict.fromkeys(query.getlist("chart")))
    if not 0 < len(asked) <= CHARTS_MAX:
        raise Refusal(f"{len(asked)} charts are requested by `chart`; allowed: 1 to {CHARTS_MAX}.")
    try:
        for each in asked:
            sample_charts.parse(each)
    except ValueError as error:
        raise Refusal(str(error)) from error
    return asked
