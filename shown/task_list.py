"""The list of tasks: its kinds and states to choose from, the rows that are left, and how to start the first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from django.db.models import Q, QuerySet

from accounts.models import User
from commands.models import Command
from commands.states import CommandState
from jobs import phases
from jobs.models import Job
from shown import arrays, tasks

#: chip -> phases
CHIPS: dict[str, list[str]] = {
    "queued": [phases.QUEUED],
    "running": [phases.STARTING, phases.RUNNING, CommandState.STOPPING_KILLED],
    "completed": [CommandState.COMPLETED],
    "failed": [CommandState.ERROR],
    "canceled": [CommandState.CANCELED],
}
#: pill -> kind
KINDS = {
    "notebooks": Job.Kind.NOTEBOOK,
    "shells": Job.Kind.SHELL,
    "TensorBoards": Job.Kind.TENSORBOARD,
    "commands": Job.Kind.COMMAND,
}
_BEGINNINGS = {
    Job.Kind.NOTEBOOK: "trainmaster notebook start --slots 1",
    Job.Kind.SHELL: "trainmaster shell start --slots 1",
    Job.Kind.TENSORBOARD: "trainmaster tensorboard start 7",
    Job.Kind.COMMAND: "trainmaster command run nvidia-smi",
}


def beginnings(kind: Job.Kind | None) -> Sequence[str]:
    """Return commands that start a task of this kind, or of each kind."""
    return [_BEGINNINGS[kind]] if kind else list(_BEGINNINGS.values())


def of_kind(rows: QuerySet[Command], kind: Job.Kind | None) -> QuerySet[Command]:
    kinds = [kind, Job.Kind.ARRAY] if kind == Job.Kind.COMMAND else [kind]
    return rows.filter(job__kind__in=kinds) if kind else rows


def matching(user: User, wanted: Mapping[str, str]) -> QuerySet[Command]:
    """Return what `type`, `state`, `user` and `q` leave, newest first; `user` may be `me`.

    An array is one row, unless `array` asks for its elements.
    """
    rows = of_kind(tasks.with_parts(), KINDS.get(wanted.get("type", "")))
    if words := CHIPS.get(wanted.get("state", "")):
        rows = rows.filter(phases.where(*words))
    if owner := wanted.get("user"):
        rows = rows.filter(owner=user) if owner == "me" else rows.filter(owner__username=owner)
    if text := wanted.get("q", "").strip():
        rows = rows.filter(Q(description__icontains=text) | Q(task__id__startswith=text.lower()))
    if array := wanted.get("array"):
        return rows.filter(job_id=array, array_index__isnull=False).order_by("array_index")
    return arrays.folded(rows).order_by("-submitted_at", "-pk")
