"""Trials: their state, their work, their curves, and what their runs report over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import transaction
from django.utils import timezone
from rest_framework import serializers
from rest_framework.request import Request

from accounts.rights import Right
from dispatch.runs import detached
from events.models import Event
from events.prepared import Prepared
from events.record import record
from experiments import metric_reports, outcomes, reports, transitions
from experiments.models import Checkpoint, Trial
from jobs.models import Allocation
from metrics import profiler_batches
from metrics.ingest import Report
from shown import trials as shown_trials
from webui.api.answers import Answer
from webui.api.checkpoint_encoding import CheckpointsAnswer, CheckpointsQuery, page_of
from webui.api.errors import BadRequest, Missing
from webui.api.permissions import actor, person, require_owner
from webui.api.trial_encoding import TrialRecord, encode_trial
from webui.api.views import ApiView


def find(request: Request, trial_id: int) -> Any:
    """The trial with its numbers; to a run, its own alone. Raises Missing."""
    return _seen_by(request, trial_id, shown_trials.one.find(trial_id))


def _seen_by(request: Request, trial_id: int, trial: Trial | None) -> Trial:
    who: Any = request.user
    if trial is None or (isinstance(who, Allocation) and who.task_id != trial.task_id):
        raise Missing(f"trial {trial_id} not found")
    return trial


def find_own(request: Request, trial_id: int) -> Any:
    """The trial for its run, and for its owner. Raises Missing, Forbidden."""
    return _own(request, find(request, trial_id))


def find_to_report(request: Request, trial_id: int) -> Trial:
    """The trial for whoever reports of it: its run, or its owner; of a detached run that is a sign of life."""
    trial = _own(request, _seen_by(request, trial_id, _to_report.find(trial_id)))
    if trial.experiment.unmanaged and not isinstance(request.user, Allocation):
        detached.noted(trial)
    return trial


_to_report = Prepared(
    lambda: detached.with_first_member(
        transitions.read_to_report(Trial.objects.select_related("experiment__owner")).only(
            *transitions.REPORTED, "early_exit", "experiment__owner__username"
        )
    )
)
_alive = Prepared(lambda: detached.with_first_member(shown_trials.whole()))


def _own(request: Request, trial: Trial) -> Trial:
    if not isinstance(request.user, Allocation):
        require_owner(person(request), trial.experiment)
    return trial


@contextmanager
def reporting(request: Request, trial_id: int, what: str) -> Iterator[Any]:
    """One transaction for a report of the trial. Raises Missing, Forbidden."""
    trial = find_to_report(request, trial_id)
    with transaction.atomic():
        yield trial
        note_report(request, trial, what)


@contextmanager
def reporting_locked(request: Request, trial_id: int, what: str) -> Iterator[Trial]:
    """As `reporting`, with the trial as `transitions.lock_to_report` gives it: of a run that is all that is read."""
    if not isinstance(request.user, Allocation):
        find_to_report(request, trial_id)
    with _locked(request, trial_id, what) as trial:
        yield trial


@contextmanager
def _locked(request: Request, trial_id: int, what: str) -> Iterator[Trial]:
    who: Any = request.user
    is_run = isinstance(who, Allocation)
    with transaction.atomic():
        trial = transitions.lock_of_run(who) if is_run else transitions.lock_to_report(trial_id)
        if trial is None or trial.pk != trial_id:
            raise Missing(f"trial {trial_id} not found")
        yield trial
        note_report(request, trial, what)


def note_report(request: Request, trial: Trial, what: str) -> None:
    """Leave an event of what a person reports of a trial of the queue.

    A detached run reports of itself with the login of its user.
    """
    if not isinstance(request.user, Allocation) and not trial.experiment.unmanaged:
        record(
            Event.Kind.TRIAL, trial.pk, reason=what, actor=actor(request), experiment_id=trial.experiment_id,
            task_id=trial.task_id,
        )  # fmt: skip


class TrialPatch(serializers.Serializer[Any]):
    trialId = serializers.IntegerField(required=False)
    state = serializers.CharField(required=False, allow_null=True)


class TrialAnswer(Answer):
    trial: TrialRecord


class OneTrial(ApiView):
    """One trial. For a detached trial, PATCH reports that it is alive (no state), running or ended."""

    rights = {"GET": Right.READ | Right.RUN, "PATCH": Right.EDIT}
    polled = frozenset({"GET", "PATCH"})
    reads = {"GET": (shown_trials.one, "trial_id"), "PATCH": (_alive, "trial_id")}
    bodies = {"PATCH": TrialPatch}

    def get(self, request: Request, trial_id: int) -> TrialAnswer:
        return TrialAnswer(trial=encode_trial(find(request, trial_id)))

    def patch(self, request: Request, trial_id: int) -> TrialAnswer:
        state = (self.body(request).get("state") or "").removeprefix("STATE_")
        trial: Any = _own(request, _seen_by(request, trial_id, _alive.find(trial_id)))
        is_changed = bool(state) or (trial.experiment.unmanaged and detached.noted(trial))
        if not trial.experiment.unmanaged:
            raise BadRequest(f"trial {trial_id} is run by the queue, so its state cannot be set.")
        if state in {"RUNNING", "ACTIVE"}:
            detached.set_running(trial_id)
        elif state in {"COMPLETED", "ERROR"}:
            detached.set_ended(trial_id, completed=state == "COMPLETED")
        elif state not in {"", "UNSPECIFIED"}:
            raise BadRequest(f"state is {state!r}; allowed: STATE_RUNNING, STATE_COMPLETED, STATE_ERROR.")
        return TrialAnswer(trial=encode_trial(find(request, trial_id) if is_changed else trial))


class TrialKill(ApiView):
    """Kill a trial. An ended one is left unchanged."""

    rights = {"POST": Right.EDIT}

    def post(self, request: Request, trial_id: int) -> None:
        require_owner(person(request), find(request, trial_id).experiment)
        outcomes.kill_trial(trial_id, actor=actor(request))


class TrialCheckpoints(ApiView):
    """The checkpoints of one trial."""

    rights = {"GET": Right.READ | Right.RUN}
    queries = {"GET": CheckpointsQuery}

    def get(self, request: Request, trial_id: int) -> CheckpointsAnswer:
        trial = find(request, trial_id)
        rows = Checkpoint.objects.filter(trial_id=trial_id)
        return page_of(rows, trial.experiment, self.query(request))


class ReportedMetrics(serializers.Serializer[Any]):
    trialId = serializers.IntegerField(required=False)
    trialRunId = serializers.IntegerField(required=False)
    stepsCompleted = serializers.IntegerField(required=False, min_value=0, allow_null=True)
    totalBatches = serializers.IntegerField(required=False, min_value=0, allow_null=True)
    reportTime = serializers.DateTimeField(required=False, allow_null=True)
    metrics = serializers.DictField()


class ReportBody(serializers.Serializer[Any]):
    group = serializers.CharField(max_length=128, required=False, default="training")
    metrics = ReportedMetrics()


class TrialMetrics(ApiView):
    """A run reports metrics of a group at a step."""

    rights = {"POST": Right.EDIT | Right.RUN}
    polled = frozenset({"POST"})
    reads = {"POST": (_to_report, "trial_id")}
    bodies = {"POST": ReportBody}

    def post(self, request: Request, trial_id: int) -> None:
        body = self.body(request)
        store_report(request, trial_id, body["group"], body["metrics"])


class TrialMetricsOfGroup(ApiView):
    """A run of an older client reports metrics; the path has the group."""

    rights = {"POST": Right.EDIT | Right.RUN}
    polled = frozenset({"POST"})
    reads = {"POST": (_to_report, "trial_id")}
    bodies = {"POST": ReportedMetrics}
    group = "training"

    def post(self, request: Request, trial_id: int) -> None:
        store_report(request, trial_id, self.group, self.body(request))


def store_report(request: Request, trial_id: int, group: str, report: dict[str, Any]) -> None:
    """Take in one report. `metrics` has `avgMetrics`; values per batch are not kept.

    What the published SDK's profiler has measured of its host comes without a step and belongs to the host's samples.
    """
    trial, values = find_to_report(request, trial_id), report["metrics"].get("avgMetrics")
    if not isinstance(values, dict):
        raise BadRequest("metrics.avgMetrics: a map of names to numbers is required.")
    data = {**report, "group": group, "values": values, "at": report.get("reportTime") or timezone.now()}
    with _refused():
        is_alone = trial.experiment.unmanaged or isinstance(request.user, Allocation)
        if is_alone and not _is_profiled(data) and metric_reports.store_alone(trial, _report_of(trial, data)):
            return
    with _locked(request, trial_id, "metrics_reported") as trial:
        _store(trial, data)


def _is_profiled(data: dict[str, Any]) -> bool:
    return data.get("stepsCompleted") is None and data["group"] in profiler_batches.GROUPS


def _store(trial: Trial, data: dict[str, Any]) -> None:
    if _is_profiled(data):
        try:
            with transaction.atomic():
                profiler_batches.store_group(trial.task_id, data["values"], data["at"].timestamp())
        except ValueError as error:
            raise BadRequest(f"metrics.avgMetrics: {error}") from error
        return
    with _refused():
        (validation,) = metric_reports.store(trial.experiment, trial, [_report_of(trial, data)])
    if validation:
        metric_reports.tell(trial.experiment, trial, [validation])


def _report_of(trial: Trial, data: dict[str, Any]) -> Report:
    steps = data.get("stepsCompleted")
    return metric_reports.report_of(
        trial,
        {
            "group": data["group"],
            "steps_completed": steps if steps is not None else data.get("totalBatches") or 0,
            "metrics": data["values"],
            "run_id": data.get("trialRunId") or trial.run_id,
            "t": data["at"].timestamp(),
        },
    )


@contextmanager
def _refused() -> Iterator[None]:
    try:
        yield
    except (TypeError, ValueError, OverflowError) as error:
        raise BadRequest(f"The report cannot be stored: {error}.") from error


class ProgressBody(serializers.Serializer[Any]):
    progress = serializers.FloatField(min_value=0)
    is_raw = serializers.BooleanField(required=False, default=False)
    isRaw = serializers.BooleanField(required=False, default=False)


class TrialProgress(ApiView):
    """A run reports its progress, from 0 to 1, whether it calls that raw or not; other numbers change nothing."""

    rights = {"POST": Right.EDIT | Right.RUN}
    polled = frozenset({"POST"})
    bodies = {"POST": ProgressBody}

    def post(self, request: Request, trial_id: int) -> None:
        with reporting_locked(request, trial_id, "progress_reported") as row:
            reports.progress_reported(row.experiment, row, self._number(request))

    def _number(self, request: Request) -> float:
        # Determined's clients send a bare number, or an object
        if isinstance(request.data, (int, float)) and not isinstance(request.data, bool):
            return float(request.data)
        return float(self.body(request)["progress"])


class EarlyExitBody(serializers.Serializer[Any]):
    reason = serializers.CharField(max_length=64)


class EarlyExit(ApiView):
    """A run reports why it ends early. The first reason is kept."""

    rights = {"POST": Right.EDIT | Right.RUN}
    bodies = {"POST": EarlyExitBody}

    def post(self, request: Request, trial_id: int) -> None:
        sent = self.body(request)["reason"]
        reason = sent.removeprefix("EXITED_REASON_").removeprefix("EARLY_EXIT_REASON_")
        with reporting(request, trial_id, "early_exit_reported") as trial:
            if not Trial.objects.filter(pk=trial_id, early_exit="").update(early_exit=reason[:32]):
                raise BadRequest(f"trial {trial_id} has already reported why it ends: {trial.early_exit}")


class RunnerStateBody(serializers.Serializer[Any]):
    state = serializers.CharField(allow_blank=True, max_length=255)


class RunnerMetadata(ApiView):
    """What a run is doing, in a word or two, shown on pages."""

    rights = {"POST": Right.EDIT | Right.RUN}
    polled = frozenset({"POST"})
    bodies = {"POST": RunnerStateBody}

    def post(self, request: Request, trial_id: int) -> None:
        state = self.body(request)["state"]
        with reporting(request, trial_id, "state_reported"):
            Trial.objects.filter(pk=trial_id).update(runner_state=state)
