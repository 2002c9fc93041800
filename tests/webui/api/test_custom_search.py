"""A search that a program of its user runs, over the addresses of older clients."""

import json
import math
from collections.abc import Callable
from uuid import UUID

import pytest
from django.db import transaction

from experiments.metric_reports import tell
from experiments.models import Experiment, Trial
from experiments.outcomes import kill_trial
from experiments.search import Validation
from tests.rig.api import Cast, Json

pytestmark = pytest.mark.django_db(transaction=True)
Submit = Callable[..., Json]
CONFIG = """
name: custom
entrypoint: python3 train.py
searcher: {name: custom, metric: loss, unit: batches}
"""
A, B = str(UUID(int=1, version=4)), str(UUID(int=2, version=4))


class Program:
    def __init__(self, cast: Cast, experiment: int) -> None:
        self.api, self.path = cast.ada, f"experiments/{experiment}"

    def events(self) -> list[Json]:
        return list(self.api.get(f"{self.path}/searcher_events")["searcherEvents"])

    def answer(self, event: Json, *operations: Json) -> None:
        body = {"triggeredByEvent": event, "searcherOperations": list(operations)}
        self.api.post(f"{self.path}/searcher_operations", body)


def created(request_id: str, lr: float) -> Json:
    return {"createTrial": {"requestId": request_id, "hyperparams": json.dumps({"lr": lr})}}


def further(request_id: str, length: int) -> Json:
    return {"trialOperation": {"validateAfter": {"requestId": request_id, "length": str(length)}}}


@transaction.atomic
def validated(trial: Trial, metric: float, steps: int) -> None:
    experiment = Experiment.objects.get(pk=trial.experiment_id)
    tell(experiment, trial, [Validation(metric, steps)])


def test_a_program_makes_trials_trains_them_further_and_ends_the_search(cast: Cast, submit: Submit) -> None:
    experiment = submit(config=CONFIG)["id"]
    program = Program(cast, experiment)
    (first,) = program.events()
    assert first == {"id": 1, "initialOperations": {}}
    for _ in range(2):  # an answer that is sent again does nothing
        program.answer(first, created(A, 0.1), further(A, 10), created(B, 0.2))
    one, two = Trial.objects.filter(experiment_id=experiment).order_by("pk")
    assert (one.hparams, one.state, two.state) == ({"lr": 0.1}, "ACTIVE", "PAUSED"), "B was told no length"
    events = program.events()
    assert [event["trialCreated"]["requestId"] for event in events] == [A, B]

    validated(one, 0.5, 9)
    validated(one, 0.4, 10)
    *_, done = program.events()
    assert done["validationCompleted"] == {"requestId": A, "metric": 0.4, "validateAfterLength": "10"}
    one.refresh_from_db()
    assert one.state == "PAUSED", "it waits for what comes next"
    program.answer(done, further(A, 5))
    (done,) = program.events()
    assert done["validationCompleted"] == {"requestId": A, "metric": 0.4, "validateAfterLength": "5"}, (
        "it was there"
    )
    program.answer(done, further(A, 20), {"setSearcherProgress": {"progress": 0.5}})
    one.refresh_from_db()
    assert one.state == "ACTIVE" and Experiment.objects.get(pk=experiment).progress == 0.5
    assert program.api.send("POST", f"{program.path}/searcher_operations", {})[0] == 400

    kill_trial(two.pk, actor="user:ada")
    *_, exited = program.events()
    canceled = {"requestId": B, "exitedReason": "EXITED_REASON_USER_CANCELED"}
    assert exited["trialExitedEarly"] == canceled
    assert Experiment.objects.get(pk=experiment).state == "ACTIVE", "the program may make another"
    program.answer(exited, {"closeTrial": {"requestId": A}}, {"shutDown": {}})
    (closed, over) = program.events()
    assert closed["trialClosed"] == {"requestId": A}
    assert over["experimentInactive"] == {"experimentState": "STATE_COMPLETED"}
    status, answer = program.api.send(
        "POST", f"{program.path}/searcher_operations", {"triggeredByEvent": over, "searcherOperations": []}
    )
    assert status == 409 and "its search has ended" in str(answer)


def test_what_a_program_cannot_ask_for(cast: Cast, submit: Submit) -> None:
    experiment = submit(config=CONFIG)["id"]
    path = f"experiments/{experiment}/searcher_operations"
    for operation, sentence in (
        ({"createTrial": {"requestId": "x", "hyperparams": "{}"}}, "a UUID"),
        (further(A, 5), "a trial that was created"),
        ({"createTrial": {"requestId": A}}, "createTrial"),
        ({"dance": {}}, "one of createTrial"),
        ({"trialOperation": {"validateAfter": {"requestId": A, "length": math.inf}}}, "trialOperation"),
        ({"createTrial": {"requestId": A, "hyperparams": '{"lr": NaN}'}}, "cannot be stored"),
    ):
        body: Json = {"triggeredByEvent": {"id": 1}, "searcherOperations": [operation]}
        status, answer = cast.ada.send("POST", path, body)
        assert status == 400 and sentence in str(answer), operation
    body = {"triggeredByEvent": {"id": 7}, "searcherOperations": []}
    assert cast.ada.send("POST", path, body)[0] == 400
    assert cast.bob.send("POST", path, body)[0] == 403
    other = submit()["id"]
    assert cast.ada.send("GET", f"experiments/{other}/searcher_events")[0] == 409
