"""SSH into a task: for each connection an sshd of the run's own account, which lets in the holder of the task's key.

It listens nowhere: the door hands it a connection as inetd would.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import re
import shlex
import shutil
import socket
import subprocess
import threading
from pathlib import Path
from typing import List

from trainmaster.serving.door import Ends, Opener

HOST_KEY, AUTHORIZED_KEY = "TRAINMASTER_SHELL_HOST_KEY", "TRAINMASTER_SHELL_AUTHORIZED_KEY"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: what a session has of its own
_OF_THE_SESSION = re.compile(r"SSH_.*|TERM|PWD|OLDPWD|SHLVL|_")
_SFTP_SERVERS = (
    "/usr/lib/openssh/sftp-server",
    "/usr/libexec/openssh/sftp-server",
    "/usr/lib/ssh/sftp-server",
    "/usr/libexec/sftp-server",
)
#: as an sshd that starts all sessions in the task's folder, with its variables; a shell that is not a login shell
#: leaves PATH as it is
_SESSION = """#!/bin/sh
cd -- {code}
. {environment}
if [ -n "$SSH_ORIGINAL_COMMAND" ]; then exec "${{SHELL:-/bin/sh}}" -c "$SSH_ORIGINAL_COMMAND"; fi
if [ -t 0 ]; then exec "${{SHELL:-/bin/sh}}" -i; fi
exec "${{SHELL:-/bin/sh}}"
"""


class NoSshd(Exception):
    """The host has no sshd program; the message is a sentence."""


def find_sshd() -> str:
    """Its absolute path, as it wants to be started. Raises NoSshd."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin:/sbin"
    found = shutil.which("sshd", path=path)
    if found is None:
        raise NoSshd(
            f"{socket.gethostname()} has no sshd on PATH or in /usr/sbin, but a shell needs one. "
            "Install the OpenSSH server there (package openssh-server); it does not have to be running"
        )
    return str(Path(found).resolve())


def prepare(folder: Path, code: Path, host_key: str, authorized_key: str) -> Path:
    """Write what sshd reads into the folder (0700), and answer the path of its configuration."""
    _write(folder / "host_key", host_key)
    _write(folder / "authorized_keys", authorized_key + "\n")
    _write(folder / "environment", _exports())
    session = _SESSION.format(
        code=shlex.quote(str(code)), environment=shlex.quote(str(folder / "environment"))
    )
    _write(folder / "session", session, 0o700)
    _write(folder / "sshd_config", "\n".join([*_configuration(folder), ""]))
    if os.geteuid() == 0:  # as sshd's own service would
        with contextlib.suppress(OSError):
            Path("/run/sshd").mkdir(mode=0o755, parents=True, exist_ok=True)
    return folder / "sshd_config"


def _configuration(folder: Path) -> List[str]:
    sftp = next((path for path in _SFTP_SERVERS if os.access(path, os.X_OK)), None)
    lines = [
        f"HostKey {folder}/host_key",
        f"AuthorizedKeysFile {folder}/authorized_keys",
        f"AllowUsers {pwd.getpwuid(os.geteuid()).pw_name}",
        f"ForceCommand {shlex.quote(str(folder / 'session'))}",
        "AuthenticationMethods publickey",
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
        "PermitRootLogin prohibit-password",
        "UsePAM no",
        "StrictModes no",  # the folder is 0700; what lies above it is the host's
        "PidFile none",
        "PrintMotd no",
        "UseDNS no",
        "X11Forwarding no",
        "ClientAliveInterval 30",
        "LogLevel ERROR",
    ]
    return lines + ([f"Subsystem sftp {sftp}"] if sftp else [])


def _exports() -> str:
    """This process's variables, for sh."""
    names = [name for name in os.environ if _NAME.fullmatch(name) and not _OF_THE_SESSION.fullmatch(name)]
    return "".join(f"export {name}={shlex.quote(os.environ[name])}\n" for name in names)


def _write(path: Path, text: str, mode: int = 0o600) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)


def to_sshd(program: str, configuration: Path) -> Opener:
    """Leads to an sshd that is started for this connection."""

    async def opener() -> Ends:
        ours, its = socket.socketpair()
        with its:
            words = [program, "-i", "-e", "-f", str(configuration)]
            child = subprocess.Popen(words, stdin=its.fileno(), stdout=its.fileno())
        threading.Thread(target=child.wait, daemon=True).start()  # so that it leaves no corpse
        return await asyncio.open_unix_connection(sock=ours)

    return opener
