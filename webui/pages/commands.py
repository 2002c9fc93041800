"""Commands: the list with its filters, and one command with its state, its log, and Kill."""

from __future__ import annotations

import shlex
import uuid
from typing import Any

import yaml
from django.contrib import messages
from django.core.paginator import Paginator
from django.db.models import Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.views.decorators.http import require_POST

from accounts.models import User
from commands import transitions
from commands.listing import with_parts
from commands.models import Command, Service
from commands.states import CommandState
from events.models import Event
from jobs import phases
from jobs.models import Allocation, Job
from jobs.states import AllocationState
from submissions.config.masking import masked
from webui.pages import timeline, verdicts, why
from webui.pages.frame import actor, page, show, user_of
from webui.pages.source_text import coloured

ROOM = "Commands"
PER_PAGE = 50
TABS = ["log", "config", "timeline"]
#: chip -> phases
CHIPS: dict[str, list[str]] = {
    "queued": [phases.QUEUED],
    "running": [phases.STARTING, phases.RUNNING, CommandState.STOPPING_KILLED],
    "completed": [CommandState.COMPLETED],
    "failed": [CommandState.ERROR],
    "canceled": [CommandState.CANCELED],
}


def find(command_id: uuid.UUID) -> Any:
    """The command or 404."""
    found = with_parts().filter(pk=command_id).first()
    if found is None:
        raise Http404(f"There is no command {command_id}.")
    return found


def attempt_of(command: Command) -> Allocation | None:
    """Its only attempt, once it has slots."""
    return next(iter(command.task.allocations.all()), None)


@page
def listing(request: HttpRequest) -> HttpResponse:
    """All commands, the newest first, or those that the filters leave."""
    rows = _filtered(request)
    pages = Paginator(rows, PER_PAGE)
    current = pages.get_page(request.GET.get("page"))
    found = list(current.object_list)
    context = {
        "page": current,
        "rows": [_row(each) for each in found],
        "chips": list(CHIPS),
        "chosen": request.GET,
        "nothing_at_all": not found and not Command.objects.filter(job__kind=Job.Kind.COMMAND).exists(),
    }
    return show(request, "commands", context, room=ROOM, fragment="commands")


def _filtered(request: HttpRequest) -> QuerySet[Command]:
    wanted, rows = request.GET, with_parts().filter(job__kind=Job.Kind.COMMAND)
    if words := CHIPS.get(wanted.get("state", "")):
        found = Q()
        for word in words:
            found |= phases.where(word)
        rows = rows.filter(found)
    if owner := wanted.get("user"):
        rows = rows.filter(owner=user_of(request)) if owner == "me" else rows.filter(owner__username=owner)
    if text := wanted.get("q", "").strip():
        match = Q(description__icontains=text) | Q(task__id__startswith=text.lower())
        rows = rows.filter(match)
    return rows.order_by("-submitted_at", "-pk")


def _row(command: Command) -> dict[str, Any]:
    attempt = attempt_of(command)
    return {
        "command": command,
        "phase": phases.of(command),
        "hosts": [member.host.name for member in attempt.members.all()] if attempt else [],
        "seconds": _seconds(command, attempt),
        "why": _why(command),
    }


def _why(command: Command) -> str:
    """Why it waits, or how it ended where that was not well."""
    ended_badly = command.state in {CommandState.ERROR, CommandState.CANCELED}
    return command.ending if ended_badly else verdicts.waiting(command.task, command.job.pool)


def _seconds(command: Command, attempt: Allocation | None) -> float | None:
    """How long it has run."""
    if attempt is None or attempt.started_at is None:
        return None
    return ((attempt.ended_at or timezone.now()) - attempt.started_at).total_seconds()


@page
def detail(request: HttpRequest, command_id: uuid.UUID, tab: str = "log") -> HttpResponse:
    command = find(command_id)
    if tab not in TABS:
        raise Http404(f"A command has no page {tab}; it has {', '.join(TABS)}.")
    attempt = attempt_of(command)
    current = attempt if attempt and attempt.state != AllocationState.TERMINATED else None
    context = {
        "command": command,
        "phase": phases.of(command),
        "tab": tab,
        "tabs": TABS,
        "kind": command.kind.label,
        "is_service": Service.objects.filter(pk=command.pk).exists(),
        "words": _words(command.config["entrypoint"]),
        "attempt": attempt,
        "current": current,
        "parts": verdicts.parts(attempt),
        "seconds": _seconds(command, attempt),
        "waiting": verdicts.waiting(command.task, command.job.pool),
        "silent": verdicts.silent_hosts(current),
        "missing_bytes": verdicts.missing_bytes(command.task_id),
        "may_kill": _may_change(request, command) and command.state == CommandState.ACTIVE,
        "log_at": f"/commands/{command.pk}",
        "lines_at": f"/commands/{command.pk}",
        "story": why.story(command.task, None),
        "follow": f"trainmaster {command.kind.value.lower()} logs -f {command.short_id}",
    }
    if tab == "config":
        context["config"] = coloured(yaml.safe_dump(masked(command.config), sort_keys=False), "config.yaml")
    elif tab == "timeline":
        context["entries"] = timeline.of(Event.objects.filter(task_id=command.task_id))
    room = ROOM if command.kind == Job.Kind.COMMAND else "Tasks"
    return show(request, "command", context, room=room, fragment="command")


def _words(entrypoint: str | list[str]) -> str:
    if isinstance(entrypoint, str):
        return entrypoint
    return entrypoint[0] if len(entrypoint) == 1 else shlex.join(entrypoint)


def _may_change(request: HttpRequest, command: Command) -> bool:
    user: User = user_of(request)
    return user.is_admin or (user.may_edit and command.owner_id == user.pk)


@page
@require_POST
def kill(request: HttpRequest, command_id: uuid.UUID) -> HttpResponse:
    """End it and return to its page."""
    command = find(command_id)
    if _may_change(request, command):
        transitions.kill(command.pk, actor=actor(request))
    else:
        messages.error(request, "Only the owner of a command or an admin may kill it.")
    return redirect(f"/commands/{command.pk}")
