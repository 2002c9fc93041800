"""What the `slurm` sections of configs ask for, by task."""

from __future__ import annotations

from collections.abc import Collection

from commands.models import Command
from experiments.models import Trial
from hosts.slurm.settings import JobSettings


def of_tasks(task_ids: Collection[str]) -> dict[str, JobSettings]:
    """The settings of these tasks; a task whose config has no such section is left out."""
    sections = [
        *Trial.objects.filter(task__in=task_ids).values_list("task_id", "experiment__config__slurm"),
        *Command.objects.filter(task__in=task_ids).values_list("task_id", "config__slurm"),
    ]
    return {task_id: JobSettings.of(section) for task_id, section in sections if section}
