"""Shells, notebooks and TensorBoards over REST: whose key is told, and what a list of them costs."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from tests.rig.api import Api, Cast
from tests.rig.world import submit_experiment

NOUNS = ("shells", "notebooks", "tensorboards")


@pytest.mark.django_db
def test_a_list_asks_the_database_as_often_for_many_as_for_one(cast: Cast) -> None:
    shown = {"experimentIds": [submit_experiment().pk]}

    def start() -> None:
        for noun in NOUNS:
            cast.ada.post(noun, {"config": {"resources": {"slots": 0}}, **shown})

    def asked(noun: str) -> int:
        with CaptureQueriesContext(
            connection,
        ) as queries:
            cast.bob.get(noun)
        return len(queries)

    start()
    cast.bob.get("shells")  # what is asked once in a process
    first = [asked(noun) for noun in NOUNS]
    for _ in range(3):
        start()
    # a shell that has no host yet asks which account its pool's hosts agree on
    assert [asked(noun) for noun in NOUNS] == [first[0] + 3, *first[1:]]
    assert cast.ada.get("tensorboards")["tensorboards"][0]["experimentIds"] == shown["experimentIds"]


@pytest.mark.django_db
def test_the_key_of_a_shell_is_told_to_those_who_may_use_it(cast: Cast) -> None:
    shell = cast.ada.post("shells", {"config": {"resources": {"slots": 0}}})["shell"]["id"]
    reader = Api(cast.ada.post("tokens", {"scope": "read"})["token"])
    writer = Api(cast.ada.post("tokens", {"scope": "write"})["token"])
    told = {"ada": cast.ada, "admin": cast.admin, "bob": cast.bob, "reader": reader, "writer": writer}
    assert {name for name, api in told.items() if api.get(f"shells/{shell}")["shell"]["privateKey"]} == {
        "ada",
        "admin",
        "writer",
    }
