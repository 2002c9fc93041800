"""One command, or another task, with its state, its log, and Kill. All of them are listed by webui.pages.tasks.page."""

from __future__ import annotations

import shlex
import uuid

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect

from accounts import rights
from commands import transitions
from commands.config import shown
from commands.models import Command
from commands.states import CommandState
from events.models import Event
from jobs import phases
from shown import stories, tasks, timeline, verdicts
from trainmaster import yamltext
from webui.pages.frame import actor, or_404, page, posted, refusals_told, show, user_of
from webui.pages.source_text import colored

ROOM = "Tasks"
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


def find(command_id: uuid.UUID) -> Command:
    """The command or 404."""
    found = tasks.with_parts().filter(pk=command_id).first()
    return or_404(found, f"There is no command {command_id}.")


def listing(request: HttpRequest) -> HttpResponse:
    """The list of tasks, of this kind; its filters are the same."""
    wanted = request.GET.copy()
    wanted["type"] = "commands"
    return redirect(f"/tasks?{wanted.urlencode()}")


@page
def detail(request: HttpRequest, command_id: uuid.UUID, tab: str = "log") -> HttpResponse:
    command = find(command_id)
    if tab not in TABS:
        raise Http404(f"A command has no page {tab}; it has {', '.join(TABS)}.")
    row = tasks.row(command)
    context = {
        "command": command,
        "row": row,
        "tab": tab,
        "tabs": TABS,
        "words": _words(command.config["entrypoint"]),
        "parts": verdicts.parts(row.attempt),
        "waiting": row.waiting,
        "silent": verdicts.silent_hosts(row.current),
        "missing_bytes": verdicts.missing_bytes(command.task_id),
        "may_kill": rights.may_change(user_of(request), command) and command.state == CommandState.ACTIVE,
        "log_at": f"/commands/{command.pk}",
        "lines_at": f"/commands/{command.pk}",
        "story": stories.of_task(command.task, None),
        "follow": f"trainmaster {command.kind.value.lower()} logs -f {command.short_id}",
    }
    if tab == "config":
        context["config"] = colored(yamltext.dump(shown(command.config)), "config.yaml")
    elif tab == "timeline":
        context["entries"] = timeline.of(Event.objects.filter(task_id=command.task_id))
    return show(request, "command", context, room=ROOM, fragment="command")


def _words(entrypoint: str | list[str]) -> str:
    if isinstance(entrypoint, str):
        return entrypoint
    return entrypoint[0] if len(entrypoint) == 1 else shlex.join(entrypoint)


@posted
def kill(request: HttpRequest, command_id: uuid.UUID) -> HttpResponse:
    """End it and return to its page."""
    command = find(command_id)
    with refusals_told(request):
        rights.require_owner(user_of(request), command)
        transitions.kill(command.pk, actor=actor(request))
    return redirect(f"/commands/{command.pk}")
