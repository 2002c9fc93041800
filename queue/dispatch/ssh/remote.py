"""The one way to have something done on a host: short verbs (docs/protocol.md).

Synchronous, and never inside a database transaction.
Whatever comes of it is noted on the host's row: an answer means it was seen, an unanswered call is a failed
contact, a changed key suspends it.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from django.db import connection

from dispatch.ssh import connections, local
from dispatch.ssh.contact_errors import (
    FolderAway,
    HostKeyChanged,
    HostKeyRefused,
    HostKeyUnknown,
    LoginRefused,
    NoPython,
    NotAsked,
    RemoteError,
    SshBusy,
    Unreachable,
    VerbFailed,
)
from dispatch.ssh.dialling import endpoint_of
from dispatch.ssh.ssh_session import CommandAnswer
from dispatch.ssh.threads import PerProcess
from dispatch.ssh.verb_channel import MOST_BYTES, OPENING_SECONDS, NotServed
from hosts import observe
from hosts.models import Host
from trainmaster import bounded_json
from trainmaster.bundle import build_bundle, host_command, installer_command
from trainmaster.runner.warm import SPARE_ARGUMENT_BYTES, SPARE_VARIABLE, SPARE_VARIABLE_BYTES

__all__ = [
    "FolderAway", "HostKeyChanged", "HostKeyRefused", "HostKeyUnknown", "LoginRefused", "NoPython", "NotAsked",
    "RemoteError", "SshBusy", "Unreachable", "VerbFailed", "command", "longest_seconds", "noted_shell", "shell", "verb",
]  # fmt: skip

#: from when all bytes are sent; a transfer that moves is not cut (dispatch.ssh.connections)
PUSH_TIMEOUT_SECONDS = 120.0

#: returns the bundle of this very version of the server
current_bundle = PerProcess(build_bundle).get

_NOT_EXECUTABLE, _NOT_FOUND = 126, 127
_STDERR_SHOWN_BYTES = 600
#: the first line of `launch`, by a command of its own
_BEGUN = b'{"begun": 1}'


def verb(
    host: Host, name: str, payload: dict[str, Any], *, body: bytes | None = None, timeout_seconds: float = 30
) -> dict[str, Any]:
    """Run the verb `name` on the host: `payload` as one JSON line, then `body` raw; the answer is its last line.

    A host that lacks the current bundle gets it first. Raises RemoteError (one of the types above).
    """
    if host.transport == Host.Transport.NONE:
        raise RemoteError(f"{host.name} is the machine of a detached run; the server never contacts it.")
    with _noting(host):
        answer = _verb(host, name, payload, body, timeout_seconds)
    observe.seen(host.pk, boot_id=str(answer.get("boot_id") or ""))
    return answer


@contextmanager
def _noting(host: Host) -> Iterator[None]:
    """Keep on the host's row what comes of a contact that fails."""
    try:
        yield
    except HostKeyChanged as error:
        observe.key_changed(host.pk, error.offered, str(error), hop=error.hop)
        raise
    except NotAsked as error:
        observe.not_asked(host.pk, str(error))
        raise
    except Unreachable as error:
        observe.no_answer(host.pk, str(error))
        raise
    except LoginRefused as error:
        observe.spoke(host.pk, str(error))
        raise
    except (NoPython, SshBusy):
        observe.spoke(host.pk)
        raise
    except VerbFailed:
        observe.seen(host.pk)
        raise


def noted_shell(host: Host, line: str, stdin: bytes = b"", *, timeout_seconds: float = 30) -> CommandAnswer:
    """Run one shell command as `shell` does; whatever comes of it is noted, as of a verb."""
    with _noting(host):
        answer = shell(host, line, stdin, timeout_seconds=timeout_seconds)
    observe.seen(host.pk)
    return answer


def longest_seconds(timeout_seconds: float) -> float:
    """How long a verb with this limit may take: the process that does verbs does not start, so a command does it.

    Besides the push of a bundle, which a host gets once.
    """
    return OPENING_SECONDS + timeout_seconds + 2 * connections.THREAD_SLACK_SECONDS


def _verb(
    host: Host, name: str, payload: dict[str, Any], body: bytes | None, timeout_seconds: float
) -> dict[str, Any]:
    stdin = json.dumps(payload, separators=(",", ":")).encode() + b"\n" + (body or b"")
    sha256 = current_bundle().sha256
    if len(stdin) <= MOST_BYTES:
        with suppress(NotServed):
            return _checked(host, name, _served(host, sha256, name, stdin, timeout_seconds))
    answer = shell(host, command(host, sha256, name), stdin, timeout_seconds=timeout_seconds)
    if _lacks_bundle(answer):
        push(host)
        answer = shell(host, command(host, sha256, name), stdin, timeout_seconds=timeout_seconds)
    return _parse(host, name, answer)


def _served(host: Host, sha256: str, name: str, stdin: bytes, timeout_seconds: float) -> object:
    """The answer of the process that does verbs there, started if need be. Raises NotServed (no bundle, no Python)."""
    _refuse_in_transaction()
    _refuse_node(host)
    endpoint = None if host.transport == Host.Transport.LOCAL else endpoint_of(host)
    serve = serve_command(host, sha256)
    return connections.call(endpoint, serve, name, stdin, timeout_seconds=timeout_seconds)


