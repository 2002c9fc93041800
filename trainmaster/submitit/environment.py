"""What submitit knows of the job inside it: the variables of a batch script."""

from __future__ import annotations

from submitit.slurm.slurm import SlurmJobEnvironment


class TrainmasterJobEnvironment(SlurmJobEnvironment):
    """`scontrol requeue` in the job starts it again on its host (trainmaster/slurm/scontrol.py)."""
