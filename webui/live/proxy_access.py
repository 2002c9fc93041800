"""Who may use a task through the server, and where it stands."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from django.conf import settings

from accounts.models import User
from commands import services
from commands.models import Command, Service
from commands.states import CommandState
from dispatch.doors import Door, door_of
from jobs.models import Job
from webui.live.login import user_of

#: a visitor and a task are looked up anew after so long, so that a page of a hundred files asks once
REMEMBER_SECONDS = 5.0
_REMEMBERED_MAX = 5000


class Answer(StrEnum):
    OPEN = "open"
    NOT_LOGGED_IN = "not logged in"
    FORBIDDEN = "forbidden"
    NOT_FOUND = "not found"
    WAITING = "waiting"
    ENDED = "ended"


@dataclass(frozen=True)
class Visit:
    """What a visitor gets. `door` is there when the answer is OPEN."""

    answer: Answer
    kind: Job.Kind = Job.Kind.COMMAND
    door: Door | None = None
    #: whether its program is asked for addresses without the task's base
    stripped: bool = False
    #: whether a WebSocket carries bytes to it (SSH, `proxy_tcp`), not frames
    tunnel: bool = False
    owner: str = ""


_remembered: dict[tuple[str, str, str, bool], tuple[float, Visit]] = {}


def visit(service_id: str, headers: dict[str, str], *, tunnel: bool = False) -> Visit:
    """Reads the database, unless the same visitor came a moment ago. `tunnel`: a WebSocket without a browser.

    Looking is using: the visit is noted for the idle timeout.
    """
    key = (service_id, headers.get("authorization", ""), headers.get("cookie", ""), tunnel)
    now = time.monotonic()
    found = _remembered.get(key)
    if found and found[0] > now and found[1].answer == Answer.OPEN:
        return found[1]
    made = _look_up(service_id, headers, tunnel)
    if len(_remembered) >= _REMEMBERED_MAX:
        _remembered.clear()
    _remembered[key] = (now + REMEMBER_SECONDS, made)
    return made


def _look_up(service_id: str, headers: dict[str, str], tunnel: bool) -> Visit:
    user = user_of(headers)
    service = _service(service_id)
    open_to_keys = (
        service is not None
        and service.command.kind == Job.Kind.SHELL
        and tunnel
        and settings.SHELLS_WITHOUT_LOGIN
    )
    if user is None and not open_to_keys:
        return Visit(Answer.NOT_LOGGED_IN)
    if service is None:
        return Visit(Answer.NOT_FOUND)
    command = service.command
    if user is not None and not may_use(user, command):
        return Visit(Answer.FORBIDDEN, owner=command.owner.username)
    if command.has_ended or command.state != CommandState.ACTIVE:
        return Visit(Answer.ENDED, command.kind)
    door = door_of(command)
    if door is None:
        return Visit(Answer.WAITING, command.kind)
    note_use(command)
    plain = command.kind == Job.Kind.COMMAND
    bytewise = command.kind == Job.Kind.SHELL or (plain and ports_of(command)[0].get("proxy_tcp") is True)
    return Visit(Answer.OPEN, command.kind, door, plain, bytewise)


def ports_of(command: Command) -> list[dict[str, Any]]:
    """`environment.proxy_ports` of its config."""
    return list((command.config.get("environment") or {}).get("proxy_ports") or [])


def note_use(command: Command) -> None:
    """For the idle timeout; a notebook that counts what people do there is asked itself."""
    if command.kind == Job.Kind.NOTEBOOK and command.config.get("notebook_idle_type") == "activity":
        return
    services.used(str(command.pk))


def may_use(user: User, command: Command) -> bool:
    """Its owner and admins, by what may change things: whoever uses it acts as the owner on the host."""
    return user.may_edit and (user.is_admin or command.owner_id == user.pk)


def _service(service_id: str) -> Service | None:
    """`<task id>`, or as Determined has it for a command's port `<task id>:<port>`."""
    task_id, _, port = service_id.partition(":")
    try:
        found = (
            Service.objects.select_related("command__job", "command__owner")
            .filter(pk=uuid.UUID(task_id))
            .first()
        )
    except ValueError:
        return None
    if (
        port
        and found is not None
        and port not in {str(each["proxy_port"]) for each in ports_of(found.command)[:1]}
    ):
        return None
    return found
