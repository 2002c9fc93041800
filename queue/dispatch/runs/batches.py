"""One batch of a runner: its records, those that are lines of the log, and what stands in place of unreadable ones.

Reports of training code are applied in order: metrics all at once, the searcher is told of as many validations as
follow each other, the rest one by one.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from django.db import InterfaceError, OperationalError, transaction
from django.utils import timezone
from pydantic_core import from_json

from accounts.refusals import Refusal
from dispatch.runs.log_policies import PolicyMatch
from experiments import metric_reports, reports
from experiments.models import Trial
from experiments.search import Validation
from jobs.models import Member
from logs import store as log_store
from logs.lines import SERVER, STDERR, STDOUT, Block, NewLine, blocks_of
from metrics.columns import Columns, columns_of, count_of, reports_of
from metrics.ingest import Report, parts
from trainmaster import bounded_json
from trainmaster.bounded_json import TooDeep

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")

#: How the runner's lines begin that hold a record as training code wrote it.
_WRITTEN_BY_THE_JOB = (b'{"k":"core"', b'{"k": "core"', b'{"k": "timings"')
#: Limits of all `reports` records of a batch together, above what a runner sends: a few bytes may take much memory.
REPORTS_PER_BATCH = 300_000
TABLES_PER_BATCH = 50_000


@dataclass(frozen=True)
class Batch:
    """What a runner has sent: whole records from byte `offset` of its outbox on, and what of it is log."""

    offset: int
    body: bytes
    records: list[dict[str, Any]]
    blocks: list[Block]
    found: PolicyMatch | None

    @property
    def end(self) -> int:
        return self.offset + len(self.body)

    @property
    def columns(self) -> list[Columns] | None:
        """Its columns of metrics, if it has nothing else."""
        found = [record.get("d") for record in self.records]
        return found if found and all(isinstance(each, Columns) for each in found) else None  # type: ignore[return-value]


def parse(body: bytes) -> list[dict[str, Any]]:
    """The records of a batch: one JSON object a line, the last line complete. Raises Refusal.

    A job can write into its runner's outbox, so a line that is no record stands in the log as what it is, with those
    that follow it: refused, it would hold up the stream for good.
    """
    if body and not body.endswith(b"\n"):
        raise Refusal("The batch ends in the middle of a record; send whole lines.")
    with contextlib.suppress(ValueError):  # costs an eighth of what record by record does
        whole = from_json(b"[" + body[:-1].replace(b"\n", b",") + b"]")
        is_plain = len(whole) == body.count(b"\n") and all(type(record) is dict for record in whole)
        if is_plain and not bounded_json.is_deep([record["d"] for record in whole if _is_written(record)]):
            return _apart(whole)
    records: list[dict[str, Any]] = []
    spoiled = (
        0  # lines in a row that are no records: many may be in a batch, and each would be a line of the log
    )
    for line in [*body.split(b"\n")[:-1], b"{}"]:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            record = left_out(error) if line.startswith(_WRITTEN_BY_THE_JOB) else None
        if isinstance(record, dict):
            if spoiled:
                records.append(left_out(ValueError(f"{spoiled:,} lines of the outbox are not JSON objects")))
            spoiled = 0
            records.append(_without_depth(record) if _is_written(record) else record)
        else:
            spoiled += 1
    return _apart(records[:-1])


def _is_written(record: dict[str, Any]) -> bool:
    """Whether its `d` is what training code wrote. Columns of numbers need no look at their depth."""
    return "d" in record and record.get("k") != "reports"


def _without_depth(record: dict[str, Any]) -> dict[str, Any]:
    return left_out(TooDeep()) if bounded_json.is_deep(record["d"]) else record


def _apart(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The records, with those of columns as records of the SDK. One line says how many tables were refused."""
    found: list[dict[str, Any]] = []
    tables = _Tables()
    for record in records:
        if record.get("k") != "reports":
            found.append(record)
            continue
        was_whole = tables.error is None
        found += tables.read(record.get("d"))
        if was_whole and tables.error:
            refused_at = len(found)
    if tables.error:
        sentence = f"{tables.error} ({tables.refused:,} tables of reports in this batch were left out)"
        found.insert(refused_at, left_out(ValueError(sentence)))
    return found


