"""What submitit knows of the job inside it: the variables of a batch script."""

from __future__ import annotations

from typing import ClassVar, Dict

from submitit.slurm.slurm import SlurmJobEnvironment

from trainmaster.slurm.variables import ARRAY_ID, ID


class TrainmasterJobEnvironment(SlurmJobEnvironment):
    """Its IDs are those that the submission has got, since they name files in the folder.

    `scontrol requeue` in the job starts it again on its host (trainmaster/slurm/scontrol.py).
    """

    _env: ClassVar[Dict[str, str]] = {**SlurmJobEnvironment._env, "job_id": ID, "array_job_id": ARRAY_ID}
