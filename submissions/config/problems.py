"""What is wrong with a config: where, what was found, what is allowed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from accounts.refusals import Refusal

ROOT = "<config>"
#: as `found` of a field that is required and absent
NOTHING = "nothing"
REQUIRED = "a value"


@dataclass(frozen=True)
class Problem:
    path: str
    found: str
    allowed: str

    def __str__(self) -> str:
        return f"{self.path}: {worded(self.found, self.allowed)}"


class ConfigError(Refusal):
    """A config that cannot be used; `problems` holds every one of its faults."""

    def __init__(self, problems: Sequence[Problem], subject: str = "configuration") -> None:
        self.problems = list(problems)
        super().__init__(f"invalid {subject}: " + "; ".join(str(problem) for problem in self.problems))


def worded(found: str, allowed: str) -> str:
    """`is required`, or what was found and what is allowed."""
    return "is required" if allowed == REQUIRED else f"found {found}, allowed: {allowed}"


def shown(value: object) -> str:
    """`value` as one would write it in the config, at most 80 characters."""
    numbers = (
        isinstance(value, dict) and value and all(type(inner) in (int, float) for inner in value.values())
    )
    if isinstance(value, dict) and not numbers:
        # texts in a map are not shown: one of them may be secret
        text = "a map with the keys " + ", ".join(map(str, value)) if value else "an empty map"
    elif value is None:
        text = "null"
    else:
        text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 80 else text[:77] + "..."


def at(path: Sequence[str | int]) -> str:
    """("resources", "devices", 0) → "<config>.resources.devices[0]"."""
    return ROOT + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)


def has(value: Any, step: str | int) -> bool:
    """Whether `step` leads anywhere in `value`."""
    return step in value if isinstance(value, dict) else isinstance(value, list) and step in range(len(value))


def look_up(config: Any, path: Sequence[str | int]) -> Any:
    """The value at `path`, or None where there is none."""
    for step in path:
        if not has(config, step):
            return None
        config = config[step]
    return config
