"""The settings of a pool of kind `slurm`: what they may be, and the one typed form of them. Pure.

`ResourcePool.slurm` keeps them as JSON; {} is a pool of hosts reached by SSH. Facts that Slurm tells are a row of their
own (`hosts.models.SlurmFacts`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from hosts.slurm import ends
from trainmaster.cli import ssh_config
from trainmaster.cli.errors import CliError

MAX_FED_DEFAULT = 10
_MAX_FED_MOST = 1000
_SLOTS_MOST = 1024
_TEXT_MOST = 255
_SLOT_TYPES = ("cuda", "rocm", "cpu")
_WORD = re.compile(r"[A-Za-z0-9_.:@+-]+")
#: what an attempt cannot do without, and so says itself; each with what is for it here
OWN_ARGUMENTS = {
    "parsable": "", "requeue": "", "no-requeue": "", "signal": "", "comment": "", "wrap": "", "wait": "", "array": "",
    "test-only": "", "clusters": "", "job-name": "", "input": "", "export": "", "export-file": "", "uid": "", "gid": "",
    "nodes": "slots", "ntasks": "slots", "ntasks-per-node": "slots", "gpus": "slots", "gpus-per-node": "slots",
    "gpus-per-task": "slots", "gres": "slots and the pool's gpu_type", "time": "resources.max_time",
    "partition": "the pool's partition", "account": "the pool's account", "qos": "the pool's qos",
}  # fmt: skip
_SHORT = {
    "a": "array", "J": "job-name", "i": "input", "W": "wait", "M": "clusters", "N": "nodes", "n": "ntasks", "G": "gpus",
    "t": "time", "p": "partition", "A": "account", "q": "qos",
}  # fmt: skip

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
    #: so many of ours wait in Slurm at most
    max_fed: int = MAX_FED_DEFAULT
    sbatch_args: tuple[str, ...] = ()
    #: state of Slurm -> code of how such an attempt ended, where it is not as in `hosts.slurm.ends`
    ends: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Self:
        """Of `ResourcePool.slurm`, which is not {}."""
        return cls(**{**stored, "sbatch_args": tuple(stored.get("sbatch_args", ()))})

    def with_job(self, job: JobSettings) -> SlurmSettings:
        """The settings for a job whose config says more; its options come after the pool's."""
        return replace(
            self, sbatch_args=(*self.sbatch_args, *job.sbatch_args), gpu_type=job.gpu_type or self.gpu_type
        )

    @property
    def is_gpu(self) -> bool:
        return self.slot_type != "cpu"


@dataclass(frozen=True)
class JobSettings:
    """What the `slurm` section of a config says, as the engine takes it; None and (): as the pool has it."""

    sbatch_args: tuple[str, ...] = ()
    slots_per_node: int | None = None
    gpu_type: str = ""

    @classmethod
    def of(cls, section: Mapping[str, Any] | None) -> Self:
        given = section or {}
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
    if value.get("slot_type") == "cpu" and value.get("gpu_type"):
        return "gpu_type: slots of this pool are CPUs (slot_type: cpu), so no type of GPU can be asked for"
    return None


def arguments_fault(value: object) -> Fault:
    """What is wrong with arguments that sbatch gets besides ours, also those of a config."""
    allowed = "allowed: options of sbatch, each as one text, such as --constraint=a100"
    if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
        return f"found {value!r}; {allowed}"
    for each in value:
        if not re.match(r"-[A-Za-z]|--[a-z]", each) or any(sign in each for sign in "\0\r\n"):
            return f"found {each!r}; {allowed}"
        name = each[2:].partition("=")[0] if each.startswith("--") else _SHORT.get(each[1], each[1])
        # sbatch takes an option by its first letters, if they are no other's
        own = [own for own in OWN_ARGUMENTS if own == name or (len(name) > 2 and own.startswith(name))]
        if own:
            instead = OWN_ARGUMENTS[own[0]]
            hint = f"; set {instead} instead" if instead else ""
            return f"{each!r} cannot be given, because Trainmaster sets --{own[0]} itself{hint}"
    return None


def slots_per_node_fault(value: object) -> Fault:
    if value is None or _is_whole(value, 1, _SLOTS_MOST):
        return None
    return f"found {value!r}; allowed: a whole number from 1 to {_SLOTS_MOST}"


def gpu_type_fault(value: object) -> Fault:
    return _word(value)


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
    "gpu_type": gpu_type_fault,
    "slots_per_node": slots_per_node_fault,
    "folder": _folder,
    "folder_is_shared": lambda value: (
        None if isinstance(value, bool) else f"found {value!r}; allowed: true or false"
    ),
    "max_fed": _max_fed,
    "sbatch_args": arguments_fault,
    "ends": _ends,
}
