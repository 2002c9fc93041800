"""The shapes and constants that pass between the server and a host; docs/protocol.md explains them.

Everything here is plain data, so the server, the runner, the SDK and the CLI share one description.
"""

from __future__ import annotations

import re
import signal
from typing import Any, Dict, List, Optional, TypedDict, Union

PROTOCOL = 1
OLDEST_PROTOCOL = 1  # a server accepts its own version and the two before it

MARKER = "TRAINMASTER_RUN"  # in the environment of every process of the job, value: run key
KEEPER_MARKER = (
    "TRAINMASTER_KEEPER"  # in that of launcher and runner, so that no sweep takes them for the job
)
#: in that of processes inside a container beside MARKER, which the program that runs the container carries, too
CONTAINER_MARKER = "TRAINMASTER_CONTAINER"
RUN_DIR = "TRAINMASTER_RUN_DIR"  # the run folder, for the SDK and the launch modules
#: the server's address when the process was started: DET_MASTER, unless the program has set that to another
FIRST_MASTER = "TRAINMASTER_FIRST_MASTER"
RANK = (
    "TRAINMASTER_RANK"  # set by wrap_rank for the rank that it starts, and so for all of the rank's processes
)
#: for compat/sitecustomize.py: the program is to become torchrun and its ranks (launch/warm_torchrun.py)
WARM_ORDER = "TRAINMASTER_WARM_ORDER"

#: from the launcher to the runner when the entrypoint has ended; whoever does not wait for it never notices it
LOOK_NOW = signal.SIGURG

#: at it a Python process of a run writes its stacks (compat/sitecustomize.py). A real-time signal in the middle of the
#: range: SIGUSR1 and SIGUSR2 belong to trainings and their frameworks, the ends of the range to libc and to tools.
SHOW_STACKS = int(signal.SIGRTMIN) + 11

PROTOCOL_HEADER = "X-Trainmaster-Protocol"

EXIT_NOT_FOUND = 127  # the entrypoint's command does not exist
EXIT_CONTAINER = 125  # the container could not be made or started, as podman and docker have it
EXIT_NOT_EXECUTABLE = 126  # it exists and cannot be executed

Json = Any
Environment = Dict[str, str]

_OPTIONAL = {
    "unix_user",
    "unix_ids",
    "user",
    "python",
    "activate",
    "hooks",
    "trial",
    "container",
    "mounts",
    "remarks",
}
_RUN_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


class ProtocolError(ValueError):
    """A spec, key or record is not what docs/protocol.md allows; the message is a sentence."""


class _Cluster(TypedDict):
    id: str
    name: str


class Cluster(_Cluster, total=False):
    """The installation. By `proof_key` it proves to this attempt, and to no other, that it is itself (identity.py)."""

    proof_key: str


class HostName(TypedDict):
    id: str
    name: str


class Slot(TypedDict):
    """One slot of the run; `kind` is `cuda` or `cpu`, `uuid` the GPU's (or MIG instance's) own."""

    index: int
    uuid: str
    kind: str


class Gang(TypedDict):
    """All members of the allocation, in member order; `ports` are leased on the first member's host."""

    addresses: List[str]
    slot_counts: List[int]
    ports: Dict[str, int]
    interface: Optional[str]
    secret: str


class Trial(TypedDict):
    trial_id: int
    experiment_id: int
    trial_seed: int
    hparams: Dict[str, Json]
    config: Dict[str, Json]
    run_id: int
    steps_completed: int
    latest_checkpoint: Optional[str]


class Hooks(TypedDict):
    """Commands before and after the entrypoint, each a list of words, text for the shell, or None."""

    pre: Union[str, List[str], None]
    post: Union[str, List[str], None]
    timeout_seconds: float


class ContainerMount(TypedDict):
    """A path of the host inside a container; a relative `container_path` is below the working directory."""

    host_path: str
    container_path: str
    read_only: bool
    propagation: str


class ContainerDevice(TypedDict):
    """A device of the host inside a container; `mode` is letters of `rwm`."""

    host_path: str
    container_path: str
    mode: str


class Container(TypedDict):
    """The image in which a run is to happen; `shm_size` in bytes, None shares the host's memory segments."""

    image: str
    force_pull: bool
    registry_auth: Optional[Dict[str, Json]]
    mounts: List[ContainerMount]
    devices: List[ContainerDevice]
    add_capabilities: List[str]
    drop_capabilities: List[str]
    shm_size: Optional[int]


class Limits(TypedDict):
    spool_bytes: int
    line_bytes: int
    flush_seconds: float
    heartbeat_seconds: float
    grace_seconds: float
    batch_bytes: int
    sample_seconds: float
    sample_record_seconds: float
    reports_per_record: int


DEFAULT_LIMITS: Limits = {
    "spool_bytes": 2 * 1024**3,
    "line_bytes": 64 * 1024,
    "flush_seconds": 0.05,
    "heartbeat_seconds": 5.0,
    "grace_seconds": 30.0,
    "batch_bytes": 1024**2,
    "sample_seconds": 1.0,
    "sample_record_seconds": 10.0,
    "reports_per_record": 0,  # a server that does not say reads no columns
}


class _Spec(TypedDict):
    protocol: int
    run_key: str
    allocation_id: str
    member: int
    members: int
    task_id: str
    task_type: str
    job_id: str
    cluster: Cluster
    host: HostName
    token: str
    unix_user: Optional[str]
    user: Optional[str]
    python: Optional[str]
    activate: Optional[str]
    hooks: Optional[Hooks]
    entrypoint: Union[str, List[str]]
    environment: Environment
    slots: List[Slot]
    gang: Gang
    trial: Optional[Trial]
    user_data: Dict[str, Json]
    checkpoint_storage: Dict[str, Json]
    limits: Limits


