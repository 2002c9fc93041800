"""What Determined's gateway always answers, as facts, and what an OpenAPI document promises less than that.

golden/dialect.json is read from the protobuf files of Determined 0.38.1 (dialect_facts.py): route -> message,
message -> field -> kind, enum -> words, and the other routes. The gateway writes every field, also where it is empty
(`EmitDefaults`): a message or time that is not set is null, and only a field that is `optional` or one of several (`?`
before its kind here) is left out. A 64-bit number is text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Json = dict[str, Any]
FACTS = Path(__file__).parents[1] / "webui" / "api" / "golden" / "dialect.json"
_KINDS = {
    "text": {"string"}, "time": {"string"}, "int": {"integer"}, "number": {"number", "integer"}, "bool": {"boolean"},
    "object": {"object"}, "list": {"array"}, "any": {"string", "number", "integer", "boolean", "object", "array"},
}  # fmt: skip
_NULLABLE = {"time", "object", "any", "list"}
#: numbers that JSON has not, as protobuf spells them
_NOT_NUMBERS = {"NaN", "Infinity", "-Infinity"}
#: what is not known is null here, where the gateway writes 0, which could be true
_UNKNOWN = {"Trial.searcherMetricValue", "Job.progress"}


class Dialect:
    """The facts, held against one OpenAPI document."""

    def __init__(self, document: Json) -> None:
        facts = json.loads(FACTS.read_text())
        self.routes: dict[str, str] = facts["routes"]
        self._messages: dict[str, dict[str, str]] = facts["messages"]
        self._enums: dict[str, list[str]] = facts["enums"]
        self._others: set[str] = set(facts["others"])
        self._document = document
        self._seen: set[tuple[str, str]] = set()

    def faults(self) -> Iterator[str]:
        """A line for each field of an answer that is missing, may be missing, or is of another kind."""
        for path, operations in self._document["paths"].items():
            for method, operation in operations.items():
                route = f"{method} {re.sub(r'{[^}]*}', '{}', path)}"
                if route in self.routes and (schema := _answer(operation)):
                    yield from self._object(schema, self.routes[route], f"{method} {path}")

    def unknown(self) -> set[str]:
        """Routes of the facts that the document does not have."""
        return self.routes.keys() - served(self._document)

    def unlisted(self) -> set[str]:
        """Routes of Determined that the document has and the facts do not."""
        return self._others & served(self._document)

    def _object(self, schema: Json, message: str, where: str) -> Iterator[str]:
        for each in self._alternatives(schema):
            if each.get("type") == "null":
                continue
            name = each.pop("$name", "")
            if name and (name, message) in self._seen:
                continue
            self._seen.add((name, message))
            if "properties" not in each and self._messages[message]:
                yield f"{where} ({message}) is not described"
                continue
            for field, kind in self._messages[message].items():
                yield from self._field(each, field, kind, f"{where} {message}.{field}")

    def _field(self, schema: Json, field: str, kind: str, where: str) -> Iterator[str]:
        found = schema["properties"].get(field) if "properties" in schema else None
        if kind.startswith("?"):
            if found is not None:
                yield from self._value(found, kind[1:], where, may_be_null=True)
        elif found is None:
            yield f"{where} is missing"
        elif field not in schema.get("required", []):
            yield f"{where} may be absent"
        else:
            yield from self._value(found, kind, where)

    def _value(self, schema: Json, kind: str, where: str, *, may_be_null: bool = False) -> Iterator[str]:
        alternatives = list(self._alternatives(schema))
        bare = kind.removesuffix("?")
        may_be_null |= where.rsplit(" ", 1)[-1] in _UNKNOWN
        is_nullable = may_be_null or kind != bare or bare in _NULLABLE or bare in self._messages
        for each in alternatives:
            if bare == "number" and each.get("enum") and set(each["enum"]) <= _NOT_NUMBERS:
                continue
            types = each.get("type", [])
            for name in [types] if isinstance(types, str) else types:
                if name == "null":
                    if not is_nullable:
                        yield f"{where} may be null"
                elif name not in self._json_types(bare):
                    yield f"{where} is {name}; the dialect's kind is {kind}"
            words = self._enums.get(bare, each.get("enum", []))
            if others := set(each.get("enum", [])) - set(words):
                yield f"{where} may be {', '.join(sorted(map(str, others)))}, which the dialect has not"
            if bare.startswith("[]") and "items" in each:
                yield from self._value(each["items"], bare[2:], f"{where}[]")
            if bare.startswith("{}") and isinstance(each.get("additionalProperties"), dict):
                yield from self._value(each["additionalProperties"], bare[2:], f"{where}{{}}")
        if bare in self._messages:
            yield from self._object(schema, bare, where)

    def _json_types(self, kind: str) -> set[str]:
        if kind.startswith("[]"):
            return {"array"}
        if kind.startswith("{}") or kind in self._messages:
            return {"object"}
        return {"string"} if kind in self._enums else _KINDS[kind]

    def _alternatives(self, schema: Json) -> Iterator[Json]:
        """The schemas that a value may have, without references; each with its own name, if it has one. null is one."""
        if reference := schema.get("$ref"):
            name = reference.rsplit("/", 1)[-1]
            for each in self._alternatives(self._document["components"]["schemas"][name]):
                yield {**each, "$name": name}
        elif choices := schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf"):
            for choice in choices:
                yield from self._alternatives(choice)
        else:
            yield dict(schema)


def served(document: Json) -> set[str]:
    """The routes of an OpenAPI document, with their parameters as `{}`."""
    return {
        f"{method} {re.sub(r'{[^}]*}', '{}', path)}"
        for path, operations in document["paths"].items()
        for method in operations
    }


def _answer(operation: Json) -> Json | None:
    """The schema of a success in JSON; of a stream, that of a record."""
    success = next(response for status, response in operation["responses"].items() if status[0] == "2")
    schema: Json | None = success.get("content", {}).get("application/json", {}).get("schema")
    if schema and list(schema.get("properties", {})) == ["result"]:
        return dict(schema["properties"]["result"])
    return schema
