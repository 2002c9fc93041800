"""What Determined's gateway takes beside what it answers: numbers of enums, and names in snake_case."""

from __future__ import annotations

from typing import Any

import pytest
from rest_framework import serializers

from experiments.models import Trial
from jobs.models import Allocation
from tests.rig.api import Api, Cast
from webui.api import protojson

pytestmark = pytest.mark.django_db


def names(answer: dict[str, Any]) -> list[str]:
    return [row["username"] for row in answer["users"]]


def test_an_enum_may_be_given_by_its_number(cast: Cast) -> None:
    by_word = names(cast.admin.get("users?sortBy=SORT_BY_USER_NAME&orderBy=ORDER_BY_DESC"))
    assert names(cast.admin.get("users?sortBy=2&orderBy=2")) == by_word == sorted(by_word, reverse=True)
    assert names(cast.admin.get("users?sort_by=2&order_by=1")) == by_word[::-1]
    assert names(cast.admin.get("users?sort_by=0&order_by=0"))
    for wrong in ("orderBy=3", "orderBy=-1", "sortBy=8", "sortBy=400", "orderBy=true"):
        status, sentence = cast.admin.refused("GET", f"users?{wrong}")
        assert status == 400 and wrong.partition("=")[0] in sentence, sentence
    assert cast.vic.get("experiments?states=1&states=STATE_COMPLETED")["experiments"] == []


def test_names_in_a_query_may_be_in_snake_case(cast: Cast, running: tuple[Trial, Allocation, Api]) -> None:
    trial, _, run = running
    metrics = {"trialId": trial.pk, "trialRunId": 1, "stepsCompleted": 5}
    for group, values in (("training", {"loss": 0.2, "accuracy": 1}), ("validation", {"loss": 9})):
        run.post(
            f"trials/{trial.pk}/metrics",
            {"group": group, "metrics": {**metrics, "metrics": {"avgMetrics": values}}},
        )
    series = cast.vic.get(
        f"trials/time-series?trial_ids={trial.pk}&metric_names=loss&metric_type=METRIC_TYPE_TRAINING"
    )
    (point,) = series["trials"][0]["metrics"][0]["data"]
    assert (point["batches"], point["values"]) == (5, {"loss": 0.2})


def test_names_in_a_body_may_be_in_snake_case(cast: Cast) -> None:
    body = {"user": {"username": "eve", "display_name": "Eve", "active": True}, "password": "Longer-Word-9"}
    assert cast.admin.post("users", body)["user"]["displayName"] == "Eve"
    settings = {"settings": [{"key": "a_b", "value": "c_d", "storage_path": "my_path"}]}
    cast.ada.post("users/setting", settings)
    (kept,) = cast.ada.get("users/setting")["settings"]
    assert (kept["storagePath"], kept["key"], kept["value"]) == ("my_path", "a_b", "c_d")


class Inner(serializers.Serializer[Any]):
    maxSlots = serializers.IntegerField()
    config = serializers.JSONField()


class Outer(serializers.Serializer[Any]):
    isPaused = serializers.BooleanField()
    allOfThem = Inner(many=True)
    hparams = serializers.DictField()


def test_what_a_field_takes_as_it_is_keeps_its_names() -> None:
    sent = {
        "is_paused": True,
        "all_of_them": [{"max_slots": 3, "config": {"max_slots": 4}}],
        "hparams": {"learning_rate": 1},
        "of_ours": {"a_b": 1},
    }
    assert protojson.renamed(Outer(), sent) == {
        "isPaused": True,
        "allOfThem": [{"maxSlots": 3, "config": {"max_slots": 4}}],
        "hparams": {"learning_rate": 1},
        "ofOurs": {"a_b": 1},
    }
    assert protojson.renamed(Outer(), [1]) == [1] and protojson.renamed(Outer(), {"hparams": 5}) == {
        "hparams": 5
    }
