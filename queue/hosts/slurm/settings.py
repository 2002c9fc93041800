"""The settings of a pool of kind `slurm`: what they may be, and the one typed form of them. Pure.

`ResourcePool.slurm` keeps them as JSON; {} is a pool of hosts reached by SSH. Facts that Slurm tells are a row of their
own (`hosts.models.SlurmFacts`).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

from hosts.slurm import arguments, ends
from trainmaster.cli import ssh_config
from trainmaster.cli.errors import CliError

MAX_FED_DEFAULT = 10
_MAX_FED_MOST = 1000
SLOTS_MOST = 1024
_TEXT_MOST = 255
_SLOT_TYPES = ("cuda", "rocm", "cpu")
_ACCOUNTS = ("one", "own")
_MACHINE = re.compile(r"[A-Za-z0-9:][A-Za-z0-9.:_-]{0,252}")
_WORD = re.compile(r"[A-Za-z0-9_.:@+-]+")

Fault = str | None


@dataclass(frozen=True)
class SlurmSettings:
    """How the pool is reached and what its jobs ask for. Empty: as the cluster has it."""

    login: str
    partition: str = ""
    account: str = ""
    qos: str = ""
    #: what a slot is: a GPU of this kind, or CPUs
    slot_type: str = "cuda"
    #: the type in `--gres=gpu:TYPE:N`; empty: any
    gpu_type: str = ""
    #: slots of each node; None: its GPUs, or its CPUs
    slots_per_node: int | None = None
    #: where runs keep their folders on the cluster; empty: in the home folder, which clusters share, if it is shared
    folder: str = ""
    #: the login node and all nodes see the same folder; else each node has its own
    folder_is_shared: bool = True
    #: `own`: jobs run under the Unix accounts of their owners; `one`: all under that of the login node
    accounts: str = "one"
    #: where nodes reach the login node, which carries a tunnel to the server; empty: they reach that as it does
    tunnel: str = ""
    #: how many of our jobs may wait in Slurm at the same time
    max_fed: int = MAX_FED_DEFAULT
    sbatch_args: tuple[str, ...] = ()
    #: state of Slurm -> code of how such an attempt ended, where it is not as in `hosts.slurm.ends`
    ends: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Self:
        """Of `ResourcePool.slurm`, which is not {}; settings of another version of the server are left out."""
        known = {each.name: stored[each.name] for each in fields(cls) if each.name in stored}
        return cls(**{**known, "sbatch_args": tuple(stored.get("sbatch_args", ()))})

    def with_job(self, job: JobSettings) -> SlurmSettings:
        """The settings for a job whose config says more; its options come after the pool's."""
        return replace(
            self, sbatch_args=(*self.sbatch_args, *job.sbatch_args), gpu_type=job.gpu_type or self.gpu_type
        )

    @property
    def has_own_accounts(self) -> bool:
        return self.accounts == "own"

    @property
    def is_gpu(self) -> bool:
        return self.slot_type != "cpu"

    @property
    def has_reservation(self) -> bool:
        """Whether its jobs are for nodes that Slurm has reserved."""
        return any(each.startswith("--reservation=") for each in self.sbatch_args)


@dataclass(frozen=True)
class JobSettings:
    """What the `slurm` section of a config says, as the engine takes it; None and (): as the pool has it."""

    sbatch_args: tuple[str, ...] = ()
    slots_per_node: int | None = None
    gpu_type: str = ""

    @classmethod
    def of(cls, section: Mapping[str, Any] | None) -> Self:
        """Of a config's section; of a wrong one, which pools of other kinds let pass, nothing is taken."""
        given = {} if section_fault(section or {}) else section or {}
        return cls(
            tuple(given.get("sbatch_args") or ()), given.get("slots_per_node"), given.get("gpu_type") or ""
        )


def fault(value: object) -> Fault:
    """What is wrong with the settings of a pool."""
    if not isinstance(value, dict):
        return 'allowed: the settings of a Slurm pool, such as {"login": "login1", "partition": "gpu"}'
    if not value:
        return None
    if unknown := sorted(value.keys() - _CHECKS.keys()):
        return f"unknown setting {unknown[0]}; allowed: {', '.join(_CHECKS)}"
    if not value.get("login"):
        return "login is required: the name or address of the cluster's login node, such as login1 or ada@10.0.0.2:22"
    for name, given in value.items():
        if sentence := _CHECKS[name](given):
            return f"{name}: {sentence}"
    if value.get("folder_is_shared") is False and not str(value.get("folder", "")).startswith("/"):
        return "folder is required with folder_is_shared=no: a path on each node's disk, such as /scratch/trainmaster"
    if value.get("accounts") == "own" and value.get("folder_is_shared") is False:
        return (
            "accounts=own needs a folder that the login node and all nodes share, and folder_is_shared=no has none; "
            "choose accounts=one, or a shared folder"
        )
    if value.get("slot_type") == "cpu" and value.get("gpu_type"):
        return "gpu_type: slots of this pool are CPUs (slot_type: cpu), so no type of GPU can be asked for"
    return None