class UnixIds(TypedDict):
    """The numbers that an account must have on the host; None: any."""

    uid: Optional[int]
    gid: Optional[int]


class Spec(_Spec, total=False):
    """spec.json: what one member of one allocation has to run. `trial` is None for other kinds of task.

    `unix_user` is the account on the host, `user` the name of whoever submitted the job. Nothing starts on a host
    where the account has other numbers than `unix_ids`. `container` is None for a run that uses the host directly;
    `mounts` are what such a run is to see of the host elsewhere.
    `remarks` are sentences with which its log is to begin, as warnings.
    """

    unix_ids: Optional[UnixIds]
    container: Optional[Container]
    mounts: Optional[List[ContainerMount]]
    remarks: Optional[List[str]]


class _ServerAddress(TypedDict):
    urls: List[str]
    cert_sha256: Optional[str]


class ServerAddress(_ServerAddress, total=False):
    """server.json: URLs tried in turn; `cert_sha256` is the hex digest of the DER certificate to pin or None.

    `cert_pem` is that certificate and `cert_name` the name in it, for programs that check it in their own way.
    """

    cert_pem: str
    cert_name: str


class ProcessRef(TypedDict):
    """A process that cannot be confused with a later one of the same pid (together with the boot id)."""

    pid: int
    start_time: int


class RunState(TypedDict, total=False):
    """state.json; each process is added when it has started."""

    host_id: str
    boot_id: str
    bundle: str
    launcher: ProcessRef
    entrypoint: ProcessRef
    runner: ProcessRef


class _Exit(TypedDict):
    code: Optional[int]
    signal: Optional[int]
    ended_at: float
    stopped: bool


class ExitFile(_Exit, total=False):
    """exit.json: `code` as a shell gives it (128 + n after signal n), `signal` its number or None.

    `oom_kills`: processes that the kernel's out-of-memory killer ended meanwhile, by `cgroup` and `host`.
    `port_in_use`: the leased port for which the entrypoint was not started: another program had it.
    `storage_fault`: the sentence why the run's checkpoint storage cannot be used, for which it was not started.
    `image_fault`: the sentence why the run's container could not be started, so that nothing ran in it.
    `hook_fault`: how a hook ended for which the entrypoint was not started; the code is the hook's.
    """

    oom_kills: Dict[str, int]
    port_in_use: int
    storage_fault: str
    image_fault: str
    hook_fault: str


class PreemptOrder(TypedDict):
    reason: str


class StopOrder(TypedDict):
    grace_seconds: float
    reason: str


class StopFile(StopOrder):
    """control/stop.json: at `deadline` (epoch seconds) SIGTERM becomes SIGKILL; it only ever moves earlier."""

    deadline: float


class Orders(TypedDict):
    """The body of every 200 to a runner; `offset` is missing in answers to `signals`."""

    preempt: Optional[PreemptOrder]
    stop: Optional[StopOrder]


class FirstFailure(TypedDict):
    rank: int
    code: Optional[int]
    signal: Optional[int]
    t: float


def run_key(allocation_id: str, member: int) -> str:
    """The name of one member's run: `<allocation id>.<member>`."""
    return check_run_key(f"{allocation_id}.{member}")


def is_run_key(key: object) -> bool:
    """Is it safe as a file name?"""
    return isinstance(key, str) and _RUN_KEY.fullmatch(key) is not None


def check_run_key(key: str) -> str:
    """Return `key` if it is safe as a file name; ProtocolError otherwise."""
    if not is_run_key(key):
        raise ProtocolError(
            f"The run key is {key!r}; allowed: letters, digits, '.', '_' and '-' (at most 200)."
        )
    return key


def limits_of(spec: Any) -> Limits:
    """The limits of a run; those that its spec lacks, which an earlier version may have written, are the defaults."""
    return {**DEFAULT_LIMITS, **spec.get("limits", {})}


def check_spec(spec: Json) -> Spec:
    """Return `spec` with its limits completed; ProtocolError says which fields are missing or wrong."""
    if not isinstance(spec, dict):
        raise ProtocolError(f"The spec is a JSON {type(spec).__name__}; it must be an object.")
    version = spec.get("protocol")
    if not isinstance(version, int) or not OLDEST_PROTOCOL <= version <= PROTOCOL:
        raise ProtocolError(
            f"The spec has protocol {version!r}; this host part supports {OLDEST_PROTOCOL} to {PROTOCOL}. "
            "Push the bundle again."
        )
    missing = sorted(set(Spec.__annotations__) - _OPTIONAL - {"limits"} - set(spec))
    if missing:
        raise ProtocolError(f"The spec lacks {', '.join(missing)}.")
    check_run_key(spec["run_key"])
    entrypoint = spec["entrypoint"]
    is_list = isinstance(entrypoint, list) and all(isinstance(word, str) for word in entrypoint)
    if not entrypoint or not (isinstance(entrypoint, str) or is_list):
        raise ProtocolError(
            f"The entrypoint is {entrypoint!r}; it must be a list of words or a shell command."
        )
    filled = dict(spec)
    for optional in _OPTIONAL:
        filled.setdefault(optional, None)
    filled["limits"] = limits_of(spec)
    return filled  # type: ignore[return-value]  # a checked dict is a Spec
