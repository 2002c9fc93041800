"""A template and a config become one config.

Scalar: the config wins. List: the template's entries, then the config's. Map: recursively. A bind mount or
device of the template is dropped when the config has one with its container_path, a log policy when it has one
with its name. A length, the entrypoint and what the kind of job names besides are one value each.
"""

from __future__ import annotations

import copy
import posixpath
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from submissions.config.environment import DEVICES, pairs
from submissions.config.problems import ConfigError, Problem, at, shown
from submissions.config.section import Section

Path = tuple[str, ...]
#: one value each: the config's replaces the template's
_WHOLE: set[Path] = {
    ("entrypoint",),
    ("environment", "hooks", "pre"),
    ("environment", "hooks", "post"),
    ("resources", "shm_size"),
    ("resources", "hosts"),
}
_BY_CONTAINER_PATH: set[Path] = {("bind_mounts",), ("resources", "devices")}
#: log policies: the config's replace the template's of the same name, or, without names, those that are the same
_BY_NAME: set[Path] = {("log_policies",)}
_VARIABLES: Path = ("environment", "environment_variables")
_IMAGE: Path = ("environment", "image")


class Rules(NamedTuple):
    """What a kind of job adds. `unions`: path → its discriminator and the models of its kinds. `is_one_value` says of
    a path and what template and config have there that the config's replaces the template's."""

    unions: Mapping[Path, tuple[str, Mapping[str, type[Section]]]] = {}
    is_one_value: Callable[[Path, Any, Any], bool] = lambda path, template, config: False
    #: sections in which a null is a value, where elsewhere it counts as absent
    with_nulls: frozenset[str] = frozenset()


_PLAIN = Rules()


def merge(template: dict[str, Any], config: dict[str, Any], rules: Rules = _PLAIN) -> dict[str, Any]:
    """Both in one, neither of them changed. Raises ConfigError where the two cannot be joined."""
    merger = _Merger(rules)
    merged = merger.maps(template, config, ())
    if merger.problems:
        raise ConfigError(merger.problems)
    return merged


class _Merger:
    """One merge by `rules`; `problems` are the places where it could not be done."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.problems: list[Problem] = []

    def maps(self, template: dict[str, Any], config: dict[str, Any], path: Path) -> dict[str, Any]:
        template = self._fields_for(config, template, path)
        if path and path[0] in self.rules.with_nulls:
            nulls = {name for name, value in config.items() if value is None}
            template = {name: value for name, value in template.items() if name not in nulls}
        merged = {name: copy.deepcopy(value) for name, value in template.items() if config.get(name) is None}
        for name, value in config.items():
            if template.get(name) is None:
                merged[name] = (
                    copy.deepcopy(value) if value is not None or name not in template else template[name]
                )
            elif value is not None:
                merged[name] = self._values(template[name], value, (*path, name))
        return merged

    def _fields_for(self, config: dict[str, Any], template: dict[str, Any], path: Path) -> dict[str, Any]:
        """Return what the config's kind knows of a template's union of another kind."""
        if path not in self.rules.unions:
            return template
        tag, kinds = self.rules.unions[path]
        kind = config.get(tag)
        if kind is None or kind == template.get(tag) or kind not in kinds:
            return template
        return {name: value for name, value in template.items() if name in kinds[kind].model_fields}

    def _values(self, template: Any, config: Any, path: Path) -> Any:
        if path in _WHOLE or self.rules.is_one_value(path, template, config):
            return copy.deepcopy(config)
        if path == _VARIABLES:
            return _variables(template, config)
        if path == _IMAGE:
            return _images(template, config)
        if isinstance(template, dict) and isinstance(config, dict):
            return self.maps(template, config, path)
        if isinstance(template, list) and isinstance(config, list):
            return _lists(template, config, path)
        if isinstance(template, (dict, list)) or isinstance(config, (dict, list)):
            self.problems.append(Problem(at(path), shown(config), f"{_shape(template)}, as in the template"))
        return copy.deepcopy(config)


def _shape(value: Any) -> str:
    return "a map" if isinstance(value, dict) else "a list" if isinstance(value, list) else "a single value"


def _lists(template: list[Any], config: list[Any], path: Path) -> list[Any]:
    if path in _BY_CONTAINER_PATH:
        taken = {_container_path(entry) for entry in config} - {None}
        template = [entry for entry in template if _container_path(entry) not in taken]
    if path in _BY_NAME:
        names = {entry.get("name") for entry in config if isinstance(entry, dict)} - {None}
        template = [entry for entry in template if entry not in config and not _is_named(entry, names)]
    return copy.deepcopy(template) + copy.deepcopy(config)


def _is_named(entry: Any, names: set[Any]) -> bool:
    return isinstance(entry, dict) and entry.get("name") in names


def _container_path(entry: Any) -> str | None:
    """Return the container path of a mount in either form: a map or host:container[:mode]."""
    if isinstance(entry, str):
        parts = entry.split(":")
        found = parts[1] if len(parts) > 1 else None
    else:
        found = entry.get("container_path") if isinstance(entry, dict) else None
    return posixpath.normpath(found) if isinstance(found, str) else None


def _images(template: Any, config: Any) -> Any:
    """One image is that of each device; per device the config's wins."""
    if not isinstance(config, dict):
        return copy.deepcopy(config)
    theirs = template if isinstance(template, dict) else dict.fromkeys(DEVICES, template)
    ours = {name: image for name, image in config.items() if image is not None}
    return {**_named(theirs, ours), **_named(ours, theirs)}


def _named(images: dict[str, Any], others: dict[str, Any]) -> dict[str, Any]:
    """`gpu` is the older name of `cuda`: as the newer name where the other part has that one."""
    rename = "gpu" in images and "cuda" in others and "cuda" not in images
    return {"cuda" if rename and name == "gpu" else name: image for name, image in images.items()}


def _variables(template: Any, config: Any) -> Any:
    """Lists are joined; once either part tells devices apart, both are taken per device."""
    if isinstance(template, list) and isinstance(config, list):
        return [*template, *config]
    first, second = _per_device(template), _per_device(config)
    if first is None or second is None:
        wrong = config if second is None else template  # validation will say how
        return copy.deepcopy(wrong)
    return {device: first[device] + second[device] for device in DEVICES}


def _per_device(value: Any) -> dict[str, list[Any]] | None:
    if isinstance(value, (list, str)):
        entries = [value] if isinstance(value, str) else value
        return {device: list(entries) for device in DEVICES}
    if not isinstance(value, dict):
        return None
    found = {device: value.get(device, value.get("gpu") if device == "cuda" else None) for device in DEVICES}
    listed = {device: _entries(inner) for device, inner in found.items()}
    known = {device: each for device, each in listed.items() if each is not None}
    return None if set(value) - {*DEVICES, "gpu"} or len(known) < len(listed) else known


def _entries(value: Any) -> list[Any] | None:
    if isinstance(value, dict):
        return pairs(value)
    return list(value or []) if isinstance(value, (list, type(None))) else None
