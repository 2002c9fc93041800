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
        raise refuse("cuda, or gpu, which is its older name, not both")
    if "gpu" in value:
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


def _script(value: str) -> str:
    if _SOURCING.match(value.strip()):
        raise refuse(
            "the script that is sourced, with its arguments: ~/venv/bin/activate, /opt/conda/bin/activate vision"
        )
    return value


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _variable(value: Any) -> Any:
    if isinstance(value, str) and not _VARIABLE.match(value):
        raise refuse("NAME=VALUE with a name of letters, digits and _")
    return value


_Pair = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*=")]
_Map = dict[str, str | float | bool]
Variables = Annotated[
    list[Annotated[str, BeforeValidator(_variable, json_schema_input_type=_Pair)]],
    BeforeValidator(_as_list, json_schema_input_type=list[_Pair] | _Map),
]


class VariablesPerDevice(Section):
    """Variables by the kind of slot that a run gets; `gpu` is an older name of `cuda`."""

    cpu: Variables = []
    """NAME=VALUE for runs on cpu slots, or without slots."""
    cuda: Variables = []
    """NAME=VALUE for runs on GPUs of NVIDIA."""
    rocm: Variables = []
    """NAME=VALUE for runs on GPUs of AMD."""


class ImagePerDevice(Section):
    """Images by the kind of slot that a run gets; `gpu` is an older name of `cuda`."""

    cpu: str | None = None
    """The image for runs on cpu slots, or without slots."""
    cuda: str | None = None
    """The image for runs on GPUs of NVIDIA."""
    rocm: str | None = None
    """The image for runs on GPUs of AMD."""


class _OlderVariables(VariablesPerDevice):
    gpu: Variables = []
    """An older name of `cuda`."""


class _OlderImages(ImagePerDevice):
    gpu: str | None = None
    """An older name of `cuda`."""


class ProxyPort(Section):
    """A port of the run that the server would pass on."""

    proxy_port: Annotated[int, Field(ge=1, le=65535)]
    """The port on which the run listens."""
    proxy_tcp: bool = False
    """True for TCP other than HTTP."""
    unauthenticated: bool = False
    """True lets anybody in, without a login."""


class RegistryAuth(Section):
    """How to log in where the image comes from; what is secret in it is never shown."""

    username: str | None = None
    """The account."""
    password: str | None = None
    """Its password; masked wherever the config is shown."""
    auth: str | None = None
    """Both in base64, as Docker's own config has them; masked."""
    email: str | None = None
    """The account's mail address; registries of today ignore it."""
    serveraddress: str | None = None
    """The registry; empty is the one that the image names."""
    identitytoken: str | None = None
    """A token in place of the password; masked."""
    registrytoken: str | None = None
    """A bearer token for the registry; masked."""


class Hooks(Section):
    """Trainmaster's own: commands on each host of a run, in the environment and folder of its entrypoint."""

    pre: Entrypoint | None = None
    """Before the entrypoint; when it fails, the entrypoint is not started, and the run ends with its exit code."""
    post: Entrypoint | None = None
    """After the entrypoint, however that ended; its own end changes nothing."""
    timeout_seconds: Annotated[float, Field(gt=0, le=86400)] = 600
    """How long either may take until it is killed."""


class Environment(Section):
    environment_variables: Annotated[
        VariablesPerDevice,
        BeforeValidator(_per_device, json_schema_input_type=list[_Pair] | _OlderVariables),
    ] = VariablesPerDevice()
    """A list of NAME=VALUE, or per kind of slot (cpu, cuda, rocm) such a list or a map of names to values."""
    hooks: Hooks | None = None
    """Trainmaster's own: commands before and after the entrypoint."""
    python: Annotated[str, Field(min_length=1)] | None = None
    """Trainmaster's own: the interpreter on the host, instead of the one chosen for host or pool."""
    activate: Annotated[str, Field(min_length=1), AfterValidator(_script)] | None = None
    """Trainmaster's own: a script on the host that is sourced before the entrypoint (conda, venv)."""
    sdk: Literal["trainmaster", "installed"] = "trainmaster"
    """Trainmaster's own: which package `import determined` means; `installed` is the host's."""
    image: (
        Annotated[ImagePerDevice, BeforeValidator(_per_device, json_schema_input_type=str | _OlderImages)]
        | None
    ) = None
    """The container image: one for all, or one per kind of slot (cpu, cuda, rocm)."""
    ports: dict[str, Annotated[int, Field(ge=1, le=65535)]] = {}
    """Names of ports of a container, with their numbers."""
    proxy_ports: list[ProxyPort] = []
    """Ports of the run that the server would pass on."""
    force_pull_image: bool = False
    """True fetches the image anew before each run."""
    registry_auth: RegistryAuth | None = None
    """How to log in where the image comes from."""
    add_capabilities: list[str] = []
    """Linux capabilities that a container gets beside the usual ones, such as SYS_PTRACE."""
    drop_capabilities: list[str] = []
    """Linux capabilities that are taken from it."""
    pod_spec: dict[str, Any] | None = None
    """Of Kubernetes, which is not used here: without effect."""


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
