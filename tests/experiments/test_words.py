"""Experiments are found by parts of their words, with an index that the planner takes."""

from __future__ import annotations

import pytest
from django.db import connection

from experiments import filters
from experiments.models import Experiment
from tests.rig.world import submit_experiment

pytestmark = pytest.mark.django_db


def found(text: str, number: int = 0) -> set[str]:
    return set(filters.containing(Experiment.objects.all(), text, number).values_list("name", flat=True))


@pytest.fixture(autouse=True)
def experiments() -> dict[str, Experiment]:
    made = {name: submit_experiment(name=name) for name in ("Über-net", "digits 77", "x")}
    Experiment.objects.filter(name="x").update(description="100 % of the\ndata", labels=['a "b"', "nightly"])
    return made


def test_any_part_of_the_words_in_any_case(experiments: dict[str, Experiment]) -> None:
    assert found("GITS") == found("ts 77") == {"digits 77"}
    assert found("über") == found("ÜBER-N") == {"Über-net"}
    assert found("100 %") == found("night") == found('"b"') == {"x"}
    assert found("et\nx") == found("net x") == found("%") - {"x"} == set()
    assert found("x", experiments["digits 77"].pk) == {"x", "digits 77"}
    assert found("i") == {"digits 77", "x"}, "short texts are found too"


def test_a_long_description_costs_little_and_is_found_by_its_beginning() -> None:
    first = "".join(f"{number:04d} " for number in range(2_000))
    Experiment.objects.filter(name="x").update(description=first + "far behind " * 200_000)
    assert found("0017 0018") == {"x"}
    assert not found("far behind"), "what comes after 10,000 characters is in no index"


def test_an_index_finds_rare_words() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute("SET LOCAL enable_indexscan = off")
    plan = filters.containing(Experiment.objects.all(), "digits", 7).order_by().explain()
    assert "experiments_by_trigram" in plan
