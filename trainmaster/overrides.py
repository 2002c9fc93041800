"""`--config resources.slots_per_trial=2`: single values of a config, given on a command line."""

from __future__ import annotations

import copy
from typing import Any, Dict, Sequence

from trainmaster import yamltext


class BadOverride(ValueError):
    """An override that cannot be applied; the message is a sentence."""

    def __init__(self, override: str, found: str, allowed: str) -> None:
        self.override = override
        self.found = found
        self.allowed = allowed
        super().__init__(f"--config {override}: found {found}, allowed: {allowed}")


def apply_overrides(config: Dict[str, Any], overrides: Sequence[str]) -> Dict[str, Any]:
    """A copy of `config` with each `path.to.field=value` set; values are YAML. Raises BadOverride."""
    changed = copy.deepcopy(config)
    for override in overrides:
        path, equals, text = override.partition("=")
        steps = path.split(".")
        if not equals or not all(steps):
            raise BadOverride(override, f"'{override}'", "path.to.field=value")
        try:
            value = yamltext.load(text)
        except yamltext.YamlError as error:
            raise BadOverride(override, f"a value that is not YAML ({error})", "a YAML value") from error
        here = changed
        for step in steps[:-1]:
            inner = here.get(step)
            if inner is None:
                inner = here[step] = {}
            elif not isinstance(inner, dict):
                raise BadOverride(override, f"{step}, which is not a map", "a path through maps")
            here = inner
        here[steps[-1]] = value
    return changed
