"""What a submission hands to a host, for tests."""

from typing import Any

ID = "3f2a01bc-0000-4000-8000-000000000000"
NUMBER = "71064560"  # as SLURM_JOB_ID has it
JOB_FILE: dict[str, Any] = {
    "name": "train", "arguments": [], "folder": None, "submit_folder": "/home/ada/code", "submit_host": "login",
    "partition": "fast", "environment": {}, "ntasks": None, "ntasks_per_node": None, "cpus_per_task": None, "gpus": 0,
    "gpus_per_task": None, "array_step": 1, "output": None, "error": None, "input": None, "appends": False,
    "seconds": None, "requeues": 0, "signal": None, "signal_seconds": 0, "signal_script_only": False, "told": {},
}  # fmt: skip
