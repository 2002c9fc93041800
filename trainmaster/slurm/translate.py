"""From the options of a batch script to a command of ours (pure)."""

from __future__ import annotations

import posixpath
import re
import shlex
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

from trainmaster.slurm import amounts, options
from trainmaster.slurm.exports import Exported
from trainmaster.slurm.handed import RUN, JobFile
from trainmaster.slurm.options import BadScript, shown, value_of

_CPU = "TYPE_CPU"
_PRIORITY = (1, 99)
_NICE = 100  # of --nice without a value, as in Slurm
_GANG = (
    "a batch script runs on one host here. Training over several hosts is an experiment, which starts its entrypoint "
    'on every host: docs/slurm.md, "Several hosts"'
)
_TOLD = {"mem": "SLURM_MEM_PER_NODE", "mem-per-cpu": "SLURM_MEM_PER_CPU", "mem-per-gpu": "SLURM_MEM_PER_GPU",
         "comment": "SLURM_JOB_COMMENT", "dependency": "SLURM_JOB_DEPENDENCY", "account": "SLURM_JOB_ACCOUNT",
         "qos": "SLURM_JOB_QOS", "gpus": "SLURM_GPUS", "gpus-per-node": "SLURM_GPUS_PER_NODE",
         "cpus-per-gpu": "SLURM_CPUS_PER_GPU", "ntasks-per-gpu": "SLURM_NTASKS_PER_GPU"}  # fmt: skip


class Pool(NamedTuple):
    """Of the pool that the job goes to; `hosts`: the names of those that it has now."""

    name: str
    slot_type: str
    default_priority: int
    hosts: List[str]


class Place(NamedTuple):
    """Where the submission is made: its folder and host; `script`: the file's name, empty for standard input."""

    folder: str
    host: str
    script: str
    arguments: List[str]


class Size(NamedTuple):
    """On all hosts together. `tasks`: None if nothing says how many; then there is one on each host.

    `several`: the options by which it takes more than one host, as they were given.
    """

    nodes: int
    tasks: Optional[int]
    per_node: Optional[int]
    cpus: Optional[int]
    gpus: int
    per_task: Optional[int]
    several: str


class SeveralHosts(BadScript):
    """The script takes more than one host, which a command cannot."""

    def __init__(self, size: Size, remarks: List[str]) -> None:
        self.size, self.remarks = size, remarks
        super().__init__(f"{size.several} takes several hosts: {_GANG}.")


class Translated(NamedTuple):
    """A command's config, what the host gets beside the script, what to wait for, and sentences about what is lost."""

    config: Dict[str, Any]
    job: JobFile
    needs: List[amounts.Need]
    singleton: bool
    remarks: List[str]


def translated(given: Mapping[str, str], place: Place, pool: Pool, exports: Exported) -> Translated:
    """Raises BadScript for what is wrong or would make another job of it, SeveralHosts for what takes more than one."""
    remarks = options.remarks(given)
    size = _size(given, remarks)
    if size.nodes > 1:
        raise SeveralHosts(size, remarks)
    needs, singleton = amounts.dependencies(given.get("dependency", ""))
    name = options.name_of(given, place.script)
    job = _job(given, place, size, exports, name, pool)
    resources: Dict[str, Any] = {
        "slots": slots_of(given, size, pool, remarks),
        "resource_pool": _partition(given, remarks) or pool.name or None,
    }
    resources["max_time"] = job["seconds"] and job["seconds"] * (1 + job["requeues"])
    resources["priority"] = _priority(given, pool)
    resources["hosts"] = _hosts(given, pool, remarks)
    words = [*RUN, posixpath.basename(place.script) or "stdin", *place.arguments]
    config: Dict[str, Any] = {"description": name, "entrypoint": words}
    config["resources"] = {key: value for key, value in resources.items() if value not in (None, [])}
    if value_of(given, "array"):
        config["array"] = given["array"]
    if exports.named:
        variables = [f"{key}={value}" for key, value in exports.named.items()]
        config["environment"] = {"environment_variables": variables}
    _files(given, job, remarks)
    return Translated(config, job, needs, singleton, remarks)


