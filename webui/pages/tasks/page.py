"""Tasks: all of them with their kind, one with its state and its log, and the page that waits until it can be used."""

from __future__ import annotations

import shlex
import uuid
from typing import Any

from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.views.decorators.http import require_safe

from accounts import rights
from accounts.rights import Right, declares
from commands import submit, transitions
from commands.config import explained_config
from commands.models import Command
from commands.states import CommandState
from events.models import Event
from jobs.labels import label_of
from jobs.models import Job
from shown import arrays, stories, tabs, task_list, tasks, timeline, verdicts
from webui.pages.frame import actor, or_404, page, page_for, posted, refusals_told, show, user_of
from webui.query import choices

ROOM = "Tasks"
PER_PAGE = 50


def find(command_id: uuid.UUID) -> Command:
    """The command or 404."""
    found = tasks.with_parts().filter(pk=command_id).first()
    return or_404(found, f"There is no command {command_id}.")


@page
def listing(request: HttpRequest) -> HttpResponse:
    """All tasks that are no trials, the newest first, or those that the filters leave."""
    chosen, wrong = choices(request.GET, {"type": task_list.KINDS, "state": task_list.CHIPS})
    array = arrays.find(chosen.get("array", "")) if chosen.get("array") else None
    if array is not None:
        chosen["array"] = str(array.pk)
    elif chosen.pop("array", ""):
        raise Http404("There is no such array.")
    chosen_kind = task_list.KINDS.get(chosen.get("type", ""))
    found = task_list.matching(user_of(request), chosen)
    current = Paginator(found, PER_PAGE).get_page(request.GET.get("page"))
    rows = [_row(request, each) for each in tasks.rows(current.object_list, folds=array is None)]
    context = {
        "array": _array(request, array) if array else None,
        "page": current,
        "rows": rows,
        "kinds": list(task_list.KINDS),
        "chips": list(task_list.CHIPS),
        "chosen": chosen,
        "wrong": wrong,
        "filters": [(name, chosen.get(name, "")) for name in ("type", "state", "user", "array")],
        "nothing_at_all": not rows and not task_list.of_kind(Command.objects.all(), chosen_kind).exists(),
        "beginnings": task_list.beginnings(chosen_kind),
        "may_edit": user_of(request).may_edit,
    }
    return show(request, "tasks", context, room=ROOM, fragment="tasks")


def _row(request: HttpRequest, row: tasks.TaskRow) -> dict[str, Any]:
    mine = rights.may_change(user_of(request), row.command)
    return {
        "task": row,
        "may_use": mine,
        "may_kill": mine and user_of(request).may_edit and row.is_open,
    }


def _array(request: HttpRequest, job: Job) -> dict[str, Any]:
    """What stands above the elements of an array."""
    counts, user = arrays.counts_of(job.pk), user_of(request)
    may_change = user.may_edit and rights.may_change(user, job)
    return {
        "job": job,
        "label": label_of(job.kind, job.entity_id),
        "words": counts.words,
        "state": counts.state,
        "may_kill": may_change and not counts.has_ended,
        "may_rerun": may_change and bool(counts.failed or counts.canceled),
        "kill_asks": tasks.array_kill_asks(job),
    }


@declares({"GET": Right.OPEN})
@require_safe
def commands(request: HttpRequest) -> HttpResponse:
    """The list of tasks, of this kind; its filters are the same."""
    wanted = request.GET.copy()
    wanted["type"] = "commands"
    return redirect(f"/tasks?{wanted.urlencode()}")


@page
def waiting(request: HttpRequest, task_id: uuid.UUID) -> HttpResponseBase:
    """Where the task stands; once it can be used, this page gives way to it. Of a shell: how to log in."""
    command = find(task_id)
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
    }
    return show(request, "task", context, room=ROOM, fragment="task")


@page_for(Right.EDIT)
def terminal(request: HttpRequest, task_id: uuid.UUID) -> HttpResponse:
    """A terminal in a shell. If the shell is not ready or has ended, its page says so."""
    command = find(task_id)
    rights.require_owner(user_of(request), command, f"{command.kind.label} {command.short_id}")
    row = tasks.row(command)
    if not row.terminal_at and "part" not in request.GET:
        return redirect(f"/tasks/{command.pk}")
    return show(request, "terminal", {"command": command, "row": row}, room=ROOM, fragment="terminal_head")


@page
def detail(request: HttpRequest, command_id: uuid.UUID, tab: str = "log") -> HttpResponse:
    """One command, or another task, with its state, its log, and Kill; of an array, its elements."""
    if arrays.find(str(command_id)):
        return redirect(tasks.elements_at(command_id))
    command = find(command_id)
    if tab not in tabs.TASK:
        raise Http404(f"A command has no page {tab}; it has {', '.join(tabs.TASK)}.")
    row = tasks.row(command)
    context = {
        "command": command,
        "row": row,
        "tab": tab,
        "tabs": tabs.TASK,
        "words": _words(command.config["entrypoint"]),
        "parts": verdicts.parts(row.attempt),
        "waiting": row.waiting,
        "silent": verdicts.silent_hosts(row.current),
        "missing_bytes": verdicts.missing_bytes(command.task_id),
        "may_kill": rights.may_change(user_of(request), command) and command.state == CommandState.ACTIVE,
        "log_at": f"/commands/{command.pk}",
        "lines_at": f"/commands/{command.pk}",
        "story": stories.of_task(command.task, None),
        "array": label_of(command.job.kind, command.job.entity_id) if row.array else "",
        "may_schedule": user_of(request).may_edit and rights.may_change(user_of(request), command),
        "elements_at": tasks.elements_at(command.job_id),
        "follow": f"trainmaster {command.kind.value.lower()} logs -f {command.short_id}",
    }
    if tab == "config":
        context["lines"] = explained_config(command.config)
    elif tab == "timeline":
        context["entries"] = timeline.of(Event.objects.filter(task_id=command.task_id))
    return show(request, "command", context, room=ROOM, fragment="command")


def _words(entrypoint: str | list[str]) -> str:
    if isinstance(entrypoint, str):
        return entrypoint
    return entrypoint[0] if len(entrypoint) == 1 else shlex.join(entrypoint)


def _array_or_404(request: HttpRequest, array_id: uuid.UUID) -> Job:
    job = or_404(arrays.find(str(array_id)), f"There is no array {array_id}.")
    rights.require_owner(user_of(request), job, label_of(job.kind, job.entity_id))
    return job


@posted(Right.EDIT)
def kill_array(request: HttpRequest, array_id: uuid.UUID) -> HttpResponse:
    """End all elements of an array and return to them."""
    with refusals_told(request):
        transitions.kill_array(_array_or_404(request, array_id).pk, actor=actor(request))
    return redirect(tasks.elements_at(array_id))


@posted(Right.EDIT)
def rerun(request: HttpRequest, array_id: uuid.UUID) -> HttpResponse:
    """Run elements of an array again, those that are named or all that did not complete; show the new array."""
    to = array_id
    with refusals_told(request):
        job, user = _array_or_404(request, array_id), user_of(request)
        indices = request.POST.get("indices", "")
        to = submit.rerun(job, indices, owner=user, actor=actor(request)).job_id
    return redirect(tasks.elements_at(to))


@posted(Right.EDIT)
def kill(request: HttpRequest, command_id: uuid.UUID) -> HttpResponse:
    """End it and return to its page."""
    command = find(command_id)
    with refusals_told(request):
        rights.require_owner(user_of(request), command)
        transitions.kill(command.pk, actor=actor(request))
    return redirect(f"/commands/{command.pk}")
