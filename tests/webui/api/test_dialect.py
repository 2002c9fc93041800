"""The answers have what Determined's gateway always writes, by name and kind."""

from __future__ import annotations

from copy import deepcopy

import pytest

from tests.rig.dialect import Dialect
from webui.api.docs import schema

pytestmark = pytest.mark.django_db


def test_every_field_that_the_gateway_always_writes_is_there() -> None:
    assert not list(Dialect(schema()).faults())


def test_every_route_of_the_facts_is_served() -> None:
    assert not Dialect(schema()).unknown()


def test_every_route_of_the_dialect_that_is_served_is_in_the_facts() -> None:
    assert not Dialect(schema()).unlisted()


def test_what_an_answer_lacks_is_told() -> None:
    document = deepcopy(schema())
    slot = document["components"]["schemas"]["AgentSlotRecord"]
    slot["required"].remove("container")
    del slot["properties"]["draining"]
    slot["properties"]["enabled"] = {"type": "string"}
    told = "\n".join(Dialect(document).faults())
    assert "Slot.container may be absent" in told and "Slot.draining is missing" in told
    assert "Slot.enabled is string; the dialect's kind is bool" in told
