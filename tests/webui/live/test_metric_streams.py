"""Streams of metrics over HTTP: what they say once and then each period, until the experiment has ended."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Iterator
from http.client import HTTPResponse
from typing import Any
from urllib.error import HTTPError

import pytest

from accounts.models import LoginToken
from experiments.models import Experiment, Trial
from experiments.states import ExperimentState
from metrics import ingest
from tests.rig.web import Web
from tests.rig.world import make_host, make_user, submit_experiment, trial_of

pytestmark = pytest.mark.django_db(transaction=True)
AT = 1_790_000_000.0
LIMIT_SECONDS = 60
Json = dict[str, Any]


def opened(web: Web, path: str) -> HTTPResponse:
    token = LoginToken.issue(make_user())
    request = urllib.request.Request(f"{web.url}/api/v1/{path}", headers={"Authorization": f"Bearer {token}"})
    answer: HTTPResponse = urllib.request.urlopen(request, timeout=LIMIT_SECONDS)
    return answer


def records(answer: HTTPResponse) -> Iterator[Json]:
    for line in answer:
        yield json.loads(line)["result"]


def only(web: Web, path: str) -> Json:
    """The one answer about experiments that have ended."""
    with opened(web, path) as answer:
        (record,) = records(answer)
        return record


def report(
    trial: Trial, group: str, steps: list[int], values: list[float], run: int = 1, **more: Any
) -> None:
    rows = [
        ingest.Report(run, group, step, AT + step, {"loss": value, **more})
        for step, value in zip(steps, values, strict=True)
    ]
    ingest.store(trial.pk, rows)


def end(experiment: Experiment) -> None:
    Experiment.objects.filter(pk=experiment.pk).update(state=ExperimentState.COMPLETED)


def more_trials(experiment: Experiment, count: int) -> list[Trial]:
    """The experiment's own trial, and others beside it."""
    tasks = [
        experiment.job.tasks.create(id=f"more-{number}", kind="TRIAL", name="t", slots=1)
        for number in range(count)
    ]
    others = [
        Trial.objects.create(experiment=experiment, task=task, seed=1, hparams={"lr": number})
        for number, task in enumerate(tasks)
    ]
    return [experiment.trials.order_by("pk")[0], *others]


@pytest.fixture
def experiment() -> Experiment:
    """An experiment that minimizes `loss`."""
    make_host("gpu1", slots=1)
    return submit_experiment()


def test_names_are_told_by_group_and_by_the_two_kinds_of_older_clients(
    web: Web, experiment: Experiment
) -> None:
    trial = trial_of(experiment)
    report(trial, "training", [1], [0.5], rate=0.1)
    report(trial, "validation", [1], [0.5])
    report(trial, "own", [1], [0.5])
    end(experiment)
    assert only(web, f"experiments/metrics-stream/metric-names?ids={experiment.pk}") == {
        "searcherMetrics": ["loss"],
        "trainingMetrics": ["loss", "rate"],
        "validationMetrics": ["loss"],
        "metricNames": [
            {"group": "own", "name": "loss"},
            {"group": "training", "name": "loss"},
            {"group": "training", "name": "rate"},
            {"group": "validation", "name": "loss"},
        ],
    }


@pytest.mark.parametrize(
    "names", ["metricName periodSeconds metricType", "metric_name period_seconds metric_type"]
)
def test_steps_of_all_trials_are_told_once(web: Web, experiment: Experiment, names: str) -> None:
    one, two = more_trials(experiment, 1)
    report(one, "training", [10, 20], [1, 1])
    report(two, "training", [20, 30], [1, 1])
    metric, period, kind = names.split()
    stream = f"experiments/{experiment.pk}/metrics-stream/batches?{metric}=loss&{period}=1"
    with opened(web, f"{stream}&{kind}=METRIC_TYPE_TRAINING") as answer:
        told = records(answer)
        assert next(told) == {"batches": [10, 20, 30]}
        report(one, "training", [40], [1])
        end(experiment)
        rest = list(told)
    assert [step for record in rest for step in record["batches"]] == [40]


def test_a_snapshot_takes_the_nearest_report_within_the_margin(web: Web, experiment: Experiment) -> None:
    one, two, three = more_trials(experiment, 2)
    report(one, "validation", [80, 95, 105], [8, 9, 10])
    report(two, "validation", [50, 91], [5, float("nan")])
    report(three, "validation", [50], [5])
    end(experiment)
    stream = f"experiments/{experiment.pk}/metrics-stream/trials-snapshot?metricName=loss&group=validation"
    assert only(web, f"{stream}&batchesProcessed=100&batchesMargin=10")["trials"] == [
        {"trialId": one.pk, "hparams": {}, "metric": 10.0, "batchesProcessed": 105},
        {"trialId": two.pk, "hparams": {"lr": 0}, "metric": "NaN", "batchesProcessed": 91},
    ]


