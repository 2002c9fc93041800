"""Searches of runs with the dialect's filters and orders, and what is asked of runs at once."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from experiments.models import Experiment, Trial
from experiments.states import ExperimentState, TrialState
from shown import run_search
from tests.rig.api import CONFIG, Cast, Json

Submit = Callable[..., Json]

SWEEP = """
name: sweep
description: of the rate
labels: [night]
entrypoint: python3 train.py
searcher: {name: random, metric: loss, max_trials: 3, max_length: {batches: 10}}
hyperparameters: {lr: {type: double, minval: 0.1, maxval: 0.2}, net: {width: 8}}
"""
RUN, HPARAM = "LOCATION_TYPE_RUN", "LOCATION_TYPE_RUN_HYPERPARAMETERS"
METRIC, METADATA = "LOCATION_TYPE_CUSTOM_METRIC", "LOCATION_TYPE_RUN_METADATA"


def field(name: str, operator: str, value: Any = None, location: str | None = RUN, kind: str = "") -> Json:
    found: Json = {
        "kind": "field",
        "columnName": name,
        "operator": operator,
        "value": value,
        "location": location,
    }
    return found | ({"type": f"COLUMN_TYPE_{kind}"} if kind else {})


def group(conjunction: str, *children: Json) -> Json:
    return {"kind": "group", "conjunction": conjunction, "children": list(children)}


def asked(root: Json, *, show_archived: bool = False) -> str:
    return json.dumps({"filterGroup": root, "showArchived": show_archived})


@pytest.fixture
def runs(cast: Cast, submit: Submit) -> list[int]:
    """Three runs of a sweep, then one of an experiment with one trial; with what they reported."""
    sweep, single = submit(config=SWEEP)["id"], submit(config=CONFIG)["id"]
    found = [*Trial.objects.filter(experiment=sweep).order_by("pk"), Trial.objects.get(experiment=single)]
    for at, trial in enumerate(found):
        trial.hparams |= {"lr": 0.1 * (at + 1), "net": {"width": 8 if at else "wide"}, "warm": at == 1}
        trial.searcher_metric = 1.0 - 0.1 * at
        trial.metadata = {"note": ["first try", "", "Second"][at]} if at < 3 else {}
        trial.summary_metrics = {
            "avg_metrics": {
                "loss": {"count": 2, "sum": at * 2.0, "min": at - 1.0, "max": at + 1.0, "last": float(at)}
            },
        }
        trial.save()
    return [trial.pk for trial in found]


def ids(cast: Cast, **body: Any) -> list[int]:
    return [run["id"] for run in cast.vic.post("runs", body)["runs"]]


def test_a_run_has_what_a_table_of_runs_shows(cast: Cast, runs: list[int]) -> None:
    answer = cast.vic.post("runs", {"projectId": 1, "limit": 1, "offset": 1})
    assert answer["pagination"] == {"offset": 1, "limit": 1, "startIndex": 1, "endIndex": 2, "total": 4}
    (run,) = answer["runs"]
    assert (run["id"], run["state"], run["labels"]) == (runs[1], "STATE_QUEUED", ["night"])
    assert run["localId"].endswith(f"-{runs[1]}") and run["endTime"] is None
    assert run["hyperparameters"]["net"] == {"width": 8} and run["metadata"] == {"note": ""}
    assert run["experiment"]["isMultitrial"] and run["experiment"]["searcherType"] == "random"
    assert "forkedFrom" not in run["experiment"]


@pytest.mark.parametrize(
    ("root", "expected"),
    [
        (field("experimentName", "contains", "SWE"), [0, 1, 2]),
        (field("experimentName", "notContains", "swe"), [3]),
        (field("name", "=", "digits", location=None), [3]),
        (field("tags", "contains", "night"), [0, 1, 2]),
        (field("tags", "isEmpty"), [3]),
        (field("experimentDescription", "notEmpty"), [0, 1, 2]),
        (field("isExpMultitrial", "=", True), [0, 1, 2]),
        (field("state", "=", "STATE_QUEUED"), [0, 1, 2, 3]),
        (field("state", "!=", "ACTIVE"), []),
        (field("searcherMetricsVal", "<=", 0.8), [2, 3]),
        (field("startTime", ">", "2020-01-01T00:00:00Z"), [0, 1, 2, 3]),
        (field("startTime", "<", "2020-01-01"), []),
        (field("endTime", "isEmpty"), [0, 1, 2, 3]),
        (field("duration", "<", 1_000), [0, 1, 2, 3]),
        (field("hp.lr", ">", 0.25, HPARAM, "NUMBER"), [2, 3]),
        (field("hp.net.width", "=", 8, HPARAM, "NUMBER"), [1, 2, 3]),
        (field("hp.net.width", "contains", "WI", HPARAM, "TEXT"), [0]),
        (field("hp.warm", "=", True, HPARAM), [1]),
        (field("hp.none", "isEmpty", None, HPARAM), [0, 1, 2, 3]),
        (field("training.loss.mean", ">=", 1, METRIC, "NUMBER"), [1, 2, 3]),
        (field("training.loss.min", "=", 1, METRIC, "NUMBER"), [2]),
        (field("metadata.note", "contains", "second", METADATA, "TEXT"), [2]),
        (field("metadata.note", "isEmpty", None, METADATA, "TEXT"), [1, 3]),
        (field("searcherMetricsVal", "=", None), [0, 1, 2, 3]),
        (group("and"), [0, 1, 2, 3]),
        (group("or", field("searcherMetricsVal", ">", 0.95), field("experimentName", "=", "digits")), [0, 3]),
        (
            group(
                "and",
                field("isExpMultitrial", "=", True),
                group("or", field("hp.lr", "<", 0.15, HPARAM), field("hp.warm", "=", True, HPARAM)),
            ),
            [0, 1],
        ),
    ],
)
def test_filters_find_what_they_say(cast: Cast, runs: list[int], root: Json, expected: list[int]) -> None:
    assert ids(cast, filter=asked(root)) == [runs[at] for at in expected]


def test_filters_by_number_and_by_what_belongs_to_a_run(cast: Cast, runs: list[int]) -> None:
    sweep = Experiment.objects.get(trials=runs[0])
    assert ids(cast, filter=asked(field("id", "=", runs[2]))) == [runs[2]]
    assert ids(cast, filter=asked(field("id", "=", sweep.pk, location=None))) == runs[:3]
    assert ids(cast, filter=asked(field("experimentId", "!=", sweep.pk))) == runs[3:]
    assert ids(cast, filter=asked(field("user", "=", sweep.owner_id))) == runs
    assert ids(cast, filter=asked(field("localId", "=", f"{sweep.project.key}-{runs[3]}"))) == runs[3:]
    Experiment.objects.filter(pk=sweep.pk).update(archived=True)
    assert ids(cast, filter=asked(group("and"))) == runs[3:]
    assert ids(cast, filter=asked(group("and"), show_archived=True)) == runs == ids(cast)


@pytest.mark.parametrize(
    ("sort", "expected"),
    [
        ("id=desc", [3, 2, 1, 0]),
        ("searcherMetricsVal=asc", [3, 2, 1, 0]),
        ("experimentName=asc,hp.lr=desc", [3, 2, 1, 0]),
        ("metadata.note=asc", [1, 2, 0, 3]),
        ("training.loss.max=desc", [3, 2, 1, 0]),
    ],
)
def test_orders_are_as_asked(cast: Cast, runs: list[int], sort: str, expected: list[int]) -> None:
    assert ids(cast, sort=sort) == [runs[at] for at in expected]


def test_every_column_can_be_sorted_by_and_filtered(cast: Cast, runs: list[int]) -> None:
    values = {"text": "x", "number": 1, "date": "2026-01-31", "bool": True, "state": "COMPLETED"}
    for name, column in run_search.COLUMNS.items():
        assert len(ids(cast, sort=f"{name}=desc")) == 4, name
        cast.vic.post("runs", {"filter": asked(field(name, "=", values[column.kind]))})
    for name, column in run_search.OF_EXPERIMENT.items():
        cast.vic.post("runs", {"filter": asked(field(name, "=", values[column.kind], location=None))})


@pytest.mark.parametrize(
    ("body", "part"),
    [
        ({"filter": "{"}, "filter: the text: Invalid JSON"),
        ({"filter": asked({"kind": "leaf"})}, "filter: filterGroup"),
        (
            {"filter": asked(field("colour", "=", 1))},
            "column 'colour' is unknown. Allowed: id, experimentName",
        ),
        ({"filter": asked(field("id", "=", "many"))}, "filter: id: Found 'many'; allowed: a number."),
        ({"filter": asked(field("startTime", "<", "soon"))}, "allowed: a date"),
        ({"filter": asked(field("state", "<", "ACTIVE"))}, "state < is not possible. Allowed: =, !=."),
        ({"filter": asked(field("loss", "<", 1, METRIC))}, "'loss' is not a metric"),
        ({"filter": asked(group("and", *[field("id", "=", 1)] * 201))}, "more than 200 conditions"),
        ({"sort": "id"}, "Found 'id'; allowed: COLUMN=asc or COLUMN=desc"),
        ({"sort": "colour=asc"}, "column 'colour' is unknown"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_sentence(cast: Cast, body: Json, part: str) -> None:
    status, sentence = cast.vic.refused("POST", "runs", body)
    assert (status, part in sentence) == (400, True), sentence


def errors(answer: Json) -> dict[int, str]:
    return {result["id"]: result["error"] for result in answer["results"]}


def test_runs_are_killed_one_by_one(cast: Cast, runs: list[int]) -> None:
    body = {"projectId": 1, "runIds": [runs[0], 999_999]}
    assert errors(cast.ada.post("runs/kill", body)) == {
        runs[0]: "",
        999_999: "Run with id '999999' not found",
    }
    assert Trial.objects.get(pk=runs[0]).state == TrialState.CANCELED
    assert Trial.objects.get(pk=runs[1]).state == TrialState.ACTIVE
    refused = errors(cast.bob.post("runs/kill", {"projectId": 1, "runIds": [runs[1]]}))
    assert "ada" in refused[runs[1]] and Trial.objects.get(pk=runs[1]).state == TrialState.ACTIVE


def test_the_experiments_of_runs_are_paused_resumed_and_moved(cast: Cast, runs: list[int]) -> None:
    sweep, single = (Experiment.objects.get(trials=pk) for pk in (runs[0], runs[3]))
    everything = {"projectId": 1, "filter": asked(group("and"))}
    assert set(errors(cast.ada.post("runs/pause", everything)).values()) == {""}
    assert {row.state for row in Experiment.objects.all()} == {ExperimentState.PAUSED}
    assert set(errors(cast.ada.post("runs/resume", {"runIds": runs[:2]})).values()) == {""}
    sweep.refresh_from_db()
    single.refresh_from_db()
    assert (sweep.state, single.state) == (ExperimentState.ACTIVE, ExperimentState.PAUSED)
    project = cast.ada.post("workspaces/1/projects", {"name": "elsewhere"})["project"]["id"]
    body = {"sourceProjectId": 1, "destinationProjectId": project, "runIds": runs, "skipMultitrial": True}
    moved = errors(cast.ada.post("runs/move", body))
    assert moved[runs[3]] == "" and moved[runs[0]] == f"Skipping run '{runs[0]}' (part of multi-trial)."
    assert ids(cast, projectId=project) == runs[3:] and ids(cast, projectId=1) == runs[:3]


def test_a_run_of_a_search_is_archived_and_deleted_with_the_search_alone(cast: Cast, runs: list[int]) -> None:
    Experiment.objects.update(state=ExperimentState.COMPLETED)
    for action in ("archive", "unarchive", "delete"):
        told = errors(cast.ada.post(f"runs/{action}", {"projectId": 1, "runIds": [runs[0], runs[3]]}))
        assert told[runs[3]] == "" and "as a whole" in told[runs[0]], action
        if action == "archive":
            assert Experiment.objects.get(trials=runs[3]).archived
    assert not Experiment.objects.filter(trials=runs[3], state=ExperimentState.COMPLETED).exists()
    assert Experiment.objects.get(trials=runs[0]).state == ExperimentState.COMPLETED
