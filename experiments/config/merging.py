"""A template and an experiment's config become one; a typed hyperparameter and a length are one value each."""

from __future__ import annotations

from typing import Any

from experiments.config.searcher import SEARCHERS
from experiments.config.storage import STORAGES
from searching.hyperparameters import is_typed
from submissions.config import merging

Path = tuple[str, ...]
_WHOLE: set[Path] = {
    ("searcher", "max_length"),
    ("searcher", "bracket_rungs"),
    ("min_checkpoint_period",),
    ("min_validation_period",),
}


def _is_one_value(path: Path, template: Any, config: Any) -> bool:
    if path in _WHOLE:
        return True
    if path[0] != "hyperparameters" or len(path) == 1:
        return False
    both_maps = isinstance(template, dict) and isinstance(config, dict)
    return not both_maps or is_typed(template) or is_typed(config)


_RULES = merging.Rules(
    {("searcher",): ("name", SEARCHERS), ("checkpoint_storage",): ("type", STORAGES)},
    _is_one_value,
    frozenset({"hyperparameters"}),
)


def merge(template: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    """Both in one, neither of them changed. Raises ConfigError where the two cannot be joined."""
    return merging.merge(template, config, _RULES)


def override(config: dict[str, Any], changes: dict[str, Any], path: Path = ()) -> dict[str, Any]:
    """The config with some of its values replaced, lists too; maps are changed entry by entry."""
    found = dict(config)
    for name, value in changes.items():
        here, kept = (*path, str(name)), config.get(name)
        if isinstance(kept, dict) and isinstance(value, dict) and not _is_one_value(here, kept, value):
            found[name] = override(kept, value, here)
        else:
            found[name] = value
    return found
