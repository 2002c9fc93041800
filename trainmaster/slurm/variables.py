"""SLURM_… of a batch script and of the tasks that srun starts (pure)."""

from __future__ import annotations

import zlib
from typing import Dict, List, Mapping, Optional, Sequence

from trainmaster.slurm.handed import JobFile

#: the IDs by which the server knows the job and its array; Slurm's are numbers, with which scripts compute
ID, ARRAY_ID = "DET_TASK_ID", "TRAINMASTER_ARRAY_ID"
_MOST_ID = 2**31 - 1
_ARRAY = {
    "SLURM_ARRAY_TASK_ID": "TRAINMASTER_ARRAY_INDEX",
    "SLURM_ARRAY_TASK_COUNT": "TRAINMASTER_ARRAY_COUNT",
    "SLURM_ARRAY_TASK_MIN": "TRAINMASTER_ARRAY_MIN",
    "SLURM_ARRAY_TASK_MAX": "TRAINMASTER_ARRAY_MAX",
}


def number_of(long_id: str) -> str:
    """The same number of 31 bits for the same ID, always above 0."""
    return str(zlib.crc32(long_id.encode()) % _MOST_ID + 1)


def of_job(job: JobFile, own: Mapping[str, str], *, node: str, cpus: int) -> Dict[str, str]:
    """What the script finds. `own`: the variables that every run has; `cpus`: those of the host that it may use."""
    job_id, array_id, tasks = number_of(own[ID]), own.get(ARRAY_ID), job["ntasks"] or 1
    cores = str(min(cpus, tasks * job["cpus_per_task"]) if job["cpus_per_task"] else cpus)
    found: Dict[str, Optional[str]] = {
        "SLURM_JOB_ID": job_id,
        "SLURM_JOBID": job_id,
        "SLURM_JOB_NAME": job["name"],
        "SLURM_JOB_USER": own.get("USER", ""),
        "SLURM_JOB_PARTITION": job["partition"] or "default",
        "SLURM_CLUSTER_NAME": "trainmaster",
        "SLURM_SUBMIT_DIR": job["submit_folder"],
        "SLURM_SUBMIT_HOST": job["submit_host"],
        "SLURM_JOB_NODELIST": node,
        "SLURM_NODELIST": node,
        "SLURMD_NODENAME": node,
        "SLURM_JOB_NUM_NODES": "1",
        "SLURM_NNODES": "1",
        "SLURM_NODEID": "0",
        "SLURM_PROCID": "0",
        "SLURM_LOCALID": "0",
        "SLURM_GTIDS": "0",
        "SLURM_NTASKS": _text(job["ntasks"]),
        "SLURM_NPROCS": _text(job["ntasks"]),
        "SLURM_TASKS_PER_NODE": str(tasks),
        "SLURM_NTASKS_PER_NODE": _text(job["ntasks_per_node"]),
        "SLURM_CPUS_PER_TASK": _text(job["cpus_per_task"]),
        "SLURM_CPUS_ON_NODE": cores,
        "SLURM_JOB_CPUS_PER_NODE": cores,
        "SLURM_GPUS_ON_NODE": str(job["gpus"]) if job["gpus"] else None,
        "SLURM_GPUS_PER_TASK": _text(job["gpus_per_task"]),
        "SLURM_ARRAY_JOB_ID": None if array_id is None else number_of(array_id),
        **{name: own.get(source) for name, source in _ARRAY.items()},
        **job["told"],
    }
    if "SLURM_ARRAY_TASK_ID" in found and found["SLURM_ARRAY_TASK_ID"] is not None:
        found["SLURM_ARRAY_TASK_STEP"] = str(job["array_step"])
    return {name: value for name, value in found.items() if value is not None}


def of_start(job: JobFile, restarts: int, now: float) -> Dict[str, str]:
    """What each start of the script has beside that."""
    found = {"SLURM_JOB_START_TIME": str(int(now))}
    if restarts:  # libraries take it for a sign of a requeue, whatever its value
        found["SLURM_RESTART_COUNT"] = str(restarts)
    if job["seconds"] is not None:
        found["SLURM_JOB_END_TIME"] = str(int(now) + job["seconds"])
    return found


def of_task(
    rank: int, tasks: int, step: int, own: Mapping[str, str], gpus_per_task: Optional[int]
) -> Dict[str, str]:
    """What a task of srun has beside the script's own variables; with GPUs per task, those of this task alone."""
    found = {
        "SLURM_PROCID": str(rank),
        "SLURM_LOCALID": str(rank),
        "SLURM_NTASKS": str(tasks),
        "SLURM_NPROCS": str(tasks),
        "SLURM_STEP_ID": str(step),
        "SLURM_STEPID": str(step),
        "SLURM_STEP_NUM_TASKS": str(tasks),
        "SLURM_STEP_NUM_NODES": "1",
        "SLURM_STEP_NODELIST": own.get("SLURM_JOB_NODELIST", ""),
        "SLURM_STEP_TASKS_PER_NODE": str(tasks),
        "SLURM_TASKS_PER_NODE": str(tasks),
        "SLURM_GTIDS": ",".join(map(str, range(tasks))),
    }
    devices = [each for each in own.get("CUDA_VISIBLE_DEVICES", "").split(",") if each]
    if gpus_per_task and devices:
        found["CUDA_VISIBLE_DEVICES"] = ",".join(devices[rank * gpus_per_task : (rank + 1) * gpus_per_task])
    return found


def symbols(own: Mapping[str, str], rank: int = 0, step: str = "") -> Dict[str, str]:
    """What replaces %j and the others in a file name; IDs are those that `sbatch` has printed."""
    job_id = own.get(ID, "")
    return {
        "A": own.get(ARRAY_ID, job_id),
        "a": own.get("SLURM_ARRAY_TASK_ID", "0"),
        "j": job_id,
        "J": f"{job_id}.{step}" if step else job_id,
        "N": own.get("SLURM_JOB_NODELIST", ""),
        "n": "0",
        "s": step or "batch",
        "t": str(rank),
        "u": own.get("USER", ""),
        "x": own.get("SLURM_JOB_NAME", ""),
    }


def environment_of(
    job: JobFile,
    own: Mapping[str, str],
    slurm: Mapping[str, str],
    programs: str,
    configured: Sequence[str] = (),
) -> Dict[str, str]:
    """All variables of the script: the run's own, the passed ones over them, Slurm's over both.

    Those of the shell do not replace what the command's config sets: `configured` are the names of these.
    `programs` is the folder of srun and the others, which leads PATH. What the run needs of PATH and PYTHONPATH stays.
    """
    passed = {name: value for name, value in job["environment"].items() if name not in configured}
    found = {**own, **passed, **slurm}
    for name, first in (("PATH", programs), ("PYTHONPATH", "")):
        theirs, ours = passed.get(name, ""), own.get(name, "")
        bundle, _, rest = ours.partition(":") if name == "PYTHONPATH" else ("", "", ours)
        found[name] = _joined([first, bundle, theirs, rest])
    return found


def _joined(paths: List[str]) -> str:
    parts = [part for path in paths for part in path.split(":") if part]
    return ":".join(dict.fromkeys(parts))


def _text(number: Optional[int]) -> Optional[str]:
    return None if number is None else str(number)
