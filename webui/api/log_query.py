"""The query string of a log stream, checked (features.md 3.2)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from django.http import QueryDict
from django.utils.dateparse import parse_datetime

from jobs.models import Member
from logs.filters import BadPattern, Filters
from logs.levels import Level, UnknownLevel, parse
from logs.lines import SERVER, STDERR, STDOUT
from webui.api.errors import BadRequest

#: Who wrote a line, in the dialect: the training code, or the server.
TASK_SOURCE, SERVER_SOURCE = "task", "master"
_ORDERS = {"", "ORDER_BY_UNSPECIFIED", "ORDER_BY_ASC", "ORDER_BY_DESC"}
_STDTYPES = {"stdout": frozenset({STDOUT, SERVER}), "stderr": frozenset({STDERR})}
_SOURCES = {
    TASK_SOURCE: frozenset({STDOUT, STDERR}),
    SERVER_SOURCE: frozenset({SERVER}),
    "agent": frozenset(""),
}


@dataclass(frozen=True)
class LogQuery:
    """`limit` None means all. `filters` None: nothing can match. `after` is the number of the last line seen."""

    filters: Filters | None
    limit: int | None
    follow: bool
    newest_first: bool
    after: int


def log_query(query: QueryDict, task_id: str) -> LogQuery:
    """Read and check the query. Raises BadRequest. Reads the database for container ids."""
    limit, follow = _number(query, "limit"), _flag(query, "follow")
    if limit and follow:
        raise BadRequest("Limit cannot be specified when following")
    order = query.get("orderBy", "")
    if order not in _ORDERS:
        raise BadRequest(f"orderBy is {order!r}; allowed: ORDER_BY_ASC, ORDER_BY_DESC.")
    return LogQuery(
        filters=_filters(query, task_id),
        limit=limit or None,
        follow=follow,
        newest_first=order == "ORDER_BY_DESC" and not follow,
        after=_number(query, "after"),
    )


def _filters(query: QueryDict, task_id: str) -> Filters | None:
    hosts, allocations = frozenset(query.getlist("agentIds")), frozenset(query.getlist("allocationIds"))
    if containers := query.getlist("containerIds"):  # a container is one run: an attempt's part on a host
        runs = [
            (member.run_key, member.host.name, member.allocation_id)
            for member in Member.objects.filter(allocation__task_id=task_id).select_related("host")
        ]
        named = [run for run in runs if run[0] in containers]
        hosts = _both(hosts, frozenset(host for _, host, _ in named))
        allocations = _both(allocations, frozenset(allocation for _, _, allocation in named))
        if not named or not hosts or not allocations:
            return None
    streams = _streams(query)
    if streams is None:
        return None
    try:
        levels: frozenset[Level] = frozenset(parse(level) for level in query.getlist("levels"))
        filters = Filters(
            ranks=frozenset(_ranks(query)),
            levels=levels,
            hosts=hosts,
            streams=streams,
            allocations=allocations,
            after_time=_time(query, "timestampAfter"),
            before_time=_time(query, "timestampBefore"),
        )
        return filters.searching(query.get("searchText", ""), is_regex=_flag(query, "enableRegex"))
    except (UnknownLevel, BadPattern) as error:
        raise BadRequest(str(error)) from error


def _both(asked: frozenset[str], found: frozenset[str]) -> frozenset[str]:
    return asked & found if asked else found


def _streams(query: QueryDict) -> frozenset[str] | None:
    """The letters that stdtypes and sources leave: empty for all, None for none."""
    left = frozenset({STDOUT, STDERR, SERVER})
    for name, letters in (("stdtypes", _STDTYPES), ("sources", _SOURCES)):
        asked = query.getlist(name)
        if asked:
            left &= frozenset().union(*(letters.get(value, frozenset()) for value in asked))
    if not left:
        return None
    return frozenset() if len(left) == 3 else left


def _ranks(query: QueryDict) -> list[int]:
    ranks = []
    for text in query.getlist("rankIds"):
        if not text.lstrip("-").isdecimal() or not -1 <= int(text) < 2**31:
            raise BadRequest(f"rankIds holds {text!r}; allowed: ranks, and -1 for lines without one.")
        ranks.append(int(text))
    return ranks


def _number(query: QueryDict, name: str) -> int:
    text = query.get(name, "") or "0"
    if not text.isdecimal() or len(text) > 18:
        raise BadRequest(f"{name} is {text!r}; allowed: 0 or a positive whole number.")
    return int(text)


def _flag(query: QueryDict, name: str) -> bool:
    text = query.get(name, "").lower()
    if text not in {"", "true", "false", "1", "0"}:
        raise BadRequest(f"{name} is {text!r}; allowed: true or false.")
    return text in {"true", "1"}


def _time(query: QueryDict, name: str) -> float | None:
    text = query.get(name, "")
    if not text:
        return None
    try:
        value: datetime | None = parse_datetime(text)
    except ValueError:
        value = None
    if value is None:
        raise BadRequest(f"{name} is {text!r}; allowed: a time like 2026-01-31T12:00:00Z (RFC 3339).")
    return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
