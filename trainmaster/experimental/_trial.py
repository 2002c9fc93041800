"""Trials and the lines of their logs, as scripts hold them."""

from __future__ import annotations

import dataclasses
import time
from datetime import datetime, timezone
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    Optional,
    Sequence,
    Tuple,
    Union,
)

from trainmaster.client import StreamQuiet
from trainmaster.common.api import errors
from trainmaster.experimental import _metrics
from trainmaster.experimental._checkpoint import Checkpoint
from trainmaster.experimental._metrics import TrainingMetrics, TrialMetrics, ValidationMetrics
from trainmaster.experimental._resource import Resource
from trainmaster.experimental._session import Json, Session
from trainmaster.experimental._vocabulary import (
    CheckpointSortBy,
    LogLevel,
    OrderBy,
    TrialState,
    checkpoint_query,
    metric_order,
)

if TYPE_CHECKING:
    from trainmaster.experimental._experiment import Experiment

_GOING_ON = (
    "STATE_ACTIVE",
    "STATE_PAUSED",
    "STATE_QUEUED",
    "STATE_PULLING",
    "STATE_STARTING",
    "STATE_RUNNING",
)
Moment = Union[str, int, None]
Query = List[Tuple[str, Any]]

#: a log that is followed outlives a server that is away for so long
_PATIENCE_SECONDS = 600.0
_PAUSE_SECONDS = 1.0


@dataclasses.dataclass(init=False, repr=False, eq=False)
class Trial(Resource):
    """One trial. What it says of itself is of its last `reload`."""

    _NOUN, _ARGUMENT = "trial", "trial_id"

    experiment_id: Optional[int] = None
    hparams: Optional[Dict[str, Any]] = None
    summary_metrics: Optional[Dict[str, Any]] = None
    metadata: Optional[Dict[str, Any]] = None
    state: Optional[TrialState] = None

    def __init__(self, trial_id: int, session: Session) -> None:
        super().__init__(session, trial_id)
        self.id = trial_id

    def iter_logs(
        self,
        follow: bool = False,
        *,
        head: Optional[int] = None,
        tail: Optional[int] = None,
        container_ids: Optional[List[str]] = None,
        rank_ids: Optional[List[int]] = None,
        stdtypes: Optional[List[str]] = None,
        min_level: Optional[LogLevel] = None,
        timestamp_before: Union[str, int, None] = None,
        timestamp_after: Union[str, int, None] = None,
        sources: Optional[List[str]] = None,
        search_text: Optional[str] = None,
    ) -> Iterator[str]:
        """The lines of the log that fit, each with its end of line; with `follow`, to the trial's end.

        A time is RFC 3339 (2026-01-31T12:00:00Z) or seconds since the epoch. Raises ValueError.
        """
        if (head or 0) < 0 or (tail or 0) < 0:
            raise ValueError(f"head is {head} and tail is {tail}; allowed: 0 or more.")
        if sum([follow, head is not None, tail is not None]) > 1:
            raise ValueError("Only one of follow, head and tail can be given.")
        query = log_query(
            container_ids,
            rank_ids,
            stdtypes,
            min_level,
            timestamp_before,
            timestamp_after,
            sources,
            search_text,
        )
        path = f"{self._path}/logs"
        records = (
            _follow_log(self._session, path, query, self._is_over)
            if follow
            else _read_log(self._session, path, query, head, tail)
        )
        return (record["message"] for record in records)

    logs = iter_logs  # its older name

    def kill(self) -> None:
        """End this trial now."""
        self._session.post(f"{self._path}/kill")

    def list_checkpoints(
        self,
        sort_by: Union[str, CheckpointSortBy, None] = None,
        order_by: Optional[OrderBy] = None,
        max_results: Optional[int] = None,
    ) -> List[Checkpoint]:
        """Its checkpoints: the best first by the searcher's metric, or as the two say together (AssertionError)."""
        query = checkpoint_query(sort_by, order_by)
        return Checkpoint._all(self._session, query, f"{self._path}/checkpoints", max_results or 0)

    get_checkpoints = list_checkpoints  # its older name

    def top_checkpoint(
        self, sort_by: Optional[str] = None, smaller_is_better: Optional[bool] = None
    ) -> Checkpoint:
        """The best checkpoint. ValueError when there is none."""
        return self._first(sort_by, metric_order(sort_by, smaller_is_better))

    def select_checkpoint(
        self,
        latest: bool = False,
        best: bool = False,
        uuid: Optional[str] = None,
        sort_by: Optional[str] = None,
        smaller_is_better: Optional[bool] = None,
    ) -> Checkpoint:
        """The latest, the best or the named checkpoint: exactly one of the three must be asked for (AssertionError)."""
        if sum([latest, best, uuid is not None]) != 1:
            raise AssertionError("Ask for exactly one of latest, best and uuid.")
        if (sort_by is None) != (smaller_is_better is None) or (sort_by is not None and not best):
            raise AssertionError("sort_by and smaller_is_better must be given together, and only with best.")
        if uuid is not None:
            return Checkpoint(self._session, uuid)._reloaded()
        if latest:
            return self._first(CheckpointSortBy.BATCH_NUMBER, OrderBy.DESC)
        return self._first(sort_by, metric_order(sort_by, smaller_is_better))

    def _first(self, sort_by: Union[str, CheckpointSortBy, None], order_by: Optional[OrderBy]) -> Checkpoint:
        found = self.list_checkpoints(sort_by, order_by, max_results=1)
        if not found:
            raise ValueError(f"Trial {self.id} has no such checkpoint.")
        return found[0]

    def iter_metrics(self, group: str) -> Iterator[TrialMetrics]:
        """What it has reported in a group (training, validation or another), by step."""
        return _metrics.read(self._session, [self.id], group, TrialMetrics)

    stream_metrics = iter_metrics  # its older name

    def stream_training_metrics(self) -> Iterable[TrainingMetrics]:
        """iter_metrics("training"), by an older name."""
        return _metrics.read(self._session, [self.id], "training", TrainingMetrics)

    def stream_validation_metrics(self) -> Iterable[ValidationMetrics]:
        """iter_metrics("validation"), by an older name."""
        return _metrics.read(self._session, [self.id], "validation", ValidationMetrics)

    def get_experiment(self) -> Experiment:
        """The experiment that it belongs to."""
        from trainmaster.experimental._experiment import Experiment

        if self.experiment_id is None:
            self.reload()
        assert self.experiment_id is not None
        return Experiment(self.experiment_id, self._session)._reloaded()

    def get_metadata(self) -> Dict[str, Any]:
        """What the trial has said of itself, as of now."""
        self.reload()
        return self.metadata or {}

    def _is_over(self) -> bool:
        return self._session.get(self._path)["trial"]["state"] not in _GOING_ON

    def _hydrate(self, record: Json) -> None:
        super()._hydrate(record)
        self.state = TrialState(record["state"])

    def __repr__(self) -> str:
        return f"Trial(id={self.id})"


def log_query(
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


def _read_log(
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


def _follow_log(session: Session, path: str, query: Query, is_over: Callable[[], bool]) -> Iterator[Json]:
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