class _Tables:
    """Reads the tables of one batch, as far as they keep to its limits. `error` says why the first was refused."""

    def __init__(self) -> None:
        self.error: ValueError | None = None
        self.refused = 0
        self._tables, self._reports = TABLES_PER_BATCH, REPORTS_PER_BATCH

    def read(self, data: Any) -> list[dict[str, Any]]:
        """The records of the SDK for those of one record. The tables behind one that is refused are refused with it."""
        tables = data if isinstance(data, list) else [data]
        found: list[dict[str, Any]] = []
        validations: list[dict[str, Any]] = []
        for place, table in enumerate(tables):
            try:
                self._count(table)
                if isinstance(columns := _reports(table), Columns):
                    found.append({"k": "core", "d": columns})
                else:
                    is_told = table.get("group") == metric_reports.VALIDATION
                    (validations if is_told else found).extend({"k": "core", "d": each} for each in columns)
            except ValueError as error:
                self.error = self.error or error
                self.refused += len(tables) - place
                break
        return [
            record if isinstance(record["d"], Columns) else _without_depth(record)
            for record in found + sorted(validations, key=_step)
        ]

    def _count(self, table: Any) -> None:
        """Raise ValueError if this table is beyond a limit; then those behind it are, too."""
        self._tables -= 1
        self._reports -= max(1, count_of(table))
        if self._tables < 0:
            raise ValueError(f"a batch holds more than {TABLES_PER_BATCH:,} tables of reports")
        if self._reports < 0:
            self._tables = 0
            raise ValueError(f"a batch holds more than {REPORTS_PER_BATCH:,} reports in columns")


def _reports(table: Any) -> Columns | list[dict[str, Any]]:
    """A table of numbers as `Columns`, any other and validations report by report. Raises ValueError."""
    columns = columns_of(table)
    # the search hears of each validation
    return columns if columns and columns.group != metric_reports.VALIDATION else reports_of(table)


def _step(record: dict[str, Any]) -> int:
    """The search hears of the validations of a record in the order of their steps, whatever tables they are in."""
    step = record["d"]["steps_completed"]
    return step if type(step) is int else -1


def left_out(error: Exception) -> dict[str, Any]:
    """What stands in the log in place of a record that training code wrote and that must not hold up its stream."""
    sentence = f"[a report could not be read: {str(TooDeep() if isinstance(error, RecursionError) else error)[:500]}]"
    return {
        "k": "lines",
        "t": timezone.now().timestamp(),
        "r": None,
        "s": "stderr",
        "l": [[0, "ERROR"]],
        "m": sentence,
    }


def blocks(records: Sequence[dict[str, Any]]) -> list[Block]:
    """The lines among the records, in their order; a gap stands in the log as what it is."""
    found: list[Block] = []
    lines: list[NewLine] = []
    for record in records:
        match record.get("k"):
            case "lines":
                found += blocks_of(lines)
                lines.clear()
                found.append(_block(record))
            case "log":
                lines.append(_line(record))
            case "gap":
                lines.append(_gap(record))
    return found + blocks_of(lines)


def said(sentence: str) -> list[Block]:
    """A line of the server's own."""
    return blocks_of([NewLine(timezone.now().timestamp(), None, SERVER, "WARNING", sentence)])


def _block(record: dict[str, Any]) -> Block:
    """Lines that were read together. The host wrote them: fields of another form count as not given."""
    levels, cut = record.get("l"), record.get("c")
    try:
        named = [(int(index), str(name)) for index, name in levels] if levels else []
        cut_at = [int(index) for index in cut] if cut else []
    except (TypeError, ValueError):
        named, cut_at = [], []
    return Block(_time(record), record.get("r"), _stream(record), named, cut_at, str(record.get("m", "")))


def _line(record: dict[str, Any]) -> NewLine:
    """The record of a single line, which older runners write."""
    level = record.get("l")
    return NewLine(
        _time(record),
        record.get("r"),
        _stream(record),
        level if isinstance(level, str) else None,
        str(record.get("m", "")),
        bool(record.get("c")),
    )


def _time(record: dict[str, Any]) -> float:
    time = record.get("t")
    return float(time) if isinstance(time, int | float) else 0.0


def _stream(record: dict[str, Any]) -> str:
    return STDERR if record.get("s") == "stderr" else STDOUT


def _gap(record: dict[str, Any]) -> NewLine:
    return NewLine(
        time=timezone.now().timestamp(),
        rank=None,
        stream=SERVER,
        level="WARNING",
        text=f"[{int(record.get('bytes') or 0):,} bytes missing: the spool on the host was full]",
    )


