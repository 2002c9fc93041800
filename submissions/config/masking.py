"""Secrets of a config are shown as a mask; a masked copy that comes back gets them again."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from trainmaster import yamltext
from trainmaster.secret_words import suggests_secret, without_passwords

MASK = "********"
Path = tuple[str | int, ...]
#: of a storage section
STORAGE_SECRETS = ("access_key", "secret_key", "connection_string", "credential")
#: fields that are secret wherever they stand in these sections
_FIELDS = {
    "registry_auth": ("password", "auth", "identitytoken", "registrytoken"),
    "checkpoint_storage": STORAGE_SECRETS,
    "tensorboard_storage": STORAGE_SECRETS,
}
#: sections whose fields users name: what is secret there only its name says
_FREE = ("data", "integrations", "pachyderm", "security")
_VARIABLES = "environment_variables"
# Less than of variables: `label_key`, `auth` and `pad_token` are ordinary names of data.
_SECRET_FIELD = re.compile(
    r"(?:^|_)(?:secret|password|passwd|passphrase|pwd|credentials?|webhook|apikey|(?:api|access|private|secret|account|encryption|signing|ssh)_?key|(?:api|access|auth|bearer|refresh|session)_?token)(?:_|$)|^token$",
    re.IGNORECASE,
)


def is_secret(path: Sequence[str | int]) -> bool:
    """Whether what stands at `path` of a config may not be shown, right or wrong as it may be."""
    if _VARIABLES in path or tuple(path) in (("environment",), ("environment", "registry_auth")):
        return True
    return _is_secret_field(tuple(path))


def masked(config: dict[str, Any]) -> dict[str, Any]:
    """A copy of an effective or a submitted config that may be shown to whoever may see the experiment."""
    found: dict[str, Any] = _changed(config, (), _hidden)
    return found


@lru_cache(maxsize=64)  # programs poll experiments, and YAML takes a millisecond to read
def masked_text(text: str) -> str:
    """The submitted YAML, word for word where it holds no secret, else written anew with masks."""
    try:
        config = yamltext.load(text)
    except yamltext.YamlError:
        return text
    if not isinstance(config, dict):
        return text
    hidden = masked(config)
    return text if hidden == config else yamltext.dump(hidden)


def restored(config: dict[str, Any], original: dict[str, Any]) -> dict[str, Any]:
    """`config`, with each mask in it replaced by what `original` has at the same place (for forks)."""
    known: dict[tuple[Path, Any], Any] = {}
    variables: dict[str, Any] = {}

    def note(value: Any, path: Path) -> Any:
        if _VARIABLES in path:
            name, inner = _variable(value, path)
            variables[name] = inner
        else:
            place = tuple(step for step in path if isinstance(step, str))
            known.setdefault((place, _hidden(value, path)), value)
        return value

    def put_back(value: Any, path: Path) -> Any:
        if not isinstance(value, str) or MASK not in value:
            return value
        if _VARIABLES not in path:
            place = tuple(step for step in path if isinstance(step, str))
            return known.get((place, value), value)
        name, inner = _variable(value, path)
        if name not in variables or _hidden_variable(name, variables[name]) != inner:
            return value
        return f"{name}={variables[name]}" if isinstance(path[-1], int) else variables[name]

    _changed(original, (), note)
    found: dict[str, Any] = _changed(config, (), put_back)
    return found


def remarks(config: dict[str, Any]) -> list[str]:
    """A sentence for each mask in an effective config: what was shown has been submitted, without the secret."""
    found: list[str] = []

    def look(value: Any, path: Path) -> Any:
        if isinstance(value, str) and MASK in value:
            steps = path if _VARIABLES not in path else (*path[:2], _variable(value, path)[0])
            place = ".".join(str(step) for step in steps)
            found.append(f"{place} is a mask, not the secret itself: enter the secret.")
        return value

    _changed(config, (), look)
    return list(dict.fromkeys(found))


def _changed(value: Any, path: Path, change: Callable[[Any, Path], Any]) -> Any:
    """A copy of `value` with `change` applied to each single value in it, of which it gets the path."""
    if isinstance(value, dict):
        return {name: _changed(inner, (*path, name), change) for name, inner in value.items()}
    if isinstance(value, list):
        return [_changed(inner, (*path, index), change) for index, inner in enumerate(value)]
    return copy.copy(change(value, path))


def _hidden(value: Any, path: Path) -> Any:
    """A single value as it is shown."""
    if _VARIABLES in path:
        name, inner = _variable(value, path)
        shown = _hidden_variable(name, inner)
        return value if shown == inner else f"{name}={shown}" if isinstance(path[-1], int) else shown
    if value and _is_secret_field(path) and not isinstance(value, bool):
        return MASK
    return _without_passwords(value)


def _variable(value: Any, path: Path) -> tuple[str, Any]:
    """(name, value) of an environment variable: a pair in a list, or an entry of a map."""
    if isinstance(path[-1], int) or path[-1] == _VARIABLES:
        name, _, inner = str(value).partition("=")
        return name, inner
    return str(path[-1]), value


def _hidden_variable(name: str, value: Any) -> Any:
    return MASK if value not in (None, "") and suggests_secret(name) else _without_passwords(value)


def _without_passwords(value: Any) -> Any:
    return without_passwords(value, MASK) if isinstance(value, str) else value


def _is_secret_field(path: Path) -> bool:
    if any(section in path and set(path) & set(fields) for section, fields in _FIELDS.items()):
        return True
    free = bool(path) and path[0] in _FREE
    return free and any(isinstance(step, str) and _SECRET_FIELD.search(step) for step in path[1:])