def test_a_sample_tells_what_is_new_of_the_best_trials_and_who_came_and_left(
    web: Web, experiment: Experiment
) -> None:
    one, two, three = more_trials(experiment, 2)
    for trial, best in ((one, 0.3), (two, 0.1), (three, 0.2)):
        Trial.objects.filter(pk=trial.pk).update(best_validation={"searcher_metric": best})
        report(trial, "training", [1, 2], [best, best / 2])
    stream = f"experiments/{experiment.pk}/metrics-stream/trials-sample?metricName=loss&group=training"
    with opened(web, f"{stream}&maxTrials=2&periodSeconds=1") as answer:
        told = records(answer)
        first = next(told)
        assert first["promotedTrials"] == [two.pk, three.pk] and first["demotedTrials"] == []
        assert [row["trialId"] for row in first["trials"]] == [two.pk, three.pk]
        assert [(point["batches"], point["values"]) for point in first["trials"][0]["data"]] == [
            (1, {"loss": 0.1}),
            (2, {"loss": 0.05}),
        ]
        assert first["trials"][0]["data"][0]["time"].endswith("Z")
        report(two, "training", [3], [0.01])
        Trial.objects.filter(pk=one.pk).update(best_validation={"searcher_metric": 0.05})
        end(experiment)
        last = list(told)[-1]
    assert last["promotedTrials"] == [one.pk] and last["demotedTrials"] == [three.pk]
    news = {row["trialId"]: [point["batches"] for point in row["data"]] for row in last["trials"]}
    assert news == {one.pk: [1, 2], two.pk: [3]}


def test_a_long_curve_is_reduced_to_what_was_asked_for_with_its_extremes(
    web: Web, experiment: Experiment
) -> None:
    values = [0.5] * 5000
    values[1234] = 77.0
    report(trial_of(experiment), "training", list(range(1, 5001)), values)
    end(experiment)
    stream = f"experiments/{experiment.pk}/metrics-stream/trials-sample?metricName=loss&group=training"
    (trial,) = only(web, f"{stream}&maxDatapoints=50&startBatches=1000&endBatches=2000")["trials"]
    assert len(trial["data"]) <= 50
    assert trial["data"][0]["batches"] == 1000 and trial["data"][-1]["batches"] == 2000
    assert (1235, 77.0) in [(point["batches"], point["values"]["loss"]) for point in trial["data"]]


def test_a_stream_goes_on_until_the_experiment_has_ended(web: Web, experiment: Experiment) -> None:
    with opened(
        web, f"experiments/metrics-stream/metric-names?ids={experiment.pk}&periodSeconds=1"
    ) as answer:
        told = records(answer)
        begun = time.monotonic()
        assert next(told)["metricNames"] == []
        report(trial_of(experiment), "training", [1], [0.5])
        assert next(told)["trainingMetrics"] == ["loss"]
        assert time.monotonic() - begun > 0.9
        end(experiment)
        assert len(list(told)) <= 2


def test_all_reports_of_a_group_are_streamed_with_their_runs(web: Web, experiment: Experiment) -> None:
    trial = trial_of(experiment)
    report(trial, "training", list(range(1, 2501)), [1.0] * 2500)
    report(trial, "training", [2501], [float("inf")], run=2)
    report(trial, "validation", [5], [0.5])
    with opened(web, f"trials/metrics/training_metrics?trialIds={trial.pk}") as answer:
        lines = list(records(answer))
    assert len(lines) > 1
    reports = [row for line in lines for row in line["metrics"]]
    assert [row["totalBatches"] for row in reports] == list(range(1, 2502))
    assert len({row["id"] for row in reports}) == 2501
    assert (reports[0]["trialRunId"], reports[-1]["trialRunId"]) == (1, 2)
    assert reports[-1]["metrics"] == {"avg_metrics": {"loss": "Infinity"}}
    (line,) = records(opened(web, f"trials/metrics/trial_metrics?trialIds={trial.pk}&group=validation"))
    assert line["metrics"][0]["metrics"] == {"validation_metrics": {"loss": 0.5}}


@pytest.mark.parametrize(
    ("path", "status", "sentence"),
    [
        ("experiments/metrics-stream/metric-names", 400, "ids: missing"),
        ("experiments/metrics-stream/metric-names?ids=x", 400, "ids is 'x'"),
        ("experiments/metrics-stream/metric-names?ids=999999", 404, "experiment 999999 not found"),
        ("experiments/999999/metrics-stream/batches?metricName=loss&group=training", 404, "not found"),
        ("experiments/1/metrics-stream/batches?metricName=loss", 400, "metricName and group"),
        (
            "experiments/1/metrics-stream/trials-snapshot?metricName=a&group=b",
            400,
            "batchesProcessed is missing",
        ),
        ("experiments/1/metrics-stream/trials-sample?metricName=a&group=b&maxTrials=-1", 400, "'-1'"),
        ("trials/metrics/trial_metrics?trialIds=1", 400, "group: is missing"),
        ("trials/metrics/training_metrics", 400, "trialIds: missing"),
        ("trials/metrics/training_metrics?trialIds=999999", 404, "trial 999999 not found"),
    ],
)
def test_a_wrong_question_is_answered_with_a_sentence(
    web: Web, path: str, status: int, sentence: str
) -> None:
    with pytest.raises(HTTPError) as refused:
        opened(web, path)
    assert refused.value.code == status
    assert sentence in json.loads(refused.value.read())["message"]
