"""The lines of a trial's log, as iterated by the Python client."""

from __future__ import annotations

import time
from datetime import datetime, timezone
from typing import Any, Callable, Iterator, List, Optional, Sequence, Tuple, Union

from trainmaster.client import StreamQuiet
from trainmaster.common.api import errors
from trainmaster.experimental._session import Json, Session
from trainmaster.experimental._vocabulary import LogLevel

Moment = Union[str, int, None]
Query = List[Tuple[str, Any]]

#: a log that is followed outlives a server that is away for so long
_PATIENCE_SECONDS = 600.0
_PAUSE_SECONDS = 1.0


def query_of(
    container_ids: Optional[Sequence[str]],
    rank_ids: Optional[Sequence[int]],
    stdtypes: Optional[Sequence[str]],
    min_level: Optional[LogLevel],
    timestamp_before: Moment,
    timestamp_after: Moment,
    sources: Optional[Sequence[str]],
    search_text: Optional[str],
) -> Query:
    """The filters. Raises ValueError for a time that is neither text nor seconds since the epoch."""
    levels = list(LogLevel)
    query: Query = [("containerIds", name) for name in container_ids or ()]
    query += [("rankIds", rank) for rank in rank_ids or ()]
    query += [("stdtypes", name) for name in stdtypes or ()]
    query += [("sources", name) for name in sources or ()]
    if min_level is not None:
        query += [("levels", level.value) for level in levels[levels.index(min_level) :]]
    for name, value in (("timestampBefore", timestamp_before), ("timestampAfter", timestamp_after)):
        if value is not None:
            query.append((name, _moment(name, value)))
    if search_text:
        query.append(("searchText", search_text))
    return query


def _moment(name: str, value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return datetime.fromtimestamp(value, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    if isinstance(value, str):
        return value
    raise ValueError(
        f"{name} is {value!r}; allowed: a time such as 2026-01-31T12:00:00Z, or seconds since the epoch."
    )


def read(
    session: Session, path: str, query: Query, head: Optional[int], tail: Optional[int]
) -> Iterator[Json]:
    """The records that fit, in order; the first or last so many of them."""
    if head == 0 or tail == 0:
        return
    if tail:
        newest = session.lines(path, [*query, ("orderBy", "ORDER_BY_DESC"), ("limit", tail)])
        yield from reversed(list(newest))
        return
    yield from session.lines(path, [*query, ("limit", head)] if head else query)


def follow(session: Session, path: str, query: Query, is_over: Callable[[], bool]) -> Iterator[Json]:
    """The records that fit, until the stream ends and `is_over` agrees; one that breaks is taken up where it was."""
    last: Optional[str] = None
    broken_since: Optional[float] = None
    while True:
        after = [("after", last)] if last is not None else []
        try:
            for record in session.lines(path, [*query, ("follow", "true"), *after]):
                broken_since, last = None, str(record["id"])
                yield record
            if is_over():
                return
            broken_since = None
        except errors.BadRequestException as error:
            if not _may_pass(error):
                raise
            if not isinstance(error.__cause__, StreamQuiet):
                broken_since = broken_since or time.monotonic()
                if time.monotonic() - broken_since > _PATIENCE_SECONDS:
                    raise
        time.sleep(_PAUSE_SECONDS)


def _may_pass(error: errors.BadRequestException) -> bool:
    away = isinstance(error, errors.APIException) and error.status_code >= 500
    return away or isinstance(error, errors.MasterNotFoundException)
