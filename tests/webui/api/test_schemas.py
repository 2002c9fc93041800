"""Schemas of configs for editors, and what is generated from the config models."""

from __future__ import annotations

import re
from typing import Any
from uuid import UUID

import pytest
from django.test import Client
from django.urls import resolve
from pydantic import TypeAdapter

from experiments.config.reading import check, parse
from shown import rest_bodies
from webui.api.docs import schema
from webui.management.commands import write_reference

pytestmark = pytest.mark.django_db


def test_schemas_are_served_to_everybody_and_cached() -> None:
    visitor = Client()
    rows = visitor.get("/api/v1/schemas").json()["schemas"]
    assert [row["name"] for row in rows] == ["experiment-config", "template-config", "command-config"]
    for row in rows:
        answer = visitor.get(row["path"])
        assert answer.json()["title"] == row["title"] and answer.json()["properties"]
        assert answer["Cache-Control"] == "public, max-age=3600"
        again = visitor.get(row["path"], headers={"If-None-Match": answer["ETag"]})
        assert (again.status_code, again.content) == (304, b"")
    unknown = visitor.get("/api/v1/schemas/other")
    assert unknown.status_code == 404 and "experiment-config" in unknown.json()["message"]


def test_what_is_generated_is_what_the_models_say() -> None:
    for path, text in write_reference.generated().items():
        assert path.read_text(encoding="utf-8") == text, f"run manage.py write_reference: {path.name} is old"


def test_every_body_has_an_example_that_its_view_takes() -> None:
    bodies = set()
    for path, operations in schema()["paths"].items():
        for method, operation in operations.items():
            for media in operation.get("requestBody", {}).get("content", {}).values():
                place = path.replace("{checkpoint_uuid}", str(UUID(int=1)))
                view = resolve(re.sub(r"{\w+}", "1", place)).func
                bodies.add(_taken(view, method.upper(), media["example"]))
    assert len(bodies) > 50
    assert parse(rest_bodies.BODIES["NewExperiment"]["config"]).name == "digits"
    assert check(rest_bodies.BODIES["PreviewBody"]["config"]).name == "digits"


def _taken(view: Any, method: str, example: Any) -> str:
    """Fails unless the view's declared body is like the example; the body in words."""
    described = view.cls.described_bodies.get(method) if hasattr(view, "cls") else view.body
    if described is not None:
        TypeAdapter(described).validate_python(example, strict=True, extra="forbid")
        return str(described)
    body = view.cls.bodies[method](data=example)
    assert body.is_valid(), (view.cls, method, body.errors)
    assert set(example) <= set(body.fields), (view.cls, method)
    return str(type(body))
