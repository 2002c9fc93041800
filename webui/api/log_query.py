"""The query string of a log stream, checked (features.md 3.2). A parameter that is wrong or unknown is refused."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from django.http import QueryDict

from accounts.refusals import Refusal
from jobs.models import Member
from logs import rank_status
from logs.filters import Filters
from logs.levels import Level, parse
from logs.lines import SERVER, STDERR, STDOUT, STREAM_NAMES
from logs.rank_expression import RANK_MAX, Expression
from logs.rank_expression import parse as parse_ranks
from webui.api.errors import BadRequest
from webui.query import flag, time, whole

#: Who wrote a line, in the dialect: the training code, or the server.
TASK_SOURCE, SERVER_SOURCE = "task", "master"
_Letters = Mapping[str, frozenset[str]]
_STDTYPES: _Letters = {"stdout": frozenset({STDOUT, SERVER}), "stderr": frozenset({STDERR})}
_SOURCES: _Letters = {
    TASK_SOURCE: frozenset({STDOUT, STDERR}),
    SERVER_SOURCE: frozenset({SERVER}),
    "agent": frozenset(),  # Determined's word for what its agents wrote; ours write nothing
}
#: ours beside the dialect, where the server's lines count as stdout
_STREAMS: _Letters = {name: frozenset({letter}) for letter, name in STREAM_NAMES.items()}
_ORDERS = {"", "ORDER_BY_UNSPECIFIED", "ORDER_BY_ASC", "ORDER_BY_DESC"}
#: parameters of downloads, and of streams of records
FILTERS = frozenset(
    {"agentIds", "containerIds", "allocationIds", "rankIds", "levels", "stdtypes", "sources", "streams"}
    | {"timestampBefore", "timestampAfter", "searchText", "enableRegex"}
)
STREAMED = FILTERS | {"limit", "follow", "orderBy", "after"}
_NAME_CHARACTERS_MAX = 256
_WHOLE = re.compile(r"-?[0-9]{1,19}")


@dataclass(frozen=True)
class LogQuery:
    """`limit` None means all. `after` is the number of the last line seen. `_filters` None: nothing can match."""

    task_id: str
    limit: int | None
    follow: bool
    newest_first: bool
    after: int
    ranks: tuple[Expression, ...]
    _filters: Filters | None

    @property
    def changes(self) -> bool:
        """Whether the chosen ranks may change as the job goes on, so that a follower asks for `filters` anew."""
        return any(expression.needs_facts for expression in self.ranks)

    @property
    def searches(self) -> bool:
        """Whether lines are looked through for a text or a pattern."""
        return self._filters is not None and bool(self._filters.text or self._filters.pattern)

    def filters(self) -> Filters | None:
        """The filters as of now; None when nothing can match. Reads the database where ranks are chosen by facts."""
        if self._filters is None or not self.ranks:
            return self._filters
        known = rank_status.known(self.task_id) if self.changes else []
        chosen = frozenset[int]().union(*(expression.ranks(known) for expression in self.ranks))
        return replace(self._filters, ranks=chosen) if chosen else None

    def may_match(self) -> bool:
        """False when no line ever can."""
        return self._filters is not None


def stream_query(query: QueryDict, task_id: str) -> LogQuery:
    """The query of a stream of records. Raises BadRequest. Reads the database for container ids."""
    _refuse_unknown(query, STREAMED)
    limit, follow = whole(query, "limit"), flag(query, "follow")
    if limit and follow:
        raise BadRequest("Limit cannot be specified when following")
    order = query.get("orderBy", "")
    if order not in _ORDERS:
        raise BadRequest(f"orderBy is {order!r}; allowed: ORDER_BY_ASC, ORDER_BY_DESC.")
    newest_first = order == "ORDER_BY_DESC"
    if newest_first and follow:
        raise BadRequest("orderBy cannot be ORDER_BY_DESC when following, because new lines come last.")
    return LogQuery(
        task_id, limit or None, follow, newest_first, whole(query, "after") or 0, *_filtered(query, task_id)
    )


def file_query(query: QueryDict, task_id: str) -> LogQuery:
    """The query of a download: filters alone. Raises BadRequest. Reads the database for container ids."""
    _refuse_unknown(query, FILTERS)
    return LogQuery(task_id, None, False, False, 0, *_filtered(query, task_id))


def fields_query(query: QueryDict) -> bool:
    """Whether the fields are to be followed. Raises BadRequest."""
    _refuse_unknown(query, {"follow"})
    return flag(query, "follow")


def _refuse_unknown(query: QueryDict, allowed: Iterable[str]) -> None:
    for name in query:
        if name not in allowed:
            raise BadRequest(f"There is no parameter {name!r}; allowed: {', '.join(sorted(allowed))}.")


def _filtered(query: QueryDict, task_id: str) -> tuple[tuple[Expression, ...], Filters | None]:
    ranks = _ranks(query)
    hosts, allocations = _names(query, "agentIds"), _names(query, "allocationIds")
    streams = _streams(query)
    filters = Filters(
        levels=frozenset[Level](parse(level) for level in query.getlist("levels")),
        streams=streams or frozenset(),
        after_time=time(query, "timestampAfter"),
        before_time=time(query, "timestampBefore"),
    ).searching(query.get("searchText", ""), is_regex=flag(query, "enableRegex"))
    if containers := _names(query, "containerIds"):  # a container is one run: an attempt's part on a host
        members = Member.objects.filter(allocation__task_id=task_id).select_related("host")
        named = [member for member in members if member.run_key in containers]
        hosts = _both(hosts, frozenset(member.host.name for member in named))
        allocations = _both(allocations, frozenset(member.allocation_id for member in named))
        if not hosts or not allocations:
            return ranks, None
    if streams is None:
        return ranks, None
    return ranks, replace(filters, hosts=hosts, allocations=allocations)


def _both(asked: frozenset[str], found: frozenset[str]) -> frozenset[str]:
    return asked & found if asked else found


def _names(query: QueryDict, name: str) -> frozenset[str]:
    names = frozenset(query.getlist(name))
    for text in names:
        if not text.isprintable() or len(text) > _NAME_CHARACTERS_MAX:
            raise BadRequest(
                f"{name} holds {text[:40]!r}; allowed: names of up to {_NAME_CHARACTERS_MAX} characters."
            )
    return names


def _streams(query: QueryDict) -> frozenset[str] | None:
    """The letters that stdtypes, sources and streams leave: empty for all, None for none."""
    left = frozenset({STDOUT, STDERR, SERVER})
    for name, letters in (("stdtypes", _STDTYPES), ("sources", _SOURCES), ("streams", _STREAMS)):
        asked = query.getlist(name)
        for value in asked:
            if value not in letters:
                raise BadRequest(f"{name} holds {value!r}; allowed: {', '.join(letters)}.")
        if asked:
            left &= frozenset[str]().union(*(letters[value] for value in asked))
    if not left:
        return None
    return frozenset() if len(left) == 3 else left


def _ranks(query: QueryDict) -> tuple[Expression, ...]:
    """What each `rankIds` chooses; they add to one another. -1 stands for lines without a rank, -2 for no rank."""
    try:
        return tuple(parse_ranks(_expression(text.strip())) for text in query.getlist("rankIds"))
    except Refusal as error:
        raise BadRequest(f"rankIds: {error} -1 means lines without a rank.") from error


def _expression(text: str) -> str:
    """The rank expression for a value. A whole number that is no rank chooses nothing."""
    if text == "-1":
        return "none"
    is_a_rank = not _WHOLE.fullmatch(text) or 0 <= int(text) <= RANK_MAX
    return text if is_a_rank else "none,!none"
