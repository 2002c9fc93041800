"""`environment`: variables, the interpreter, and what containers would need."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from submissions.config.section import Entrypoint, Section, refuse

DEVICES = ("cpu", "cuda", "rocm")
#: how a shell is told to source; the field is what comes after
_SOURCING = re.compile(r"(source|\.|conda|mamba|micromamba)(\s|$)")
_VARIABLE = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*=", re.DOTALL)


def _devices_named(value: dict[str, Any]) -> dict[str, Any]:
    """`gpu` is the older name of `cuda`."""
    if "gpu" in value and "cuda" in value:
        raise refuse("either cuda or gpu (its older name), not both")
    if "gpu" in value:
        return {"cuda" if key == "gpu" else key: inner for key, inner in value.items()}
    return value


def _per_device(value: Any) -> Any:
    if isinstance(value, (str, list)):
        return dict.fromkeys(DEVICES, value)
    return _devices_named(value) if isinstance(value, dict) else value


def pairs(variables: dict[str, Any]) -> list[str] | None:
    """A map of names to values as NAME=VALUE; None if a value is not a text, a number or a truth value."""
    if not all(isinstance(inner, (str, int, float)) for inner in variables.values()):
        return None
    return [f"{name}={_text(inner)}" for name, inner in variables.items()]


def _as_list(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    listed = pairs(value)
    if listed is None:
        raise refuse("a list of NAME=VALUE, or a map of names to values")
    return listed


def _script(value: str) -> str:
    if _SOURCING.match(value.strip()):
        raise refuse(
            "a script to source, with its arguments, such as ~/venv/bin/activate or /opt/conda/bin/activate vision"
        )
    return value


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _variable(value: Any) -> Any:
    if isinstance(value, str) and not _VARIABLE.match(value):
        raise refuse("NAME=VALUE, where NAME has letters, digits and _")
    return value


_Pair = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*=")]
_Map = dict[str, str | float | bool]
Variables = Annotated[
    list[Annotated[str, BeforeValidator(_variable, json_schema_input_type=_Pair)]],
    BeforeValidator(_as_list, json_schema_input_type=list[_Pair] | _Map),
]


class VariablesPerDevice(Section):
    """Variables by slot type; `gpu` is an older name for `cuda`."""

    cpu: Variables = []
    """NAME=VALUE for runs on cpu slots or without slots."""
    cuda: Variables = []
    """NAME=VALUE for runs on NVIDIA GPUs."""
    rocm: Variables = []
    """NAME=VALUE for runs on AMD GPUs."""


class ImagePerDevice(Section):
    """Images by slot type; `gpu` is an older name for `cuda`."""

    cpu: str | None = None
    """The image for runs on cpu slots or without slots."""
    cuda: str | None = None
    """The image for runs on NVIDIA GPUs."""
    rocm: str | None = None
    """The image for runs on AMD GPUs."""


class _OlderVariables(VariablesPerDevice):
    gpu: Variables = []
    """An older name for `cuda`."""


class _OlderImages(ImagePerDevice):
    gpu: str | None = None
    """An older name for `cuda`."""


class ProxyPort(Section):
    """A port of the run that the server would forward."""

    proxy_port: Annotated[int, Field(ge=1, le=65535)]
    """The port on which the run listens."""
    proxy_tcp: bool = False
    """True for TCP other than HTTP."""
    unauthenticated: bool = False
    """True allows access without a login."""


class RegistryAuth(Section):
    """The login for the image registry; its secrets are never shown."""

    username: str | None = None
    """The account."""
    password: str | None = None
    """Its password; masked wherever the config is shown."""
    auth: str | None = None
    """Username and password in base64, as in Docker's config; masked."""
    email: str | None = None
    """The account's email address; current registries ignore it."""
    serveraddress: str | None = None
    """The registry; if empty, the one in the image name."""
    identitytoken: str | None = None
    """A token instead of the password; masked."""
    registrytoken: str | None = None
    """A bearer token for the registry; masked."""


class Hooks(Section):
    """Trainmaster extension: commands on each host of a run, in the entrypoint's environment and folder."""

    pre: Entrypoint | None = None
    """Runs before the entrypoint. If it fails, the entrypoint is not started, and the run ends with its exit code."""
    post: Entrypoint | None = None
    """Runs after the entrypoint, however it ended; its own exit code has no effect."""
    timeout_seconds: Annotated[float, Field(gt=0, le=86400)] = 600
    """How long each may take before it is killed."""


class Environment(Section):
    environment_variables: Annotated[
        VariablesPerDevice,
        BeforeValidator(_per_device, json_schema_input_type=list[_Pair] | _OlderVariables),
    ] = VariablesPerDevice()
    """A list of NAME=VALUE; or, per slot type (cpu, cuda, rocm), such a list or a map of names to values."""
    hooks: Hooks | None = None
    """Trainmaster extension: commands before and after the entrypoint."""
    python: Annotated[str, Field(min_length=1)] | None = None
    """Trainmaster extension: the interpreter on the host, instead of the one chosen for host or pool."""
    activate: Annotated[str, Field(min_length=1), AfterValidator(_script)] | None = None
    """Trainmaster extension: a script on the host to source before the entrypoint (conda, venv)."""
    sdk: Literal["trainmaster", "installed"] = "trainmaster"
    """Trainmaster extension: which package `import determined` loads; `installed` is the host's."""
    image: (
        Annotated[ImagePerDevice, BeforeValidator(_per_device, json_schema_input_type=str | _OlderImages)]
        | None
    ) = None
    """The container image: one for all, or one per slot type (cpu, cuda, rocm)."""
    ports: dict[str, Annotated[int, Field(ge=1, le=65535)]] = {}
    """Names of ports of a container, with their numbers."""
    proxy_ports: list[ProxyPort] = []
    """Ports of the run that the server would forward."""
    force_pull_image: bool = False
    """True pulls the image again before each run."""
    registry_auth: RegistryAuth | None = None
    """The login for the image registry."""
    add_capabilities: list[str] = []
    """Linux capabilities to add to the container, such as SYS_PTRACE."""
    drop_capabilities: list[str] = []
    """Linux capabilities to drop."""
    pod_spec: dict[str, Any] | None = None
    """For Kubernetes, which is not used here; no effect."""


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


def hooks_of(environment: dict[str, Any]) -> dict[str, Any] | None:
    """The hooks of a run spec; None where the config has none. Each may be text for the shell or a list of words."""
    hooks = environment.get("hooks") or {}
    return hooks if hooks.get("pre") or hooks.get("post") else None
