"""Reports of metrics, as iterated by the Python client."""

from __future__ import annotations

import dataclasses
import re
from datetime import datetime, timezone
from typing import Any, Dict, Iterator, List, Optional, Sequence, Type, TypeVar

from trainmaster.experimental._session import Json, Session

_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(?:Z|\+00:00)")
#: in the dialect a report's values lie under another name where it is a validation
_VALIDATION_KEY, _KEY = "validation_metrics", "avg_metrics"


@dataclasses.dataclass
class TrialMetrics:
    """What one trial reported at one step in one group (`training`, `validation`, or one of its own)."""

    trial_id: int
    trial_run_id: int
    steps_completed: int
    end_time: datetime
    metrics: Dict[str, Any]
    group: str
    batch_metrics: Optional[List[Dict[str, Any]]] = None

    @property
    def total_batches(self) -> int:
        """The older name of steps_completed."""
        return self.steps_completed


class TrainingMetrics(TrialMetrics):
    """A report of the group training; the older name of its type."""


class ValidationMetrics(TrialMetrics):
    """A report of the group validation; the older name of its type."""


Report = TypeVar("Report", bound=TrialMetrics)


def read(session: Session, trial_ids: Sequence[int], group: str, kind: Type[Report]) -> Iterator[Report]:
    """All reports of one group, by trial and step, as they arrive."""
    query = [*(("trialIds", trial_id) for trial_id in trial_ids), ("group", group)]
    for part in session.lines("/api/v1/trials/metrics/trial_metrics", query):
        for report in part["metrics"]:
            yield report_of(report, kind)


def report_of(report: Json, kind: Type[Report]) -> Report:
    """One report as the server sends it."""
    return kind(
        trial_id=report["trialId"],
        trial_run_id=report["trialRunId"],
        steps_completed=report["totalBatches"],
        end_time=moment(report["endTime"]),
        metrics=_values(report["metrics"]),
        group=report["group"],
        batch_metrics=report["metrics"].get("batch_metrics"),
    )


def _values(metrics: Json) -> Json:
    found = metrics.get(_VALIDATION_KEY)
    return dict(metrics[_KEY] if found is None else found)


def moment(text: str) -> datetime:
    """A time of the dialect, with its zone, to the microsecond."""
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError(f"The time {text!r} is not an RFC 3339 time in UTC.")
    whole = datetime.strptime(found[1], "%Y-%m-%dT%H:%M:%S").replace(tzinfo=timezone.utc)
    return whole.replace(microsecond=int((found[2] or "0").ljust(6, "0")[:6]))
