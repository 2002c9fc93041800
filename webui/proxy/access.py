"""Who may use a task through the server, and where it stands."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from django.conf import settings
from django.db import Error

from accounts import rights
from commands import services
from commands.models import Service
from commands.states import CommandState
from dispatch.ssh.doors import Door, door_of
from jobs.models import Job
from webui.live import login
from webui.proxy import login as proxy_login
from webui.proxy import origin
from webui.waiting.threads import reading

log = logging.getLogger(__name__)

_REMEMBERED_MAX = 5000


class ProxyAnswer(StrEnum):
    OPEN = "open"
    NOT_LOGGED_IN = "not logged in"
    FORBIDDEN = "forbidden"
    NOT_FOUND = "not found"
    WAITING = "waiting"
    ENDED = "ended"


#: status and sentence of what a visitor does not get
SENTENCES = {
    ProxyAnswer.NOT_LOGGED_IN: (401, "Not logged in: log in first."),
    ProxyAnswer.FORBIDDEN: (403, "This task belongs to another user; only its owner and admins can use it."),
    ProxyAnswer.NOT_FOUND: (404, "No task with this id can be used through the server."),
    ProxyAnswer.WAITING: (503, "The task is not ready yet; try again in a moment."),
    ProxyAnswer.ENDED: (410, "The task has ended."),
}


@dataclass(frozen=True)
class Visit:
    """What a visitor gets. `door` is there when the answer is OPEN."""

    answer: ProxyAnswer
    task_id: str = ""
    door: Door | None = None
    #: whether its program is asked for addresses without the task's base
    stripped: bool = False
    #: whether a WebSocket carries bytes to it (SSH, `proxy_tcp`), not frames
    tunnel: bool = False
    #: whether what passes counts for the idle timeout; a notebook that counts what people do there is asked itself
    is_use: bool = True


class NoLonger(Exception):
    """Whoever opened a stream may use the task no more."""

    def __init__(self, visit: Visit) -> None:
        super().__init__(str(visit.answer))
        self.visit = visit


class Visitor(NamedTuple):
    """Somebody who asks for a task: by the headers of the request (names in lower case), on the origin of tasks or the
    console's. `tunnel`: by a WebSocket without a browser."""

    service_id: str
    headers: dict[str, str]
    apart: bool
    tunnel: bool = False

    @property
    def key(self) -> tuple[str, ...]:
        sent = (self.headers.get(name, "") for name in ("authorization", "cookie", "host"))
        return (self.service_id, *sent, str(self.tunnel))


_remembered: dict[tuple[str, ...], tuple[float, Visit]] = {}
#: task -> when its use was passed on to the database
_noted: dict[str, float] = {}


def visit(visitor: Visitor) -> Visit:
    """Reads the database, unless the same visitor came a moment ago. Looking is using, for the idle timeout."""
    made = look(visitor)
    if made.answer == ProxyAnswer.OPEN and made.is_use:
        _note_use(made.task_id)
    return made


def look(visitor: Visitor) -> Visit:
    """As `visit`, without using it."""
    now, key = time.monotonic(), visitor.key
    found = _remembered.get(key)
    if found and found[0] > now:
        return found[1]
    made = _look_up(visitor)
    if (
        made.answer != ProxyAnswer.OPEN
    ):  # it may open at once; and a stranger's long headers would fill the memory
        _remembered.pop(key, None)
        return made
    if len(_remembered) >= _REMEMBERED_MAX:
        _remembered.clear()
    _remembered[key] = (now + settings.PROXY_ACCESS_SECONDS, made)
    return made


def _note_use(task_id: str) -> None:
    now = time.monotonic()
    if task_id in _noted and now < _noted[task_id] + settings.PROXY_ACCESS_SECONDS:
        return
    if len(_noted) >= _REMEMBERED_MAX:
        _noted.clear()
    _noted[task_id] = now
    services.used(task_id)


async def until_it_may_not(visitor: Visitor) -> None:
    """Raises NoLonger as soon as a login has ended, a permission is gone or the task is over, though nothing passes."""
    while True:
        await asyncio.sleep(settings.PROXY_ACCESS_SECONDS)
        try:
            seen = await reading(look, visitor)
        except Error as error:
            log.info("cannot check the login of a stream to task %s: %s", visitor.service_id, error)
            continue
        if seen.answer not in {ProxyAnswer.OPEN, ProxyAnswer.WAITING}:
            raise NoLonger(seen)


def _look_up(visitor: Visitor) -> Visit:
    service = _service(visitor.service_id)
    task_id = str(service.command_id) if service else ""
    if not visitor.apart:
        user = login.user_of(visitor.headers)
    elif origin.is_of_task(visitor.headers, task_id):
        user = proxy_login.user_of(visitor.headers, task_id)
    else:
        user = None
    if user is None and not (service and _is_open_to_keys(service, visitor)):
        return Visit(ProxyAnswer.NOT_LOGGED_IN, task_id)
    if service is None:
        return Visit(ProxyAnswer.NOT_FOUND)
    command = service.command
    if user is not None and not rights.may_change(user, command):  # who uses it acts as its owner on the host
        return Visit(ProxyAnswer.FORBIDDEN, task_id)
    if command.has_ended or command.state != CommandState.ACTIVE:
        return Visit(ProxyAnswer.ENDED, task_id)
    door = door_of(command)
    if door is None:
        return Visit(ProxyAnswer.WAITING, task_id)
    plain = command.kind == Job.Kind.COMMAND
    bytewise = command.kind == Job.Kind.SHELL or (plain and command.proxy_ports[0].get("proxy_tcp") is True)
    counted = command.kind == Job.Kind.NOTEBOOK and command.config.get("notebook_idle_type") == "activity"
    return Visit(ProxyAnswer.OPEN, task_id, door, plain, bytewise, not counted)


def _is_open_to_keys(service: Service, visitor: Visitor) -> bool:
    """A shell asks for its key itself. A login that is sent along and counts no more is refused all the same."""
    bare = visitor.tunnel and not visitor.apart and "authorization" not in visitor.headers
    return service.command.kind == Job.Kind.SHELL and bare and bool(settings.SHELLS_WITHOUT_LOGIN)


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
        and port not in {str(each["proxy_port"]) for each in found.command.proxy_ports[:1]}
    ):
        return None
    return found