def _size(given: Mapping[str, str], remarks: List[str]) -> Size:
    nodes = amounts.fewest_nodes(given["nodes"]) if "nodes" in given else 1
    several = f"--nodes={given['nodes']}" if nodes > 1 else ""
    cpus, per_node = amounts.number(given, "cpus-per-task"), amounts.number(given, "ntasks-per-node")
    tasks = amounts.number(given, "ntasks")
    if tasks and per_node and tasks > per_node and "nodes" not in given:
        nodes, several = -(-tasks // per_node), f"--ntasks={tasks} with --ntasks-per-node={per_node}"
    kinds: List[str] = []
    counted: Dict[str, int] = {}
    for name in ("gpus", "gpus-per-node", "gpus-per-task"):
        if name in given:
            counted[name], kind = amounts.gpus(given[name], name)
            kinds.append(kind)
    if "gres" in given:
        asked = amounts.gres(given["gres"])
        counted["gres"] = asked.gpus
        kinds.append(asked.kind)
        remarks += [f"--gres={other} is not taken over: only GPUs are counted." for other in asked.others]
    remarks += [
        f"The type of GPU {kind} is not chosen: give the pool or the hosts that have it (--partition, --nodelist)."
        for kind in dict.fromkeys(filter(None, kinds))
    ]
    each_node = max(counted.get("gpus-per-node", 0), counted.get("gres", 0))
    if each_node and counted.get("gpus", 0) > each_node * nodes:
        nodes = -(-counted["gpus"] // each_node)
        several = f"--gpus={given['gpus']} with {each_node} on each node"
    per_gpu = amounts.number(given, "ntasks-per-gpu")
    known = max(each_node * nodes, counted.get("gpus", 0))
    per_task = counted.get("gpus-per-task") or None
    if known and per_task and per_task > known:
        raise BadScript(f"--gpus-per-task={given['gpus-per-task']} is more than all {known} GPUs of the job.")
    tasks = tasks or (per_node and per_node * nodes) or (per_gpu and per_gpu * known)
    tasks = tasks or (per_task and known // per_task) or None
    return Size(
        nodes, tasks, per_node, cpus, max(known, (per_task or 0) * (tasks or nodes)), per_task, several
    )


def slots_of(given: Mapping[str, str], size: Size, pool: Pool, remarks: List[str]) -> int:
    """GPUs; in a pool of hosts without GPUs, CPU cores."""
    if size.gpus:
        if pool.slot_type == _CPU:
            remarks.append(
                f"Pool {pool.name} has no GPUs: {size.gpus} of its slots, which are CPU cores, are taken instead."
            )
        return size.gpus
    cores = (size.tasks or size.nodes) * (size.cpus or 1)
    if pool.slot_type == _CPU:
        return cores
    if "cpus-per-task" in given:
        where = f"pool {pool.name}" if pool.name else "the default pool"
        remarks.append(
            f"--cpus-per-task={given['cpus-per-task']} reserves no cores: the slots of {where} are GPUs."
        )
    return 0


def needs_gpus(given: Mapping[str, str]) -> bool:
    """Whether the options ask for GPUs. Raises BadScript."""
    return bool(_size(given, []).gpus)


def _partition(given: Mapping[str, str], remarks: List[str]) -> Optional[str]:
    name, *others = partitions(given)
    if others:
        remarks.append(f"--partition={given['partition']}: the job waits in the pool {name} alone.")
    return name or None


def partitions(given: Mapping[str, str]) -> List[str]:
    """The names of --partition, of which the first is the pool."""
    return given.get("partition", "").split(",")


def _priority(given: Mapping[str, str], pool: Pool) -> Optional[int]:
    """--nice=N is that much behind (or, below 0, ahead of) the pool's default priority, within 1 to 99."""
    if "nice" not in given:
        return None
    text = given["nice"] or str(_NICE)
    if not re.fullmatch(r"[+-]?\d+", text):
        raise BadScript(f"--nice is {text!r}, allowed: a whole number, such as 10.")
    least, most = _PRIORITY
    return min(most, max(least, pool.default_priority + int(text)))


def _hosts(given: Mapping[str, str], pool: Pool, remarks: List[str]) -> List[str]:
    """The hosts that --nodelist and --exclude leave; empty for all of the pool."""
    wanted = amounts.hosts(given["nodelist"], "nodelist") if value_of(given, "nodelist") else []
    if len(wanted) > 1:
        remarks.append(f"--nodelist={given['nodelist']}: the job runs on one of these hosts.")
    if not value_of(given, "exclude"):
        return wanted
    excluded = set(amounts.hosts(given["exclude"], "exclude"))
    left = [name for name in wanted or pool.hosts if name not in excluded]
    if not left:
        raise BadScript(
            f"--exclude={given['exclude']} leaves no host{f' of pool {pool.name}' if pool.name else ''}."
        )
    if not excluded & set(wanted or pool.hosts):
        return wanted
    if not wanted:
        remarks.append(
            "--exclude: the job runs on the other hosts that the pool has now, not on hosts that are added later."
        )
    return left


def _job(
    given: Mapping[str, str], place: Place, size: Size, exports: Exported, name: str, pool: Pool
) -> JobFile:
    warned = amounts.warned(given["signal"]) if value_of(given, "signal") else None
    folder: Optional[str] = posixpath.normpath(posixpath.join(place.folder, given.get("chdir", "")))
    if "context" in given:
        folder = given.get("chdir")
    mode = given.get("open-mode", "truncate")
    if mode not in ("append", "truncate", "a", "t"):
        raise BadScript(f"--open-mode is {mode!r}, allowed: append, truncate.")
    return {
        "name": name,
        "arguments": place.arguments,
        "folder": folder,
        "submit_folder": place.folder,
        "submit_host": place.host,
        "partition": pool.name,
        "environment": exports.passed,
        "ntasks": size.tasks,
        "ntasks_per_node": size.per_node,
        "cpus_per_task": size.cpus,
        "gpus": size.gpus,
        "gpus_per_task": size.per_task,
        "array_step": amounts.step_of(given.get("array", "")),
        "output": value_of(given, "output"),
        "error": value_of(given, "error"),
        "input": value_of(given, "input"),
        "appends": mode.startswith("a"),
        "seconds": amounts.seconds(given["time"]) if "time" in given else None,
        "requeues": amounts.number(given, "requeues", 0) or 0,
        "signal": warned.number if warned else None,
        "signal_seconds": warned.seconds if warned else 0,
        "signal_script_only": bool(warned and warned.script_only),
        "told": {variable: _told(key, given[key]) for key, variable in _TOLD.items() if key in given},
    }


def _told(name: str, value: str) -> str:
    return str(amounts.megabytes(value)) if name.startswith("mem") else value


def _files(given: Mapping[str, str], job: JobFile, remarks: List[str]) -> None:
    """A relative name is nowhere when the job runs in a copy of the folder, which goes with the run."""
    if "signal" in given and job["seconds"] is None:
        remarks.append(
            f"{shown('signal', given['signal'])} has no effect without --time: there is no end to warn of."
        )
    if job["folder"] is not None and job["folder"].startswith("/"):
        return
    for key in ("output", "error"):
        pattern = value_of(given, key)
        if pattern and not pattern.startswith("/"):
            remarks.append(
                f"{shown(key, pattern)} is not written, since the job runs in a copy of the folder; "
                "the server has its log."
            )
    if job["output"] and not job["output"].startswith("/"):
        job["output"] = None
    if job["error"] and not job["error"].startswith("/"):
        job["error"] = None


def described(config: Mapping[str, Any]) -> str:
    """One line about the command, for --test-only."""
    resources = config["resources"]
    parts: List[Tuple[str, Any]] = [
        ("slots", resources["slots"]),
        ("pool", resources.get("resource_pool", "the default pool")),
    ]
    if "max_time" in resources:
        parts.append(("time limit", f"{resources['max_time']} s"))
    if "array" in config:
        parts.append(("array", config["array"]))
    words = ", ".join(f"{name} {value}" for name, value in parts)
    return f"{config['description']}: {shlex.join(config['entrypoint'][len(RUN) :])} ({words})"