def section_fault(value: object) -> Fault:
    """What is wrong with the `slurm` section of a config."""
    if not isinstance(value, Mapping):
        return f"found {value!r}; allowed: a map of {', '.join(_SECTION)}"
    for name, given in value.items():
        if name not in _SECTION:
            return f"unknown field {name}; allowed: {', '.join(_SECTION)}"
        if given is not None and (sentence := _SECTION[name](given)):
            return f"{name}: {sentence}"
    return None


def _slots_per_node(value: object) -> Fault:
    if value is None or _is_whole(value, 1, SLOTS_MOST):
        return None
    return f"found {value!r}; allowed: a whole number from 1 to {SLOTS_MOST}"


def _login(value: object) -> Fault:
    allowed = "allowed: a name of the server's SSH config or an address, such as login1 or ada@10.0.0.2:22"
    if not isinstance(value, str) or not 0 < len(value) <= _TEXT_MOST:
        return f"found {value!r}; {allowed}"
    try:
        ssh_config.parse_target(value)
    except CliError:
        return f"found {value!r}; {allowed}"
    return None


def _word(value: object) -> Fault:
    if value == "" or (isinstance(value, str) and len(value) <= _TEXT_MOST and _WORD.fullmatch(value)):
        return None
    return f"found {value!r}; allowed: one name of letters, digits and . _ : @ + -, or empty"


def _folder(value: object) -> Fault:
    if value == "" or (
        isinstance(value, str)
        and value.startswith(("/", "~/"))
        and value.isprintable()
        and len(value) <= _TEXT_MOST
    ):
        return None
    return f"found {value!r}; allowed: an absolute path on the cluster, or one that begins with ~/"


def _tunnel(value: object) -> Fault:
    """A name that means loopback to the login node is found out there."""
    allowed = "allowed: a name or address of the login node that the nodes reach, such as 10.0.0.2"
    if value == "":
        return None
    if not isinstance(value, str) or not _MACHINE.fullmatch(value):
        return f"found {value!r}; {allowed}"
    try:
        number = ipaddress.ip_address(value)
    except ValueError:
        return f"found {value!r}; {allowed}" if ":" in value or value == "localhost" else None
    return f"found {value!r}; {allowed}" if number.is_loopback or number.is_unspecified else None


def _max_fed(value: object) -> Fault:
    return (
        None
        if _is_whole(value, 1, _MAX_FED_MOST)
        else f"found {value!r}; allowed: a whole number from 1 to {_MAX_FED_MOST}"
    )


def _ends(value: object) -> Fault:
    if not isinstance(value, dict):
        return f'found {value!r}; allowed: a state of Slurm and what it means, such as {{"TIMEOUT": "preempted"}}'
    for state, meaning in value.items():
        if state not in ends.ENDS or state == "COMPLETED":
            allowed = ", ".join(name for name in ends.ENDS if name != "COMPLETED")
            return f"found the state {state!r}; allowed: {allowed}"
        if meaning not in ends.ALLOWED:
            return f"{state} is {meaning!r}; allowed: {', '.join(ends.ALLOWED)}"
    return None


def _is_whole(value: object, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


_CHECKS: dict[str, Callable[[object], Fault]] = {
    "login": _login,
    "partition": _word,
    "account": _word,
    "qos": _word,
    "slot_type": lambda value: (
        None if value in _SLOT_TYPES else f"found {value!r}; allowed: {', '.join(_SLOT_TYPES)}"
    ),
    "gpu_type": _word,
    "slots_per_node": _slots_per_node,
    "folder": _folder,
    "folder_is_shared": lambda value: (
        None if isinstance(value, bool) else f"found {value!r}; allowed: true or false"
    ),
    "accounts": lambda value: (
        None if value in _ACCOUNTS else f"found {value!r}; allowed: {' or '.join(_ACCOUNTS)}"
    ),
    "tunnel": _tunnel,
    "max_fed": _max_fed,
    "sbatch_args": arguments.fault,
    "ends": _ends,
}
#: of a config
_SECTION = {name: _CHECKS[name] for name in ("sbatch_args", "slots_per_node", "gpu_type")}
