"""Turns pydantic's errors into problems: a path, what was found there, what is allowed."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, NamedTuple, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import ErrorDetails
from typing_extensions import TypeAliasType

from scheduling.reasons import listed
from submissions.config.masking import is_secret
from submissions.config.problems import NOTHING, REQUIRED, Problem, at, has, look_up, shown
from submissions.config.section import whole

Path = tuple[str | int, ...]


class Shape(NamedTuple):
    """A config's model, and what pydantic's errors say of it in words of their own.

    `unions`: discriminator → name of a kind → its model. `tags`: other names of union members that stand in the
    location of an error. `refused`: fields that are known only to be refused. `ended`: kinds that are no more → what
    to take instead.
    """

    model: type[BaseModel]
    unions: Mapping[str, Mapping[str, type[BaseModel]]] = {}
    tags: frozenset[str] = frozenset()
    refused: frozenset[str] = frozenset()
    ended: Mapping[str, str] = {}

    @property
    def put_in(self) -> frozenset[str]:
        """Steps of an error's location that users never write."""
        return self.tags.union(["int", "str", "[key]"], *self.unions.values())


#: sections within sections
_DEEPEST = 2
_ALLOWED = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "string_type": "text",
    "list_type": "a list",
    "dict_type": "a map",
    "model_type": "a map",
    "model_attributes_type": "a map",
    "greater_than_equal": "{ge} or more",
    "greater_than": "more than {gt}",
    "less_than_equal": "{le} or less",
    "less_than": "less than {lt}",
    "string_too_short": "at least {min_length} character",
    "string_too_long": "at most {max_length} characters",
    "too_short": "at least {min_length} entry",
    "union_tag_not_found": "a map with the field {discriminator}",
}

#: that a map is none of these goes without saying where something within the map is wrong
_PLAIN_TYPES = ("int_type", "float_type", "bool_type", "string_type")


def translated(errors: list[ErrorDetails], config: Any, shape: Shape) -> list[Problem]:
    """All problems of `errors`, which came from validating `config` as `shape.model`; each once, in order."""
    paths = [path_of(details["loc"], config, shape.put_in) for details in errors]
    told = [
        details
        for details, path in zip(errors, paths, strict=True)
        if details["type"] not in _PLAIN_TYPES or not any(_is_within(other, path) for other in paths)
    ]
    return list(dict.fromkeys(_translated(details, config, shape) for details in told))


def _is_within(path: Path, section: Path) -> bool:
    return len(path) > len(section) and path[: len(section)] == section


def is_missing(details: ErrorDetails) -> bool:
    """Whether the error is only that something is absent (which a template may be)."""
    return details["type"] in ("missing", "union_tag_not_found")


def path_of(location: Path, config: Any, put_in: frozenset[str]) -> Path:
    """`location` as the user wrote it: without the names of union members that pydantic puts in."""
    path: Path = ()
    here: Any = config
    for index, step in enumerate(location):
        last = index == len(location) - 1
        if has(here, step):
            here = here[step]
        elif not last or step in put_in or not isinstance(here, dict):
            continue
        path += (step,)
    return path


def _translated(details: ErrorDetails, config: Any, shape: Shape) -> Problem:
    kind, context, location = details["type"], details.get("ctx") or {}, details["loc"]
    path = path_of(location, config, shape.put_in)
    if kind == "extra_forbidden":
        return Problem(at(path), "an unknown field", _fields_allowed(location, shape))
    if kind == "missing":
        return Problem(at(path), NOTHING, REQUIRED)
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        return _wrong_kind(path, config, context, shape)
    if kind == "unknown_type":
        return Problem(at((*path, "type")), shown(look_up(config, (*path, "type"))), details["msg"])
    found = look_up(config, path)
    hidden = is_secret(path) and not isinstance(found, (bool, int, float, type(None)))
    text = "a value that is hidden because it may be secret" if hidden else shown(found)
    if kind == "not_allowed":
        return Problem(at(path), text, str(context["allowed"]))
    if kind == "literal_error":
        expected = str(context["expected"]).replace("'", "")
        return Problem(at(path), text, expected + did_you_mean(found, re.split(", | or ", expected)))
    bounds = {name: whole(value) for name, value in context.items()}
    allowed = _ALLOWED[kind].format(**bounds) if kind in _ALLOWED else details["msg"]
    return Problem(at(path), text, allowed)


