"""The keys and kinds of the answer to every GET of the REST dialect are pinned, because programs depend on them.

`GOLDEN=write python -m pytest tests/webui/api/test_golden_answers.py` writes golden/answers.json again.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.conf import LazySettings
from django.db import connection

from logs import pulse
from tests.rig import golden, golden_world
from tests.rig.golden import Shape
from tests.rig.golden_world import QUERIES, World
from webui.api import async_routes, urls

GOLDEN = Path(__file__).parent / "golden" / "answers.json"
WRITE = f"GOLDEN=write python -m pytest tests/webui/api/{Path(__file__).name}"

#: routes that are not pinned, each with the reason
EXEMPT = {
    "^api/": "It is the 404 of every address that is not a route.",
    "/api/v1/checkpoints/{name}": "It is the 404 of what is not the UUID of a checkpoint.",
    "/api/v1/docs": "It is a page for people.",
    "/api/v1/openapi": "It describes the other routes and has no keys of its own.",
    "/api/v1/schemas/{name}": "It is a JSON Schema, which changes with the fields of configs.",
}


def _routes() -> set[str]:
    """Each route that answers GET, with `{parameter}` where a value goes."""
    asynchronous, found = async_routes.described(), set()
    for pattern in urls.urlpatterns:
        path = re.sub(r"<\w+:(\w+)>", r"{\1}", str(pattern.pattern))
        path = path if path.startswith("^") else f"/{path}"
        view_class = getattr(pattern.callback, "cls", None)
        reads = hasattr(view_class, "get") if view_class else "get" in asynchronous.get(path, {"get"})
        if reads:
            found.add(path)
    return found


def _paths(route: str, world: World) -> Iterator[str]:
    """The route with each value that leads to a row."""
    parts = route.split("/")
    places = [
        f"{parts[index - 1].strip('{}')}/{part.strip('{}')}"
        for index, part in enumerate(parts)
        if part.startswith("{")
    ]
    if "/metrics-stream/" in route:  # the stream of an experiment that runs has no end
        places = ["ended/experiment_id" if place.startswith("experiments/") else place for place in places]
    unknown = [place for place in places if place not in world.places]
    assert not unknown, f"{route}: tests/rig/golden_world.py adds no row for {', '.join(unknown)}"
    for values in itertools.product(*(world.places[place] for place in places)):
        chosen = iter(values)
        yield re.sub(r"\{\w+\}", lambda _: next(chosen), route)  # noqa: B023


async def _whole(content: Any) -> bytes:
    return b"".join([part async for part in content])


def _asked(world: World, address: str) -> tuple[int, list[Any]]:
    """Status and answers: an object, each record of a stream, the columns of a CSV, or the media type of a file."""
    answer: Any = world.api.client.get(address, headers=world.api.headers)
    content = async_to_sync(_whole)(answer.streaming_content) if answer.streaming else answer.content
    media = answer["Content-Type"].split(";")[0]
    if media == "application/json":
        return answer.status_code, [json.loads(line) for line in content.splitlines() if line]
    columns = next(csv.reader(io.StringIO(content.decode()))) if media == "text/csv" else []
    return answer.status_code, [{media: dict.fromkeys(columns, "")}]


def _found(route: str, world: World) -> Shape:
    """The shape of the route's answers. Some rows may answer 4xx, but at least one answers 200 and none 5xx."""
    rows = {place: values[0] for place, values in world.places.items()}
    answers, statuses = [], {}
    for path, query in itertools.product(_paths(route, world), QUERIES.get(route, [""])):
        address = f"{path}?{query.format_map(rows)}"
        statuses[address], found = _asked(world, address)
        answers += found if statuses[address] == 200 else []
    assert answers and max(statuses.values()) < 500, f"{route} is not answered: {statuses}"
    return golden.shape(answers)


@pytest.fixture
def world(db: None, settings: LazySettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    settings.DATA_DIR = tmp_path
    monkeypatch.setitem(connection.settings_dict, "CONN_MAX_AGE", 0)  # threads give their connections back
    monkeypatch.setattr(
        pulse, "SILENT_SECONDS", math.inf
    )  # on a slow machine, the rank's sign of life grows old
    return golden_world.make(tmp_path)


@pytest.mark.skipif(os.environ.get("GOLDEN") == "write", reason="the other test writes them")
def test_every_route_that_reads_is_pinned_or_exempt() -> None:
    routes, pinned = _routes(), golden.load(GOLDEN).keys()
    assert pinned | EXEMPT.keys() == routes, f"Pin a new route or exempt it: {WRITE}"
    assert not pinned & EXEMPT.keys() and not QUERIES.keys() - pinned


@pytest.mark.django_db(transaction=True)
def test_every_answer_has_the_keys_and_kinds_that_are_pinned(world: World) -> None:
    found = {route: _found(route, world) for route in sorted(_routes() - EXEMPT.keys())}
    if os.environ.get("GOLDEN") == "write":
        golden.store(GOLDEN, found)
    pinned = golden.load(GOLDEN)
    wrong = [
        line
        for route in sorted(found.keys() | pinned.keys())
        for line in golden.differences(route, pinned.get(route, {}), found.get(route, {}))
    ]
    assert not wrong, "\n".join([*wrong, f"If you meant to change these, write them again: {WRITE}"])
