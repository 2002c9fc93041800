"""Turns pydantic's errors into problems: a path, what was found there, what is allowed."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import ErrorDetails
from typing_extensions import TypeAliasType

from experiments.config.hyperparameters import TYPES
from experiments.config.masking import is_secret
from experiments.config.problems import NOTHING, Problem, at, has, look_up, shown
from experiments.config.searcher import ENDED, SEARCHERS
from experiments.config.storage import STORAGES

Path = tuple[str | int, ...]
_TAGS = {*SEARCHERS, *STORAGES, *TYPES, "map", "int", "str", "Length", "[key]"}
_ALLOWED = {
    "missing": "a value, the field is required",
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
    "literal_error": "{expected}",
    "string_too_short": "at least {min_length} character",
    "string_too_long": "at most {max_length} characters",
    "too_short": "at least {min_length} entry",
    "union_tag_not_found": "a map with the field {discriminator}",
}


def translated(errors: list[ErrorDetails], config: Any, model: type[BaseModel]) -> list[Problem]:
    """All problems of `errors`, which came from validating `config` as `model`; each once, in order."""
    return list(dict.fromkeys(_translated(details, config, model) for details in errors))


def is_missing(details: ErrorDetails) -> bool:
    """Whether the error is only that something is absent (which a template may be)."""
    return details["type"] in ("missing", "union_tag_not_found")


def path_of(location: Path, config: Any) -> Path:
    """`location` as the user wrote it: without the names of union members that pydantic puts in."""
    path: Path = ()
    here: Any = config
    for index, step in enumerate(location):
        last = index == len(location) - 1
        if has(here, step):
            here = here[step]
        elif not last or step in _TAGS or not isinstance(here, dict):
            continue
        path += (step,)
    return path


def _translated(details: ErrorDetails, config: Any, model: type[BaseModel]) -> Problem:
    kind, context, location = details["type"], details.get("ctx") or {}, details["loc"]
    path = path_of(location, config)
    if kind == "extra_forbidden":
        return Problem(at(path), "an unknown field", _fields_allowed(location, model))
    if kind == "missing":
        return Problem(at(path), NOTHING, _ALLOWED["missing"])
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        return _wrong_kind(path, config, context)
    if kind == "unknown_type":
        return Problem(at((*path, "type")), shown(look_up(config, (*path, "type"))), details["msg"])
    found = look_up(config, path)
    hidden = is_secret(path) and not isinstance(found, (bool, int, float, type(None)))
    text = "a value that is not shown, since it may be secret" if hidden else shown(found)
    if kind == "not_allowed":
        return Problem(at(path), text, str(context["allowed"]))
    bounds = {name: _plain(value) for name, value in context.items()}
    return Problem(at(path), text, _ALLOWED.get(kind, details["msg"]).format(**bounds))


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _wrong_kind(path: Path, config: Any, context: dict[str, Any]) -> Problem:
    field = str(context["discriminator"]).strip("'")
    here = look_up(config, path)
    if not isinstance(here, dict):
        return Problem(at(path), shown(here), f"a map with the field {field}")
    known = SEARCHERS if field == "name" else STORAGES
    allowed = ", ".join(known)
    found = here.get(field)
    if found is None:
        return Problem(at((*path, field)), NOTHING, f"one of {allowed}")
    if field == "name" and found in ENDED:
        return Problem(at((*path, field)), shown(found), f"one of {allowed} ({ENDED[found]})")
    return Problem(at((*path, field)), shown(found), f"one of {allowed}")


def _fields_allowed(location: Path, model: type[BaseModel]) -> str:
    owners = _models_at(location[:-1], model)
    fields = sorted(
        {name for owner in owners for name in owner.model_fields} - {"slots"}
    )  # known to be refused
    near = difflib.get_close_matches(str(location[-1]), fields, n=1)
    return ", ".join(fields) + (f" (did you mean {near[0]}?)" if near else "")


def _models_at(location: Path, model: type[BaseModel]) -> list[type[BaseModel]]:
    """The models that may stand at a location of pydantic's, which names members of tagged unions."""
    here = [model]
    for step in location:
        fields = [owner.model_fields[str(step)] for owner in here if step in owner.model_fields]
        if fields:
            here = [inner for field in fields for inner in _models_in(field.annotation)]
        elif step in _TAGS:
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
