"""How sentences call a job: "exp 12", "cmd 3f2a01bc"."""

from __future__ import annotations

from jobs.models import Job

LABELS = {
    Job.Kind.EXPERIMENT.value: "exp",
    Job.Kind.COMMAND.value: "cmd",
    Job.Kind.SHELL.value: "shell",
    Job.Kind.NOTEBOOK.value: "notebook",
    Job.Kind.TENSORBOARD.value: "tensorboard",
}


def label_of(kind: str, entity_id: str) -> str:
    """Of a job's kind and what it is about."""
    return f"{LABELS[kind]} {entity_id[:8]}"
