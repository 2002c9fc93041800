"""The settings of a Slurm pool, as people write them: `login=stars,partition=gpu`. The server checks them."""

from __future__ import annotations

import re
import shlex
from typing import Any, Dict

FORM = "SETTING=VALUE,…"
_NUMBERS = ("slots_per_node", "max_fed")
_SWITCHES = {"yes": True, "true": True, "no": False, "false": False}
#: a comma or space before the name of a setting: values such as `--exclude=g1,g2` have commas too
_BETWEEN = re.compile(r"[,\s]+(?=[a-z_]+=)")


def read(text: str) -> Dict[str, Any]:
    """Setting -> value; None for one that is taken back (`account=`). Raises ValueError with what is allowed."""
    found: Dict[str, Any] = {}
    for part in filter(None, _BETWEEN.split(text.strip())):
        name, equals, value = part.strip(", ").partition("=")
        if not equals or not name:
            raise ValueError(f"Found {part!r}; allowed: {FORM}, such as login=stars,partition=gpu.")
        found[name] = _value(name, value.strip()) if value.strip() else None
    return found


def _value(name: str, text: str) -> Any:
    if name in _NUMBERS and text.isdecimal():
        return int(text)
    if name == "folder_is_shared":
        return _SWITCHES.get(text.lower(), text)
    if name == "sbatch_args":
        try:
            return shlex.split(text)
        except ValueError as error:
            raise ValueError(f"Found sbatch_args {text!r}: {error}.") from error
    if name == "ends":
        pairs = (word.partition(":") for word in re.split(r"[,\s]+", text))
        return {state: meaning for state, _, meaning in pairs}
    return text


def merged(before: Dict[str, Any], given: Dict[str, Any]) -> Dict[str, Any]:
    """The settings with those that were given; None takes one back."""
    return {name: value for name, value in {**before, **given}.items() if value is not None}


def written(settings: Dict[str, Any]) -> str:
    """The same in text."""
    return ",".join(f"{name}={_text(value)}" for name, value in settings.items())


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return " ".join(shlex.quote(each) for each in value)
    if isinstance(value, dict):
        return " ".join(f"{state}:{meaning}" for state, meaning in value.items())
    return str(value)