def _wrong_kind(path: Path, config: Any, context: dict[str, Any], shape: Shape) -> Problem:
    field = str(context["discriminator"]).strip("'")
    here = look_up(config, path)
    if not isinstance(here, dict):
        return Problem(at(path), shown(here), f"a map with the field {field}")
    allowed = ", ".join(shape.unions[field])
    found = here.get(field)
    if found is None:
        return Problem(at((*path, field)), NOTHING, f"one of {allowed}")
    if isinstance(found, str) and found in shape.ended:
        return Problem(at((*path, field)), shown(found), f"one of {allowed} ({shape.ended[found]})")
    near = did_you_mean(found, list(shape.unions[field]))
    return Problem(at((*path, field)), shown(found), f"one of {allowed}{near}")


def did_you_mean(found: Any, allowed: Sequence[str]) -> str:
    """ " (did you mean …?)" where one of `allowed` is near what was found, else nothing."""
    near = difflib.get_close_matches(found.lower(), allowed, n=1) if isinstance(found, str) else []
    return f" (did you mean {near[0]}?)" if near else ""


def _fields_allowed(location: Path, shape: Shape) -> str:
    owners = _models_at(location[:-1], shape)
    fields = sorted({name for owner in owners for name in owner.model_fields} - shape.refused)
    name, here = str(location[-1]), _without_steps(location, shape)
    if kinds := _kinds_with(name, owners, shape):
        return f"{', '.join(fields)} ({name} is a field of {listed(kinds, len(kinds))})"
    paths = [path for path in _paths_of(name, shape.model, shape.refused) if path != here]
    elsewhere = [".".join(path) if len(path) > 1 else f"{name} at the top level" for path in paths[:2]]
    near = f" (did you mean {' or '.join(elsewhere)}?)" if elsewhere else did_you_mean(name, fields)
    return ", ".join(fields) + near


def _kinds_with(name: str, owners: list[type[BaseModel]], shape: Shape) -> list[str]:
    """Return which other kinds of a tagged section have the field that its kind lacks."""
    for kinds in shape.unions.values():
        if any(owner in kinds.values() for owner in owners):
            return [kind for kind, model in kinds.items() if name in model.model_fields]
    return []


def _without_steps(location: Path, shape: Shape) -> tuple[str, ...]:
    """Return a location of pydantic's by the names of its fields alone, as `_paths_of` has them."""
    return tuple(str(step) for step in location if isinstance(step, str) and step not in shape.put_in)


def _paths_of(name: str, model: type[BaseModel], refused: frozenset[str]) -> list[tuple[str, ...]]:
    """Where in the config there is a field of this name."""
    if name in refused:
        return []
    found: dict[tuple[str, ...], None] = {}
    ways: list[tuple[tuple[str, ...], type[BaseModel]]] = [((), model)]
    for path, here in ways:
        for field, info in here.model_fields.items():
            if field == name:
                found[(*path, field)] = None
            if len(path) < _DEEPEST:
                ways += [((*path, field), inner) for inner in _models_in(info.annotation)]
    return list(found)


def _models_at(location: Path, shape: Shape) -> list[type[BaseModel]]:
    """The models that may stand at a location of pydantic's, which names members of tagged unions."""
    here = [shape.model]
    for step in location:
        fields = [owner.model_fields[str(step)] for owner in here if step in owner.model_fields]
        if fields:
            here = [inner for field in fields for inner in _models_in(field.annotation)]
        elif step in shape.put_in:
            here = [owner for owner in here if step in _tags_of(owner)] or here
    return here


def _tags_of(model: type[BaseModel]) -> tuple[Any, ...]:
    field = model.model_fields.get("type") or model.model_fields.get("name")
    return get_args(field.annotation) if field else ()


def _models_in(annotation: Any, seen: frozenset[int] = frozenset()) -> Iterator[type[BaseModel]]:
    if id(annotation) in seen:
        return
    if isinstance(annotation, TypeAliasType):
        yield from _models_in(annotation.__value__, seen | {id(annotation)})
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif get_origin(annotation) is Annotated:
        yield from _models_in(get_args(annotation)[0], seen)
    else:
        for inner in get_args(annotation):
            if not isinstance(inner, str):
                yield from _models_in(inner, seen | {id(annotation)})
