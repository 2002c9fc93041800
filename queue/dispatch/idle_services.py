"""Ends shells, notebooks and TensorBoards that nobody has used for as long as their idle timeout.

What passes through the server is noted when it passes (commands.services.used). Only when that is long ago is a
notebook itself asked whether its kernels are at work, so nobody is asked in vain.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import logging
from datetime import datetime
from typing import Any

from django.utils import timezone
from django.utils.dateparse import parse_datetime

from commands import services
from commands.models import Command, Service
from dispatch import doors
from dispatch.going_on import going_on
from jobs.models import Job

log = logging.getLogger(__name__)

_ACTOR = "server"
_ANSWER_SECONDS = 10.0


def stop_unused() -> None:
    """Look at all whose time has come."""
    for service in list(services.unused()):
        with going_on(f"the idle timeout of {service.command_id}"):
            _look(service)


def _look(service: Service) -> None:
    command = service.command
    if command.kind == Job.Kind.NOTEBOOK:
        try:
            active = notebook_active_at(command)
        except (doors.RemoteError, OSError, http.client.HTTPException, ValueError) as error:
            log.info("notebook %s is not asked whether it is idle: %s", command.pk, error)
            return
        if active and services.was_used(service, active):
            return
    services.stop_unused(command, actor=_ACTOR)


def notebook_active_at(command: Command) -> datetime | None:
    """When the notebook was at work last, in the sense of its `notebook_idle_type`; now, if it is."""
    kind = command.config.get("notebook_idle_type") or "kernels_or_terminals"
    door = doors.door_of(command)
    if door is None:
        return None
    base = f"/proxy/{command.pk}/api"
    kernels = _ask(door, f"{base}/kernels")
    if kind == "kernel_connections":
        return timezone.now() if any(kernel.get("connections") for kernel in kernels) else None
    if kind == "kernels_or_terminals":
        return timezone.now() if kernels or _ask(door, f"{base}/terminals") else None
    if any(kernel.get("execution_state") == "busy" for kernel in kernels):
        return timezone.now()
    return parse_datetime(str(_ask(door, f"{base}/status").get("last_activity") or ""))


def _ask(door: doors.Door, path: str) -> Any:
    """The JSON that the notebook answers."""
    connection = http.client.HTTPConnection("localhost")
    connected = asyncio.run(doors.connect(door))
    connected.setblocking(True)
    connected.settimeout(_ANSWER_SECONDS)
    connection.sock = connected
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read()
    finally:
        connection.close()
    if answer.status != http.client.OK:
        raise ValueError(f"{path} was answered with {answer.status}")
    return json.loads(body)
