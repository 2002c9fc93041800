"""JSON Schema of a config, generated from its models, for editors (`# yaml-language-server: $schema=…`).

Older forms are in it, rules between fields are not. It is draft 7, which every editor knows: so `$ref` stands alone.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

Json = dict[str, Any]
_DRAFT = "http://json-schema.org/draft-07/schema#"


def of_model(model: type[BaseModel], *, title: str, description: str, required: list[str]) -> Json:
    """The schema of a whole config; `required`: the fields that it needs."""
    about = {"required": required, "$schema": _DRAFT, "title": title, "description": description}
    return {**_plain(model.model_json_schema()), **about}


def of_part(schema: Json) -> Json:
    """The schema of what may lack anything, as a template may."""
    found: Json = _lenient(schema)
    return found


def _plain(node: Any) -> Any:
    """Without pydantic's extras; a null counts as absent, so all that is optional may be one."""
    if isinstance(node, list):
        return [_plain(inner) for inner in node]
    if not isinstance(node, dict):
        return node
    found = {key: _plain(value) for key, value in node.items() if key not in ("discriminator", "properties")}
    if isinstance(found.get("title"), str) and "properties" not in node:
        del found["title"]  # the field's own name once more
    if isinstance(found.get("description"), str):
        found["description"] = " ".join(found["description"].split())
    if "properties" in node:
        needed = node.get("required", [])
        fields = {name: _plain(inner) for name, inner in node["properties"].items()}
        # what tells kinds apart comes first
        ordered = sorted(fields.items(), key=lambda field: "const" not in field[1])
        found["properties"] = {
            name: inner if name in needed else _or_null(inner)
            for name, inner in ordered
            if inner.get("type") != "null" and inner.get("const", "") is not None  # known only to be refused
        }
    return found


def _or_null(field: Json) -> Json:
    about: Json = {key: field[key] for key in ("description", "default", "deprecated") if key in field}
    if about.get("default", {}) is None or isinstance(about.get("default"), dict):
        del about["default"]  # of a section: its fields have their own
    what = {key: value for key, value in field.items() if key not in ("description", "default", "deprecated")}
    kinds = what["anyOf"] if set(what) == {"anyOf"} else [what] if what else []
    if not kinds:
        return about  # anything
    null = {"type": "null"}
    return {**about, "anyOf": [*(kind for kind in kinds if kind != null), null]}


def _lenient(node: Any) -> Any:
    if isinstance(node, list):
        return [_lenient(inner) for inner in node]
    if not isinstance(node, dict):
        return node
    # without the field that tells kinds apart, a value fits several
    found = {"anyOf" if key == "oneOf" else key: _lenient(value) for key, value in node.items()}
    if found.get("additionalProperties") is False:
        found.pop("required", None)
    return found
