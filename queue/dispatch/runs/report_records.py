"""Reports of training code within a batch of a runner, in order: metrics all at once, the searcher is told of as many
validations as follow each other, the rest one by one."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from django.db import InterfaceError, OperationalError, transaction
from django.utils import timezone

from experiments import metric_reports, reports
from experiments.models import Trial
from experiments.search import Validation
from jobs.models import Member
from logs import store as log_store
from logs.lines import NewLine, blocks_of
from metrics.ingest import Report

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")


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
            _is_metrics(data) and not told for data, told in zip(self._data, self._validations, strict=True)
        ]

    def is_done(self, place: int) -> bool:
        """Is nothing left to do for the record at this place?"""
        return self._done[place]

    def apply(self, place: int) -> None:
        """The record at this place; of metrics, what the searcher has to hear."""
        data = self._data[place]
        if _is_metrics(data):
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

    def _read(self, data: Any) -> Report | None:
        if not _is_metrics(data):
            return None
        try:
            return metric_reports.report_of(self._trial, data)
        except (TypeError, ValueError, OverflowError) as error:
            self._refuse(data, error)
            return None

    def _stored(self, found: list[Report | None]) -> list[Validation | None]:
        def store(some: list[Report | None]) -> list[Validation | None]:
            return metric_reports.store(self._experiment, self._trial, some)

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
        except Exception:
            log.exception("metrics of %s could not be stored together", self._member.run_key)
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
            log.exception("a report of %s could not be applied", self._member.run_key)
            self._undone()
            self._refuse(data, error)
            return None

    def _undone(self) -> None:
        """What was undone in the database must be so in the rows at hand."""
        self._experiment.refresh_from_db()
        self._trial.refresh_from_db()
        self._trial.experiment = self._experiment

    def _refuse(self, data: Any, error: Exception) -> None:
        kind = data.get("type") if isinstance(data, dict) else None
        text = f"[a report of type {kind!r} could not be stored: {type(error).__name__}: {error}]"
        line = NewLine(timezone.now().timestamp(), None, "s", "ERROR", text)
        member = self._member
        log_store.append(member.allocation.task_id, member, member.host.name, blocks_of([line]))


def _is_metrics(data: Any) -> bool:
    return isinstance(data, dict) and data.get("type") == "metrics"


def _object(data: Any) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise TypeError(f"it is {type(data).__name__}, not an object")
    return data
