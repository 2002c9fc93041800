"""A template and a config become one config.

Scalar: the config wins. List: the template's entries, then the config's. Map: recursively. A bind mount or
device of the template is dropped when the config has one with its container_path. A typed hyperparameter, the
searcher's own lists, a length and the entrypoint are one value each.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from experiments.config.environment import DEVICES
from experiments.config.hyperparameters import is_typed
from experiments.config.problems import ConfigError, Problem, at, shown
from experiments.config.searcher import SEARCHERS
from experiments.config.section import Section
from experiments.config.storage import STORAGES

Path = tuple[str, ...]
#: one value each: the config's replaces the template's
_WHOLE: set[Path] = {
    ("entrypoint",),
    ("searcher", "max_length"),
    ("searcher", "bracket_rungs"),
    ("min_checkpoint_period",),
    ("min_validation_period",),
    ("environment", "image"),
    ("resources", "shm_size"),
}
_BY_CONTAINER_PATH: set[Path] = {("bind_mounts",), ("resources", "devices")}
_VARIABLES: Path = ("environment", "environment_variables")
_UNIONS: Mapping[Path, tuple[str, Mapping[str, type[Section]]]] = {
    ("searcher",): ("name", SEARCHERS),
    ("checkpoint_storage",): ("type", STORAGES),
}


def merge(template: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    """Both in one, neither of them changed. Raises ConfigError where the two cannot be joined."""
    problems: list[Problem] = []
    merged: dict[str, Any] = _maps(template, config, (), problems)
    if problems:
        raise ConfigError(problems)
    return merged


def _maps(
    template: dict[str, Any], config: dict[str, Any], path: Path, problems: list[Problem]
) -> dict[str, Any]:
    template = _fields_for(config, template, path)
    merged = {name: copy.deepcopy(value) for name, value in template.items() if config.get(name) is None}
    for name, value in config.items():
        if template.get(name) is None:
            merged[name] = (
                copy.deepcopy(value) if value is not None or name not in template else template[name]
            )
        elif value is not None:
            merged[name] = _values(template[name], value, (*path, name), problems)
    return merged


def _fields_for(config: dict[str, Any], template: dict[str, Any], path: Path) -> dict[str, Any]:
    """Of a template's searcher or storage of another kind, only what the config's kind knows too."""
    if path not in _UNIONS:
        return template
    tag, kinds = _UNIONS[path]
    kind = config.get(tag)
    if kind is None or kind == template.get(tag) or kind not in kinds:
        return template
    return {name: value for name, value in template.items() if name in kinds[kind].model_fields}


def _values(template: Any, config: Any, path: Path, problems: list[Problem]) -> Any:
    if path in _WHOLE:
        return copy.deepcopy(config)
    if path[0] == "hyperparameters" and len(path) > 1:
        return _hyperparameters(template, config, path, problems)
    if path == _VARIABLES:
        return _variables(template, config)
    if isinstance(template, dict) and isinstance(config, dict):
        return _maps(template, config, path, problems)
    if isinstance(template, list) and isinstance(config, list):
        return _lists(template, config, path)
    if isinstance(template, (dict, list)) or isinstance(config, (dict, list)):
        problems.append(Problem(at(path), shown(config), f"{_shape(template)}, as in the template"))
    return copy.deepcopy(config)


def _shape(value: Any) -> str:
    return "a map" if isinstance(value, dict) else "a list" if isinstance(value, list) else "a single value"


def _hyperparameters(template: Any, config: Any, path: Path, problems: list[Problem]) -> Any:
    both_maps = isinstance(template, dict) and isinstance(config, dict)
    if both_maps and not is_typed(template) and not is_typed(config):
        return _maps(template, config, path, problems)
    return copy.deepcopy(config)


def _lists(template: list[Any], config: list[Any], path: Path) -> list[Any]:
    if path in _BY_CONTAINER_PATH:
        taken = {_container_path(entry) for entry in config} - {None}
        template = [entry for entry in template if _container_path(entry) not in taken]
    return copy.deepcopy(template) + copy.deepcopy(config)


def _container_path(entry: Any) -> str | None:
    """Of both forms, a map and host:container[:mode]."""
    if isinstance(entry, str):
        parts = entry.split(":")
        return parts[1] if len(parts) > 1 else None
    found = entry.get("container_path") if isinstance(entry, dict) else None
    return found if isinstance(found, str) else None


def _variables(template: Any, config: Any) -> Any:
    """Lists are joined; once either part tells devices apart, both are taken per device."""
    if isinstance(template, list) and isinstance(config, list):
        return [*template, *config]
    first, second = _per_device(template), _per_device(config)
    if first is None or second is None:
        return copy.deepcopy(config)  # validation will say what is wrong with it
    return {device: first[device] + second[device] for device in DEVICES}


def _per_device(value: Any) -> dict[str, list[Any]] | None:
    if isinstance(value, (list, str)):
        entries = [value] if isinstance(value, str) else value
        return {device: list(entries) for device in DEVICES}
    if not isinstance(value, dict):
        return None
    found = {device: value.get(device, value.get("gpu") if device == "cuda" else None) for device in DEVICES}
    known = all(isinstance(inner, (list, dict, type(None))) for inner in found.values())
    if set(value) - {*DEVICES, "gpu"} or not known:
        return None
    return {device: _entries(inner) for device, inner in found.items()}


def _entries(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [f"{name}={inner}" for name, inner in value.items()]
    return list(value or [])
