"""The fields of a config as a table for the documentation, from its JSON Schema."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

from submissions.config.ordering import TAGS, Json


class Field(NamedTuple):
    path: str
    what: str
    default: str
    description: str


def table(schema: Json) -> str:
    """Markdown: every field that may be written, with what it takes and its default."""
    lines = ["| field | takes | default | |", "|---|---|---|---|"]
    for field in fields(schema):
        cells = [text.replace("|", "\\|") for text in (field.what, field.default, field.description)]
        lines.append(f"| `{field.path}` | {' | '.join(cells)} |".replace("  ", " "))
    return "\n".join(lines) + "\n"


def fields(schema: Json) -> list[Field]:
    """Every field, sections before what is in them, those that several kinds of a section have once."""
    return list(_of_model(schema, schema["$defs"], ""))


def _of_model(model: Json, defs: Json, before: str) -> Iterator[Field]:
    for name, field in model["properties"].items():
        path, needed = f"{before}{name}", name in model.get("required", [])
        yield Field(path, _takes(field, defs), _default(field, needed), field.get("description", ""))
        yield from _inside(field, defs, path)


def _inside(field: Json, defs: Json, path: str) -> Iterator[Field]:
    """What is in the sections that may stand there; of several kinds, with those that have the field."""
    of_kinds: dict[Field, list[str]] = {}
    kinds: list[str] = []
    for step, name in _models(field, defs):
        tag = next((tag for tag in TAGS if _is_tag(defs[name], tag)), None)
        kind = str(_only(defs[name]["properties"][tag])["const"]) if tag else ""
        kinds.append(kind)
        for row in _of_model(defs[name], defs, f"{path}{step}."):
            if tag and row.path == f"{path}{step}.{tag}":
                continue
            of_kinds.setdefault(row, []).append(kind)
        if tag and len(kinds) == 1:
            yield _tag_row(field, defs, f"{path}{step}.{tag}")
    for row, owners in of_kinds.items():
        if len(owners) < len(kinds):
            yield row._replace(description=f"For {', '.join(owners)}: {row.description}")
        else:
            yield row


def _tag_row(field: Json, defs: Json, path: str) -> Field:
    """The field that says which kind it is; where a section may come without it, that is the first."""
    tag = path.rpartition(".")[2]
    words = [f"`{_only(defs[name]['properties'][tag])['const']}`" for _, name in _models(field, defs)]
    bare = any(kind.get("$ref", "").startswith("#/$defs/_") for kind in _kinds(field))
    return Field(path, ", ".join(words), words[0] if bare else "required", "The kind.")


def _models(field: Json, defs: Json) -> Iterator[tuple[str, str]]:
    """The models that may stand there, each with `[]` before it if it is an entry of a list."""
    for kind in _kinds(field):
        if "$ref" in kind:
            name = kind["$ref"].rpartition("/")[2]
            if "properties" in defs[name] and not name.startswith("_"):
                yield "", name
            elif name == "Hyperparameter":
                yield from ((".NAME", kind["then"]["$ref"].rpartition("/")[2]) for kind in _typed(defs[name]))
        elif kind.get("type") == "array":
            yield from (("[]", name) for _, name in _models(kind.get("items", {}), defs))
        elif isinstance(kind.get("additionalProperties"), dict):
            yield from _models(kind["additionalProperties"], defs)


def _typed(hyperparameter: Json) -> list[Json]:
    kinds: list[Json] = hyperparameter["then"]["allOf"]
    return kinds


def _is_tag(model: Json, tag: str) -> bool:
    return tag in model["properties"] and "const" in _only(model["properties"][tag])


def _kinds(field: Json) -> list[Json]:
    found: list[Json] = []
    for kind in field.get("anyOf") or field.get("oneOf") or [field]:
        found += _kinds(kind) if "anyOf" in kind or "oneOf" in kind else [kind]
    return [kind for kind in found if kind != {"type": "null"}]


def _only(field: Json) -> Json:
    kinds = _kinds(field)
    return kinds[0] if len(kinds) == 1 else {}


def _takes(field: Json, defs: Json) -> str:
    words = dict.fromkeys(_words(kind, defs) for kind in _kinds(field))
    return " or ".join(word for word in words if word) or "anything"


def _words(kind: Json, defs: Json) -> str:
    if "const" in kind:
        return f"`{kind['const']}`"
    if "enum" in kind:
        return ", ".join(f"`{value}`" for value in kind["enum"])
    if "$ref" in kind:
        name = kind["$ref"].rpartition("/")[2]
        return "hyperparameters" if name == "Hyperparameter" else "map"
    shape = kind.get("type")
    if shape == "array":
        return f"list of {_takes(kind.get('items', {}), defs)}"
    if shape == "object":
        inner = kind.get("additionalProperties")
        names = kind.get("propertyNames", {}).get("enum")
        if names:
            return "`{" + " | ".join(names) + ": N}`"
        return f"map of {_takes(inner, defs)}" if isinstance(inner, dict) else "map"
    plain = {"string": "text", "boolean": "true or false", "integer": "whole number", "number": "number"}
    return plain.get(str(shape), "") + _bounds(kind)


def _bounds(kind: Json) -> str:
    low, high = kind.get("minimum"), kind.get("maximum")
    if kind.get("exclusiveMinimum") is not None:
        limit = f", more than {kind['exclusiveMinimum']:g}"
        return limit + (f", at most {high:g}" if high is not None else "")
    if low is not None and high is not None and high < 2**31 - 1:
        return f", {low:g} to {high:g}"
    return f", {low:g} or more" if low is not None else ""


def _default(field: Json, needed: bool) -> str:
    if needed:
        return "required"
    if "default" not in field or field["default"] == "":
        return ""
    return f"`{json.dumps(field['default'])}`"
