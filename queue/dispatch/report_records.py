"""Reports of training code within a batch of a runner: metrics all at once, the rest one by one, in order."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from django.db import InterfaceError, OperationalError, transaction
from django.utils import timezone

from experiments import metric_reports, reports
from experiments.metric_reports import Validation
from experiments.models import Trial
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
        #: a report that was stored has only its searcher to tell
        self._done = [
            bool(report) and not told for report, told in zip(found, self._validations, strict=True)
        ]

    def is_done(self, place: int) -> bool:
        """Is nothing left to do for the record at this place?"""
        return self._done[place]

    def apply(self, place: int) -> None:
        """The record at this place; of metrics, what the searcher has to hear."""
        data, validation = self._data[place], self._validations[place]
        if _is_metrics(data):
            if validation:
                self._tried(data, lambda: metric_reports.tell(self._experiment, self._trial, validation))
        else:
            self._tried(
                data, lambda: reports.apply(self._experiment, self._trial, self._member, _object(data))
            )

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

        try:
            with transaction.atomic():
                return store(found)
        except (OperationalError, InterfaceError):
            raise
        except Exception:  # one of them must be odd in a way of its own: it alone is left behind
            log.exception("metrics of %s could not be stored together", self._member.run_key)
            self._undone()
        alone: list[Validation | None] = []
        for data, report in zip(self._data, found, strict=True):
            told = self._tried(data, lambda report=report: store([report])) if report else None  # type: ignore[misc]
            alone += told or [None]
        return alone

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
