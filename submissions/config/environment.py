"""`environment`: variables, the interpreter, and what containers would need."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from submissions.config.section import Section, refuse

DEVICES = ("cpu", "cuda", "rocm")
_VARIABLE = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*=", re.DOTALL)


def _devices_named(value: dict[str, Any]) -> dict[str, Any]:
    """`gpu` is the older name of `cuda`."""
    if "gpu" in value and "cuda" not in value:
        return {"cuda" if key == "gpu" else key: inner for key, inner in value.items()}
    return value


def _per_device(value: Any) -> Any:
    if isinstance(value, (str, list)):
        return dict.fromkeys(DEVICES, value)
    return _devices_named(value) if isinstance(value, dict) else value


def _as_list(value: Any) -> Any:
    if isinstance(value, dict):
        if not all(isinstance(inner, (str, int, float)) for inner in value.values()):
            raise refuse("a list of NAME=VALUE, or a map of names to values")
        return [f"{name}={_text(inner)}" for name, inner in value.items()]
    return value


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _variable(value: Any) -> Any:
    if isinstance(value, str) and not _VARIABLE.match(value):
        raise refuse("NAME=VALUE with a name of letters, digits and _")
    return value


Variables = Annotated[list[Annotated[str, BeforeValidator(_variable)]], BeforeValidator(_as_list)]


class VariablesPerDevice(Section):
    cpu: Variables = []
    cuda: Variables = []
    rocm: Variables = []


class ImagePerDevice(Section):
    cpu: str | None = None
    cuda: str | None = None
    rocm: str | None = None


class ProxyPort(Section):
    proxy_port: Annotated[int, Field(ge=1, le=65535)]
    proxy_tcp: bool = False
    unauthenticated: bool = False


class RegistryAuth(Section):
    username: str | None = None
    password: str | None = None
    auth: str | None = None
    email: str | None = None
    serveraddress: str | None = None
    identitytoken: str | None = None
    registrytoken: str | None = None


class Environment(Section):
    environment_variables: Annotated[VariablesPerDevice, BeforeValidator(_per_device)] = VariablesPerDevice()
    """A list of NAME=VALUE, or one list per kind of slot."""
    python: Annotated[str, Field(min_length=1)] | None = None
    """Trainmaster's own: the interpreter on the host, instead of the one chosen for host or pool."""
    activate: Annotated[str, Field(min_length=1)] | None = None
    """Trainmaster's own: a script on the host that is sourced before the entrypoint (conda, venv)."""
    sdk: Literal["trainmaster", "installed"] = "trainmaster"
    """Trainmaster's own: which package `import determined` means; `installed` is the host's."""
    image: Annotated[ImagePerDevice, BeforeValidator(_per_device)] | None = None
    ports: dict[str, Annotated[int, Field(ge=1, le=65535)]] = {}
    proxy_ports: list[ProxyPort] = []
    force_pull_image: bool = False
    registry_auth: RegistryAuth | None = None
    add_capabilities: list[str] = []
    drop_capabilities: list[str] = []
    pod_spec: dict[str, Any] | None = None


def variables(value: object, slot_kind: str) -> dict[str, str]:
    """`K=V` list, or a map of such lists per device kind, as the config has it."""
    if isinstance(value, dict):
        device = "cuda" if slot_kind == "cuda" else "rocm" if slot_kind == "rocm" else "cpu"
        value = value.get(device) or (value.get("gpu") if device == "cuda" else None)
    result: dict[str, str] = {}
    for item in value if isinstance(value, list) else []:
        name, _, text = str(item).partition("=")
        result[name] = text
    return result


def sdk_variables(environment: dict[str, Any]) -> dict[str, str]:
    """What tells Python on the host that `import determined` means the package installed there."""
    return {"TRAINMASTER_SDK": "installed"} if environment.get("sdk") == "installed" else {}
