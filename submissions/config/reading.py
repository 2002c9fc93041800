"""From text to a checked config, with every fault reported at once; the kind of job brings its shape and rules."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from submissions.config.problems import ROOT, ConfigError, Problem, at, shown
from submissions.config.translating import Shape, translated
from trainmaster import yamltext
from trainmaster.overrides import BadOverride, apply_overrides

MAX_TEXT_BYTES = 1024 * 1024
UNSTORABLE = re.compile("[\x00\ud800-\udfff]")  # PostgreSQL's JSON refuses them
Model = TypeVar("Model", bound=BaseModel)


def read_yaml(text: str, subject: str) -> dict[str, Any]:
    """The map that `text` holds. Raises ConfigError with line and column."""
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > MAX_TEXT_BYTES:
        raise ConfigError([Problem(ROOT, f"{size} bytes", f"at most {MAX_TEXT_BYTES} bytes")], subject)
    try:
        value = yamltext.load(text)
    except yamltext.YamlError as error:
        raise ConfigError([Problem(ROOT, f"text that is not YAML ({error})", "YAML")], subject) from error
    if not isinstance(value, dict):
        found = "an empty text" if value is None else shown(value)
        raise ConfigError([Problem(ROOT, found, "a map")], subject)
    return value


def overridden(config: dict[str, Any], overrides: Sequence[str], subject: str) -> dict[str, Any]:
    """The config with each "path.to.field=value" set. Raises ConfigError."""
    try:
        return apply_overrides(config, overrides)
    except BadOverride as error:
        raise ConfigError(
            [Problem(f"--config {error.override}", error.found, error.allowed)], subject
        ) from error


def checked(
    config: dict[str, Any], model: type[Model], shape: Shape, broken_rules: Sequence[Problem], subject: str
) -> Model:
    """A checked config from its values. Raises ConfigError with all problems."""
    if unstorable := list(_unstorable(config)):  # alone, since other sentences would show such text
        raise ConfigError(unstorable, subject)
    try:
        found = model.model_validate(config)
    except ValidationError as error:
        problems = translated(error.errors(include_url=False), config, shape)
        raise ConfigError(once([*problems, *broken_rules]), subject) from None
    if broken_rules:
        raise ConfigError(broken_rules, subject)
    return found


def _unstorable(config: dict[str, Any]) -> Iterator[Problem]:
    """Texts that cannot be stored, wherever they stand, fields that anything may be in included."""
    inside: list[tuple[tuple[str | int, ...], Any]] = [((), config)]
    seen = {id(config)}  # YAML's aliases stand in many places
    for path, part in inside:
        if isinstance(part, dict) and any(isinstance(key, str) and UNSTORABLE.search(key) for key in part):
            yield Problem(at(path), *_storable("a field whose name contains"))
        elif isinstance(part, str) and UNSTORABLE.search(part):
            yield Problem(at(path), *_storable("text that contains"))
        elif isinstance(part, (dict, list)):
            steps = part.items() if isinstance(part, dict) else enumerate(part)
            for step, inner in steps:
                if not isinstance(inner, (dict, list)) or id(inner) not in seen:
                    seen.add(id(inner))
                    inside.append(((*path, step), inner))


def _storable(what: str) -> tuple[str, str]:
    return f"{what} U+0000 or half a surrogate pair", "text without them"


def once(problems: list[Problem]) -> list[Problem]:
    """One problem for each path: the first says it best."""
    return list({problem.path: problem for problem in reversed(problems)}.values())[::-1]
