"""What a submission hands to the host beside the script, in a folder of its own within the code."""

from __future__ import annotations

from typing import Dict, List, Optional, TypedDict

FOLDER = ".sbatch"
JOB = f"{FOLDER}/job.json"
SCRIPT = f"{FOLDER}/script"
#: the words of a command that run the script on the host; its name and arguments follow
RUN = ["python3", "-m", "trainmaster.slurm.batch"]


class JobFile(TypedDict):
    """`folder`: where the script runs, None for the folder that was sent with it."""

    name: str
    arguments: List[str]
    folder: Optional[str]
    submit_folder: str
    submit_host: str
    partition: str
    environment: Dict[str, str]
    #: None if the script does not say it
    ntasks: Optional[int]
    ntasks_per_node: Optional[int]
    cpus_per_task: Optional[int]
    gpus: int
    gpus_per_task: Optional[int]
    array_step: int
    output: Optional[str]
    error: Optional[str]
    input: Optional[str]
    appends: bool
    seconds: Optional[int]
    #: how often `scontrol requeue` may start the script again; then `seconds` holds for each start
    requeues: int
    signal: Optional[int]
    signal_seconds: int
    signal_script_only: bool
    #: of the values that are told but not acted on: SLURM_MEM_PER_NODE and others
    told: Dict[str, str]
