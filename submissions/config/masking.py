"""Secrets of a config are shown as a mask; a masked copy that comes back gets them again."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Sequence
from typing import Any

from trainmaster import yamltext

MASK = "********"
#: fields that are secret wherever they stand in `registry_auth` and `checkpoint_storage`
_FIELDS = {
    "registry_auth": ("password", "auth", "identitytoken", "registrytoken"),
    "checkpoint_storage": ("access_key", "secret_key", "connection_string", "credential"),
}
_NAME = re.compile(
    r"(?:^|_)(?:secret|password|passwd|passphrase|pass|pwd|token|auth|credentials?|apikey|(?:api|access|private|account|encryption|signing|ssh)_?key|key)(?:_|$|[0-9])",
    re.IGNORECASE,
)


def suggests_secret(variable: str) -> bool:
    """Whether the name of an environment variable suggests that its value is a secret."""
    return bool(_NAME.search(variable))


def is_secret(path: Sequence[str | int]) -> bool:
    """Whether what stands at `path` of a config may not be shown, right or wrong as it may be."""
    if "environment_variables" in path or tuple(path) in (("environment",), ("environment", "registry_auth")):
        return True
    return any(section in path and set(path) & set(fields) for section, fields in _FIELDS.items())


def masked(config: dict[str, Any]) -> dict[str, Any]:
    """A copy of an effective or a submitted config that may be shown to whoever may see the experiment."""
    found = copy.deepcopy(config)
    environment = found.get("environment")
    if isinstance(environment, dict):
        _mask_fields(environment.get("registry_auth"), _FIELDS["registry_auth"])
        if "environment_variables" in environment:
            environment["environment_variables"] = _in_variables(
                environment["environment_variables"], _mask_pair
            )
    _mask_fields(found.get("checkpoint_storage"), _FIELDS["checkpoint_storage"])
    return found


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
    variables = _pairs((original.get("environment") or {}).get("environment_variables"))

    def put_back(pair: str) -> str:
        name, _, value = pair.partition("=")
        return f"{name}={variables[name]}" if value == MASK and name in variables else pair

    found: dict[str, Any] = _restored(config, original)
    environment = found.get("environment")
    if isinstance(environment, dict) and "environment_variables" in environment:
        environment["environment_variables"] = _in_variables(environment["environment_variables"], put_back)
    return found


def _restored(value: Any, original: Any) -> Any:
    if isinstance(value, dict):
        known = original if isinstance(original, dict) else {}
        return {key: _restored(inner, known.get(key)) for key, inner in value.items()}
    if value == MASK and isinstance(original, str):
        return original
    return copy.deepcopy(value)


def _mask_fields(section: Any, fields: Sequence[str]) -> None:
    if isinstance(section, dict):
        section.update({name: MASK for name in fields if section.get(name)})


def _mask_pair(pair: str) -> str:
    name, _, value = pair.partition("=")
    return f"{name}={MASK}" if value and suggests_secret(name) else pair


def _in_variables(value: Any, change: Callable[[str], str]) -> Any:
    """`value`, any form of environment_variables, with `change` applied to each NAME=VALUE."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [change(pair) if isinstance(pair, str) else pair for pair in value]
    if isinstance(value, dict):
        return {name: _in_map(name, inner, change) for name, inner in value.items()}
    return value


def _in_map(name: str, value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, (list, dict)):
        return _in_variables(value, change)
    before = f"{name}={value}"
    after = change(before)
    return value if after == before else after.partition("=")[2]


def _pairs(value: Any) -> dict[str, str]:
    found: dict[str, str] = {}

    def note(pair: str) -> str:
        name, _, text = pair.partition("=")
        found[name] = text
        return pair

    _in_variables(value, note)
    return found
