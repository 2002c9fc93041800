"""The order in which a config is shown: that of its documentation. The database keeps none."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

Json = dict[str, Any]
#: fields that tell kinds of a section apart
TAGS = ("name", "type")


def in_order(config: Json, schema: Callable[[], Json]) -> Json:
    """The values in the order of the schema that the function returns: in each section as the schema has them.

    Names that users choose (of hyperparameters, of data) follow by the alphabet. Fields that the schema does not know
    are kept.
    """
    found: Json = _ordered(config, whole(schema))
    return found


def set_values(config: Json, schema: Callable[[], Json]) -> Json:
    """The values of an effective config that differ from their defaults."""
    return _set(config, whole(schema))


def _set(values: Json, place: Place) -> Json:
    section, found = place.section(values), {}
    for name, value in values.items():
        if isinstance(value, dict) and value:
            value = _set(value, section.below(name))
        if value not in (None, "", [], {}) and value != section.default(name):
            found[name] = value
    return found


@cache
def whole(schema: Callable[[], Json]) -> Place:
    """What the schema says, worked out once."""
    node = schema()
    defs = node.get("$defs", {})
    return Place(_resolved(node, defs), defs)


class Place:
    """Somewhere in a config, with all `kinds` of values that it may have. What is below is looked up once."""

    def __init__(self, kinds: list[Json], defs: Json) -> None:
        self._kinds, self._defs = kinds, defs
        self._tagged = any(_tags(kind) for kind in kinds)
        names = (name for kind in kinds for name in kind.get("properties", ()))
        self._places = {name: place for place, name in enumerate(dict.fromkeys(names))}
        self._known: dict[object, Place] = {}

    def section(self, value: Json) -> Place:
        """This place as the one kind of section that the value's name or type says it is."""
        if not self._tagged:
            return self
        fit = [
            kind
            for kind in self._kinds
            if all(value.get(tag, has) == has for tag, has in _tags(kind).items())
        ]
        return self._once(tuple(map(id, fit)), fit)

    def default(self, name: str) -> Any:
        """What the field is where nothing sets it; None without one."""
        fields = (kind.get("properties", {}).get(name, {}) for kind in self._kinds)
        return next((field["default"] for field in fields if "default" in field), None)

    def names(self, value: Json) -> list[str]:
        return sorted(value, key=lambda name: (self._places.get(name, len(self._places)), name))

    def below(self, name: str) -> Place:
        """What may stand at `name` of a map."""
        if name not in self._places:
            others = (kind.get("additionalProperties") for kind in self._kinds)
            return self._found("", [other for other in others if isinstance(other, dict)])
        fields = (kind.get("properties", {}) for kind in self._kinds)
        return self._found(name, [field[name] for field in fields if name in field])

    def entry(self) -> Place:
        """What may stand in a list."""
        return self._found(0, [kind["items"] for kind in self._kinds if "items" in kind])

    def _found(self, key: object, nodes: list[Json]) -> Place:
        known = self._known.get(key)
        return known or self._once(key, [kind for node in nodes for kind in _resolved(node, self._defs)])

    def _once(self, key: object, kinds: list[Json]) -> Place:
        if key not in self._known:
            self._known[key] = Place(kinds, self._defs)
        return self._known[key]


def _ordered(value: Any, place: Place) -> Any:
    if isinstance(value, list):
        return [_ordered(entry, place.entry()) for entry in value]
    if not isinstance(value, dict):
        return value
    section = place.section(value)
    return {
        name: _ordered(value[name], section.below(name))
        if isinstance(value[name], dict | list)
        else value[name]
        for name in section.names(value)
    }


def _resolved(node: Json, defs: Json) -> list[Json]:
    """All that a node allows, references and choices followed."""
    if "$ref" in node:
        return _resolved(defs[node["$ref"].rpartition("/")[2]], defs)
    choices = [kind for key in ("anyOf", "oneOf", "allOf") for kind in node.get(key, ())]
    choices += [node[key] for key in ("then", "else") if key in node]
    return [node, *(kind for choice in choices for kind in _resolved(choice, defs))]


def _tags(kind: Json) -> Json:
    """{tag: its one value} of a kind of section that is told apart from others."""
    fields = kind.get("properties", {})
    return {tag: fields[tag]["const"] for tag in TAGS if "const" in fields.get(tag, {})}