class Reporting:
    """The `core` records of one batch of a trial whose experiment is locked.

    Made, it has stored their metrics. One that cannot be applied is named in the log and left behind: it never blocks
    its stream.
    """

    def __init__(self, trial: Trial, member: Member, records: Sequence[Mapping[str, Any]]) -> None:
        self._experiment, self._trial, self._member = trial.experiment, trial, member
        self._data: list[Any] = [record.get("d") if record["k"] == "core" else {} for record in records]
        found = [self._read(data) for data in self._data]
        self._validations = self._stored(found)
        #: a report that was stored has only its searcher to tell, one that cannot be read nobody
        self._done = [
            is_metrics(data) and not told for data, told in zip(self._data, self._validations, strict=True)
        ]

    def left(self) -> Iterator[int]:
        """The places of records for which something is left to do, as long as it is."""
        for place, done in enumerate(self._done.copy()):
            if not done and not self._done[place]:
                yield place

    def apply(self, place: int) -> None:
        """The record at this place; of metrics, what the searcher has to hear."""
        data = self._data[place]
        if is_metrics(data):
            self._tell(self._following(place))
        else:
            self._tried(
                data, lambda: reports.apply(self._experiment, self._trial, self._member, _object(data))
            )

    def _following(self, place: int) -> list[int]:
        """The places of this validation and of those after it, as far as no record of another kind stands between."""
        found = []
        for at in range(place, len(self._data)):
            if self._validations[at]:
                found.append(at)
            elif not self._done[at]:
                break
        return found

    def _tell(self, places: Sequence[int]) -> None:
        def tell(some: Sequence[int]) -> None:
            validations = [each for at in some if (each := self._validations[at])]
            metric_reports.tell(self._experiment, self._trial, validations)

        for at in places:
            self._done[at] = True
        if not self._together(lambda: tell(places)):
            for at in places:
                self._tried(self._data[at], lambda at=at: tell([at]))  # type: ignore[misc]

    def _read(self, data: Any) -> Report | Columns | None:
        if isinstance(data, Columns):
            return data
        if not is_metrics(data):
            return None
        try:
            return metric_reports.report_of(self._trial, data)
        except (TypeError, ValueError, OverflowError) as error:
            self._refuse(data, error)
            return None

    def _stored(self, found: list[Report | Columns | None]) -> list[Validation | None]:
        def store(some: list[Report | Columns | None]) -> list[Validation | None]:
            return [
                validation
                for part in parts(some)
                for validation in metric_reports.store(self._experiment, self._trial, part)
            ]

        together: list[Validation | None] = []
        if self._together(lambda: together.extend(store(found))):
            return together
        alone: list[Validation | None] = []
        for data, report in zip(self._data, found, strict=True):
            told = self._tried(data, lambda report=report: store([report])) if report else None  # type: ignore[misc]
            alone += told or [None]
        return alone

    def _together(self, action: Callable[[], None]) -> bool:
        """False: one of several must be odd in a way of its own; nothing is done, and it alone is to be left behind."""
        try:
            with transaction.atomic():
                action()
        except (OperationalError, InterfaceError):
            raise
        except Exception as error:
            _log(error, "metrics of %s could not be stored together", self._member.run_key)
            self._undone()
            return False
        return True

    def _tried(self, data: Any, action: Callable[[], Answer]) -> Answer | None:
        try:
            with transaction.atomic():
                return action()
        except (OperationalError, InterfaceError):
            raise  # the database is away or chose this transaction to break a deadlock: the runner sends it again
        except Exception as error:  # whatever a training script may have written
            _log(error, "a report of %s could not be applied", self._member.run_key)
            self._undone()
            self._refuse(data, error)
            return None

    def _undone(self) -> None:
        """What was undone in the database must be so in the rows at hand."""
        self._experiment.refresh_from_db()
        self._trial.refresh_from_db()
        self._trial.experiment = self._experiment

    def _refuse(self, data: Any, error: Exception) -> None:
        kind = "metrics" if is_metrics(data) else data.get("type") if isinstance(data, dict) else None
        text = f"[a report of type {kind!r} could not be stored: {type(error).__name__}: {error}]"
        line = NewLine(timezone.now().timestamp(), None, "s", "ERROR", text)
        member = self._member
        log_store.append(member.allocation.task_id, member, member.host.name, blocks_of([line]))


def _log(error: Exception, text: str, run_key: str) -> None:
    """A refused value is the training code's fault and stands in its log; anything else may be ours."""
    log.warning(text, run_key, exc_info=not isinstance(error, ValueError))


def is_metrics(data: Any) -> bool:
    """Whether the `d` of a record are reports of metrics, or one."""
    return isinstance(data, Columns) or (isinstance(data, dict) and data.get("type") == "metrics")


def _object(data: Any) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise TypeError(f"it is {type(data).__name__}, not an object")
    return data
