"""What came out of an experiment: trials, checkpoints, validations, labels."""

from __future__ import annotations

from rest_framework.request import Request

from accounts.rights import Right
from experiments import counts, edits
from experiments.metric_reports import better
from experiments.models import Checkpoint, LabelCount
from metrics import reported
from metrics.values import number
from shown import trials as shown_trials
from webui.api import encoding
from webui.api.answers import Answer, Pagination, Time
from webui.api.authentication import own_experiments
from webui.api.checkpoint_encoding import CheckpointsAnswer, CheckpointsQuery, page_of
from webui.api.errors import Missing
from webui.api.experiments import find
from webui.api.permissions import actor, person, require_owner
from webui.api.trial_encoding import TRIAL_SORT, TrialRecord, TrialsQuery, encode_trial
from webui.api.views import ApiView
from webui.query import as_id


class TrialsAnswer(Answer):
    trials: list[TrialRecord]
    pagination: Pagination


class ExperimentTrials(ApiView):
    """The trials of an experiment."""

    rights = {"GET": Right.READ}
    queries = {"GET": TrialsQuery}

    def get(self, request: Request, experiment_id: int) -> TrialsAnswer:
        find(experiment_id)
        query = self.query(request)
        rows = shown_trials.in_states(
            shown_trials.whole().filter(experiment_id=experiment_id), query.get("states")
        )
        rows = rows.order_by(*encoding.ordering(query, TRIAL_SORT, "id", tie="id"))
        return encoding.page(TrialsAnswer, rows, query, encode_trial)


class ExperimentCheckpoints(ApiView):
    """The checkpoints of all trials of an experiment."""

    rights = {"GET": Right.READ}
    queries = {"GET": CheckpointsQuery}

    def get(self, request: Request, experiment_id: int) -> CheckpointsAnswer:
        experiment = find(experiment_id)
        rows = Checkpoint.objects.filter(trial__experiment_id=experiment_id)
        return page_of(rows, experiment, self.query(request))


class BestSoFar(Answer):
    trial_id: int
    end_time: Time
    searcher_metric: float


class HistoryAnswer(Answer):
    validation_history: list[BestSoFar]


class ValidationHistory(ApiView):
    """Each validation that was better than all earlier ones."""

    rights = {"GET": Right.READ}

    def get(self, request: Request, experiment_id: int) -> HistoryAnswer:
        experiment = find(experiment_id)
        metric, smaller = experiment.searcher_metric, experiment.smaller_is_better
        trials = list(experiment.trials.values_list("pk", flat=True))
        reports = reported.read(trials, ["validation"], [metric])
        entries: list[BestSoFar] = []
        best: float | None = None
        for report in sorted(reports, key=lambda report: report.reported_at):
            value = number(report.values.get(metric))
            if value is None or value != value or (best is not None and not better(value, best, smaller)):
                continue
            best = value
            entries.append(
                BestSoFar(trial_id=report.trial_id, end_time=report.reported_at, searcher_metric=value)
            )
        return HistoryAnswer(validation_history=entries)


class MetricAnswer(Answer):
    metric: float


class BestMetric(ApiView):
    """The best value of the searcher's metric so far; 404 when there is none."""

    rights = {"GET": Right.READ | Right.RUN}

    def get(self, request: Request, experiment_id: int) -> MetricAnswer:
        own_experiments(request.user, experiment_id)
        experiment = find(experiment_id)
        if experiment.best_metric is None:
            raise Missing(f"experiment {experiment_id} has no validation with its searcher's metric yet")
        return MetricAnswer(metric=experiment.best_metric)


class LabelsAnswer(Answer):
    labels: list[str]


class AllLabels(ApiView):
    """All labels in use, most used first."""

    rights = {"GET": Right.READ}

    def get(self, request: Request) -> LabelsAnswer:
        rows = LabelCount.objects.all()
        if project := request.query_params.get("projectId"):
            rows = rows.filter(project_id=as_id(project))
        return LabelsAnswer(labels=counts.labels(rows))


class ExperimentLabel(ApiView):
    """Add a label to an experiment, or remove it."""

    rights = {"PUT": Right.EDIT, "DELETE": Right.EDIT}

    def put(self, request: Request, experiment_id: int, label: str) -> LabelsAnswer:
        return self._change(request, experiment_id, label, True)

    def delete(self, request: Request, experiment_id: int, label: str) -> LabelsAnswer:
        return self._change(request, experiment_id, label, False)

    def _change(self, request: Request, experiment_id: int, label: str, there: bool) -> LabelsAnswer:
        experiment = find(experiment_id)
        require_owner(person(request), experiment)
        others = [known for known in experiment.labels if known != label]
        wanted = [*others, label] if there else others
        labels = edits.edit(experiment_id, labels=wanted, actor=actor(request)).labels
        return LabelsAnswer(labels=labels)
