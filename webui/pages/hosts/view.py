"""Which hosts are shown, from the address: every view of them is a link."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, QueryDict

from shown import words
from shown.hosts.rows import HostRow
from webui.query import choices

#: the filters beside "all", each with what it lets through
KINDS: dict[str, Callable[[HostRow], bool]] = {
    "silent": lambda row: row.state == "silent",
    "draining": lambda row: row.state == "draining" or any(each.slot.draining for each in row.slots),
    "disabled": lambda row: row.state == "disabled" or any(not each.slot.enabled for each in row.slots),
    "outsiders": lambda row: row.outsiders,
    "free": lambda row: row.counts["free"] > 0,
    "not ready": lambda row: not row.is_ready,
}
_MARKS = {name: words.host_state(name).lamp for name in ("silent", "draining", "disabled")}
#: from this many hosts on, cells come before the list
CELLS_FROM = 13
#: up to this many, cells have room for a word; above, a mark stands for it, whose word is in the filters
MOST_WORDS = 96
VIEWS = ["cells", "list"]


@dataclass(frozen=True)
class HostFilter:
    """The choice of one request; `kind` is one of KINDS or empty, and so are the others."""

    kind: str
    model: str
    pool: str
    search: str

    @classmethod
    def of(cls, wanted: QueryDict) -> HostFilter:
        get = wanted.get
        return cls(get("show", ""), get("model", ""), get("pool", ""), get("q", "").strip())

    def matches(self, row: HostRow, *, but_kind: bool = False) -> bool:
        """Whether the host is shown; with `but_kind` whether it would be without the filter by kind."""
        found = self.search.lower()
        return (
            (but_kind or not self.kind or KINDS[self.kind](row))
            and (not self.model or self.model in row.models)
            and (not self.pool or self.pool == row.host.pool.name)
            and (not found or found in row.host.name.lower() or found in row.host.address.lower())
        )


def context(request: HttpRequest, rows: list[HostRow]) -> dict[str, Any]:
    """What the page of all hosts shows: the hosts that fit, by pool, and the filters with their counts."""
    asked, wrong = choices(request.GET, {"show": KINDS, "view": VIEWS})
    chosen = HostFilter.of(asked)
    fitting = [each for each in rows if chosen.matches(each)]
    others = [each for each in rows if chosen.matches(each, but_kind=True)]
    kinds = [(name, sum(1 for each in others if fits(each))) for name, fits in KINDS.items()]
    return {
        "wrong": wrong,
        "chosen": chosen,
        "shown": fitting,
        "all": len(others),
        "kinds": [
            (name, count, _MARKS.get(name, "")) for name, count in kinds if count or name == chosen.kind
        ],
        "models": sorted({model for each in rows for model in each.models}),
        "pools": sorted({each.host.pool.name for each in rows}),
        "by_pool": _by_pool(fitting),
        "dense": len(fitting) > MOST_WORDS,
        "view": asked.get("view") or VIEWS[len(rows) < CELLS_FROM],
        "views": VIEWS,
    }


def _by_pool(rows: list[HostRow]) -> list[tuple[str, list[HostRow], int, int]]:
    """(pool, its hosts, slots held, slots) by the pool's name."""
    found: dict[str, list[HostRow]] = {}
    for each in rows:
        found.setdefault(each.host.pool.name, []).append(each)
    return [
        (name, hosts, sum(each.held for each in hosts), sum(len(each.slots) for each in hosts))
        for name, hosts in sorted(found.items())
    ]
