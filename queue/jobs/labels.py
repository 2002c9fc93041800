"""How sentences call a job: "exp 12", "cmd 3f2a01bc"."""

from __future__ import annotations

from collections.abc import Iterable

from django.db.models import Q

from jobs.models import Job

LABELS = {
    Job.Kind.EXPERIMENT.value: "exp",
    Job.Kind.COMMAND.value: "cmd",
    Job.Kind.SHELL.value: "shell",
    Job.Kind.NOTEBOOK.value: "notebook",
    Job.Kind.TENSORBOARD.value: "tensorboard",
    Job.Kind.ARRAY.value: "array",
}


_KINDS = {word: kind for kind, word in LABELS.items()}


def label_of(kind: str, entity_id: str) -> str:
    """Return the label of a job, such as `exp 7`, from its kind and what it is about."""
    return f"{LABELS[kind]} {entity_id[:8]}"


def called(labels: Iterable[str]) -> Q:
    """The jobs that have one of these labels."""
    jobs = Q(pk__in=[])
    for label in labels:
        word, _, entity = label.partition(" ")
        if word in _KINDS and entity:
            exact = _KINDS[word] == Job.Kind.EXPERIMENT  # of other ids a label has the beginning
            jobs |= Q(kind=_KINDS[word], **{"entity_id" if exact else "entity_id__startswith": entity})
    return jobs