def serve_command(host: Host, sha256: str) -> str:
    """Starts the process that does verbs. What is spare lets its forks show their own names (runner/warm.py)."""
    python, *rest = host_command(python_of(host), host.workdir, sha256, "serve")
    spare = f"{SPARE_VARIABLE}={' ' * SPARE_VARIABLE_BYTES}"
    return "exec " + shlex.join(["env", spare, python, "-S", "-E", *rest, " " * SPARE_ARGUMENT_BYTES])


def relay_command(host: Host) -> str:
    """Starts the process that passes a tunnel on to other machines. Raises RemoteError."""
    return command(host, bring_bundle(host), "relay")


def command(host: Host, sha256: str, name: str) -> str:
    """The shell command of a verb. -S and -E: neither site-packages nor PYTHON* variables slow or bend it."""
    python, *rest = host_command(python_of(host), host.workdir, sha256, name)
    return "exec " + shlex.join([python, "-S", "-E", *rest])


def python_of(host: Host) -> str:
    """The interpreter that runs the verbs there."""
    return host.python or (sys.executable if host.transport == Host.Transport.LOCAL else "python3")


def shell(host: Host, line: str, stdin: bytes = b"", *, timeout_seconds: float = 30) -> CommandAnswer:
    """Run one shell command on the host, over SSH or, on a host named local, here. Raises RemoteError.

    Nothing is noted on the row: this is for the host doctor and for `verb`.
    """
    _refuse_in_transaction()
    _refuse_node(host)
    if host.transport == Host.Transport.LOCAL:
        return local.run(line, stdin, timeout_seconds=timeout_seconds)
    return connections.run(endpoint_of(host), line, stdin, timeout_seconds=timeout_seconds)


def _refuse_node(host: Host) -> None:
    """A name that means a node to Slurm may be another machine, or nothing, where the server is."""
    if host.transport == Host.Transport.SLURM:
        raise RemoteError(
            f"{host.name} is a node of a Slurm cluster; the server contacts its login node alone."
        )


def _refuse_in_transaction() -> None:
    """Law 6. The transaction that a test case is wrapped in does not count."""
    if any(not getattr(block, "_from_testcase", False) for block in connection.atomic_blocks):
        raise RuntimeError("A host is never contacted inside a database transaction; do it after the commit.")


def _lacks_bundle(answer: CommandAnswer) -> bool:
    """Python says so in one of two sentences, depending on how much of the path is missing."""
    cannot = b"can't open file" in answer.stderr or b"can't find '__main__' module" in answer.stderr
    return answer.code != 0 and cannot


def _parse(host: Host, name: str, answer: CommandAnswer) -> dict[str, Any]:
    lines = answer.stdout.strip().splitlines()
    begun = _BEGUN in lines
    said = answer.stderr.decode(errors="replace").strip()[-_STDERR_SHOWN_BYTES:]
    if answer.code in {_NOT_FOUND, _NOT_EXECUTABLE} and not lines:
        raise NoPython(
            f"{host.name} cannot run {python_of(host)} (exit code {answer.code}): {said or 'not found'}."
        )
    try:
        parsed = bounded_json.loads(lines[-1])
    except (IndexError, ValueError):
        raise VerbFailed(
            "broke",
            f"The verb {name} failed on {host.name} with exit code {answer.code}: {said or 'no output'}.",
            delivered=begun,
        ) from None
    found = _checked(host, name, parsed)
    if answer.code != 0:
        raise VerbFailed(
            "broke",
            f"The verb {name} failed on {host.name} with exit code {answer.code}: {said}.",
            delivered=begun,
        )
    return found


def _checked(host: Host, name: str, parsed: object) -> dict[str, Any]:
    """The answer, if it is one. Raises VerbFailed."""
    if not isinstance(parsed, dict):
        raise VerbFailed(
            "broke",
            f"The answer of the verb {name} on {host.name} is not a JSON object.",
            delivered=True,
        )
    if "error" in parsed:
        code = str(parsed["error"])
        raise VerbFailed(code, str(parsed.get("message") or code), delivered=code == "broke")
    return parsed


def bring_bundle(host: Host) -> str:
    """Push the current bundle unless the host is known to have it, and note that it has. Raises RemoteError."""
    sha256 = current_bundle().sha256
    if host.bundle_sha256 != sha256:
        host.bundle_sha256 = push(host)
        Host.objects.filter(pk=host.pk).update(bundle_sha256=sha256)
    return sha256


def push(host: Host) -> str:
    """Unpack the current bundle in the host's workdir and return its SHA-256. Raises RemoteError.

    It is written and then renamed, so pushing twice is harmless.
    """
    bundle, python = current_bundle(), python_of(host)
    program, *rest = installer_command(python, host.workdir, bundle.sha256)
    line = "exec " + shlex.join([program, "-S", "-E", "-W", "ignore", *rest])
    answer = shell(host, line, bundle.archive, timeout_seconds=PUSH_TIMEOUT_SECONDS)
    if answer.code == 0:
        return bundle.sha256
    said = (answer.stderr.decode(errors="replace").strip().splitlines() or ["no output"])[-1]
    if answer.code in {_NOT_EXECUTABLE, _NOT_FOUND}:
        raise NoPython(f"{host.name} cannot run {python} (exit code {answer.code}): {said}.")
    raise VerbFailed("bundle", f"The bundle could not be unpacked in {host.workdir} on {host.name}: {said}.")
