"""Tasks: all of them with their kind, where each stands, and the page that waits until one can be used."""

from __future__ import annotations

import uuid
from typing import Any

from django.core.paginator import Paginator
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse, QueryDict
from django.http.response import HttpResponseBase
from django.shortcuts import redirect

from accounts import rights
from commands.models import Command
from commands.states import CommandState
from jobs import phases
from jobs.models import Job
from shown import tasks
from webui.pages.frame import page, show, user_of
from webui.pages.tasks import commands
from webui.query import choices

#: pill -> kind
KINDS = {
    "notebooks": Job.Kind.NOTEBOOK,
    "shells": Job.Kind.SHELL,
    "TensorBoards": Job.Kind.TENSORBOARD,
    "commands": Job.Kind.COMMAND,
}
BEGINNINGS = {
    Job.Kind.NOTEBOOK: "trainmaster notebook start --slots 1",
    Job.Kind.SHELL: "trainmaster shell start --slots 1",
    Job.Kind.TENSORBOARD: "trainmaster tensorboard start 7",
    Job.Kind.COMMAND: "trainmaster command run nvidia-smi",
}


@page
def listing(request: HttpRequest) -> HttpResponse:
    """All tasks that are no trials, the newest first, or those that the filters leave."""
    chosen, wrong = choices(request.GET, {"type": KINDS, "state": commands.CHIPS})
    chosen_kind = KINDS.get(chosen.get("type", ""))
    current = Paginator(_filtered(request, chosen), commands.PER_PAGE).get_page(request.GET.get("page"))
    rows = [_row(request, each) for each in current.object_list]
    context = {
        "page": current,
        "rows": rows,
        "kinds": list(KINDS),
        "chips": list(commands.CHIPS),
        "chosen": chosen,
        "wrong": wrong,
        "filters": [(name, chosen.get(name, "")) for name in ("type", "state", "user")],
        "nothing_at_all": not rows and not _of_kind(Command.objects.all(), chosen_kind).exists(),
        "beginnings": [BEGINNINGS[chosen_kind]] if chosen_kind else BEGINNINGS.values(),
        "may_edit": user_of(request).may_edit,
    }
    return show(request, "tasks", context, room=commands.ROOM, fragment="tasks")


def _of_kind(rows: QuerySet[Command], kind: Job.Kind | None) -> QuerySet[Command]:
    return rows.filter(job__kind=kind) if kind else rows


def _filtered(request: HttpRequest, wanted: QueryDict) -> QuerySet[Command]:
    rows = _of_kind(tasks.with_parts(), KINDS.get(wanted.get("type", "")))
    if words := commands.CHIPS.get(wanted.get("state", "")):
        rows = rows.filter(phases.where(*words))
    if owner := wanted.get("user"):
        rows = rows.filter(owner=user_of(request)) if owner == "me" else rows.filter(owner__username=owner)
    if text := wanted.get("q", "").strip():
        rows = rows.filter(Q(description__icontains=text) | Q(task__id__startswith=text.lower()))
    return rows.order_by("-submitted_at", "-pk")


def _row(request: HttpRequest, command: Command) -> dict[str, Any]:
    mine = rights.may_change(user_of(request), command)
    return {
        "task": tasks.row(command),
        "may_use": mine,
        "may_kill": mine and user_of(request).may_edit and command.state == CommandState.ACTIVE,
    }


@page
def waiting(request: HttpRequest, task_id: uuid.UUID) -> HttpResponseBase:
    """Where the task stands; once it can be used, this page gives way to it. Of a shell: how to log in."""
    command = commands.find(task_id)
    row = tasks.row(command)
    if row.service is None:
        return redirect(f"/commands/{command.pk}")
    allowed = rights.may_change(user_of(request), command)
    is_shell = command.kind == Job.Kind.SHELL
    opened = f"/proxy/{command.pk}/" if row.is_ready and allowed and not is_shell else ""
    if opened and "part" not in request.GET:
        return redirect(opened)
    context = {
        "command": command,
        "row": row,
        "is_shell": is_shell,
        "allowed": allowed,
        "open_at": opened,
        "waits": row.waiting,
        "shell_command": f"trainmaster shell open {command.short_id}",
        "ssh_command": f"trainmaster shell show-ssh-command {command.short_id}",
        "ssh_config": f"trainmaster shell ssh-config {command.short_id}",
    }
    return show(request, "task", context, room=commands.ROOM, fragment="task")
