"""The environment in which an entrypoint runs: a pure function of the spec and a few facts of the host."""

from __future__ import annotations

import json
import re
from typing import Dict, List, Mapping, Optional, Tuple

from trainmaster.protocol import FIRST_MASTER, KEEPER_MARKER, MARKER, RUN_DIR, Environment, Spec

# What a job inherits from the host. A list of what may pass, because the `local` host's verbs are children of the
# server, whose own variables hold secrets.
_INHERITED = re.compile(
    r"PATH|LANG|LANGUAGE|LC_\w+|TZ|TMPDIR|LD_LIBRARY_PATH|LIBRARY_PATH|CPATH|MODULEPATH|XDG_CACHE_HOME|XDG_RUNTIME_DIR"
    r"|(CUDA|NVIDIA|NCCL|GLOO|UCX|OMP|MKL|HF|TORCH|TRITON|ROCM|HIP|ROCR)_\w+|(?i:(https?|no|all|ftp)_proxy)"
)
_KERNEL_STRING_LIMIT = (
    128 * 1024 - 1
)  # MAX_ARG_STRLEN: a longer variable would make every exec of the job fail
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#: so many collectives of each rank does torch's flight recorder keep, for when the gang hangs
COLLECTIVES_REMEMBERED = "2000"
#: the variables that say which ports of the host were leased to the run
PORTS = {
    "c10d": "C10D_PORT",
    "comm": "INTER_TRAIN_PROCESS_COMM_PORT_1",
    "comm2": "INTER_TRAIN_PROCESS_COMM_PORT_2",
    "ssh": "DTRAIN_SSH_PORT",
}
#: those that get the interface of the gang, unless the config or the host names another
INTERFACES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")


def build_environment(
    spec: Spec,
    *,
    run_dir: str,
    code_dir: str,
    bundle: str,
    server_url: str,
    certificate: Optional[Tuple[str, str]] = None,
    inherited: Mapping[str, str],
    account: Mapping[str, str],
) -> Environment:
    """All variables of the entrypoint.

    `certificate` is (file, name) of the server's certificate where it has one of its own.
    `inherited` is the launcher's own environment, of which only harmless variables pass; `account` has HOME, USER,
    LOGNAME and SHELL of the account that runs the job. The config's own variables override both; what identifies
    the run (marker, run folder, `DET_*`, the GPUs) overrides all.
    """
    environment = {name: value for name, value in inherited.items() if _INHERITED.fullmatch(name)}
    environment.update(account)
    environment.update(spec["environment"])
    environment["PATH"] = _led_by(_folder(spec["python"]), environment.get("PATH") or _DEFAULT_PATH)
    environment["PYTHONPATH"] = _led_by(bundle, environment.get("PYTHONPATH", ""))
    environment.setdefault("PYTHONUNBUFFERED", "1")
    if "TORCH_NCCL_TRACE_BUFFER_SIZE" not in environment:  # its older name, which the newer one overrules
        environment.setdefault("TORCH_FR_BUFFER_SIZE", COLLECTIVES_REMEMBERED)
    interface = spec["gang"]["interface"]
    if interface:
        for name in INTERFACES:
            environment.setdefault(name, interface)
    environment.update(_determined(spec, server_url, code_dir))
    if certificate is not None:
        environment["DET_MASTER_CERT_FILE"], environment["DET_MASTER_CERT_NAME"] = certificate
    environment[MARKER] = spec["run_key"]
    environment[RUN_DIR] = run_dir
    environment[FIRST_MASTER] = server_url
    environment.pop(KEEPER_MARKER, None)
    devices = visible_devices(spec)
    if devices or not any(slot["kind"] == "cuda" for slot in spec["slots"]):
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(devices)  # else Slurm has chosen, and has said which
    return environment


def visible_devices(spec: Spec) -> List[str]:
    """UUIDs of the run's GPUs or MIG instances, in slot order; empty without any, and where Slurm's are not known."""
    slots = sorted(spec["slots"], key=lambda slot: slot["index"])
    return [slot["uuid"] for slot in slots if slot["kind"] == "cuda" and slot["uuid"]]


def _determined(spec: Spec, server_url: str, code_dir: str) -> Environment:
    """The names that training code written for Determined reads."""
    variables: Dict[str, Optional[str]] = {
        "DET_MASTER": server_url,
        "DET_CLUSTER_ID": spec["cluster"]["id"],
        "DET_AGENT_ID": spec["host"]["name"],
        "DET_SLOT_IDS": json.dumps([slot["index"] for slot in spec["slots"]]),
        "DET_TASK_ID": spec["task_id"],
        "DET_TASK_TYPE": spec["task_type"],
        "DET_ALLOCATION_ID": spec["allocation_id"],
        "DET_RESOURCES_ID": spec["run_key"],
        "DET_RESOURCES_TYPE": "trainmaster-run",
        "DET_CONTAINER_ID": spec["run_key"],
        "DET_SESSION_TOKEN": spec["token"],
        "DET_USER": spec["user"],
        "DET_USER_TOKEN": spec["token"],
        "DET_TASK_LOGGING_METADATA": json.dumps(
            {"task_id": spec["task_id"], "allocation_id": spec["allocation_id"]}
        ),
        "DET_INTER_NODE_NETWORK_INTERFACE": spec["gang"]["interface"],
        "DET_WORKDIR": code_dir,
        "DET_USE_TLS": "true" if server_url.startswith("https:") else "false",
        **_trial(spec),
    }
    for port, name in PORTS.items():
        if port in spec["gang"]["ports"]:
            variables[name] = str(spec["gang"]["ports"][port])
    return {name: value for name, value in variables.items() if value is not None and _fits(name, value)}


def _trial(spec: Spec) -> Dict[str, Optional[str]]:
    trial = spec["trial"]
    if trial is None:
        return {}
    return {
        "DET_EXPERIMENT_ID": str(trial["experiment_id"]),
        "DET_TRIAL_ID": str(trial["trial_id"]),
        "DET_TRIAL_RUN_ID": str(trial["run_id"]),
        "DET_TRIAL_SEED": str(trial["trial_seed"]),
        "DET_EXPERIMENT_CONFIG": json.dumps(trial["config"]),
        "DET_HPARAMS": json.dumps(trial["hparams"]),
        "DET_STEPS_COMPLETED": str(trial["steps_completed"]),
        "DET_LATEST_CHECKPOINT": trial["latest_checkpoint"],
    }


def _fits(name: str, value: str) -> bool:
    return len(name) + 1 + len(value.encode("utf-8", "surrogateescape")) <= _KERNEL_STRING_LIMIT


def _folder(program: Optional[str]) -> str:
    return program.rpartition("/")[0] if program else ""


def _led_by(first: str, path: str) -> str:
    """`path` with `first` at its head, and nowhere else; empty parts (the working directory) are dropped."""
    return ":".join([*filter(None, [first]), *(part for part in path.split(":") if part and part != first)])
