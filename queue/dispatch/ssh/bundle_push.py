"""Brings the host part of trainmaster to a host that lacks it. Made by write-then-rename: pushing twice is harmless."""

from __future__ import annotations

import shlex
from collections.abc import Callable

from dispatch.ssh.contact_errors import NoPython, VerbFailed
from dispatch.ssh.per_process import PerProcess
from dispatch.ssh.ssh_session import CommandAnswer
from hosts.models import Host
from trainmaster.bundle import build_bundle, installer_command

#: from when all bytes are sent; a transfer that moves is not cut (dispatch.ssh.connections)
PUSH_TIMEOUT_SECONDS = 120.0

#: returns the bundle of this very version of the server
current = PerProcess(build_bundle).get


def push(host: Host, python: str, shell: Callable[..., CommandAnswer]) -> str:
    """Unpack the current bundle in the host's workdir and return its SHA-256. Raises RemoteError."""
    bundle = current()
    program, *rest = installer_command(python, host.workdir, bundle.sha256)
    line = "exec " + shlex.join([program, "-S", "-E", "-W", "ignore", *rest])
    answer = shell(host, line, bundle.archive, timeout_seconds=PUSH_TIMEOUT_SECONDS)
    if answer.code == 0:
        return bundle.sha256
    said = (answer.stderr.decode(errors="replace").strip().splitlines() or ["no output"])[-1]
    if answer.code in {126, 127}:
        raise NoPython(f"{host.name} cannot run {python} (exit code {answer.code}): {said}.")
    raise VerbFailed("bundle", f"The bundle could not be unpacked in {host.workdir} on {host.name}: {said}.")
