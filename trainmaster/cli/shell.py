"""`shell`: SSH into a task on a host of a pool, through the server; scp, port forwards and editors ride on it."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import List, NamedTuple, Optional, Tuple

from trainmaster.cli import task_verbs
from trainmaster.cli.arguments import Adder
from trainmaster.cli.errors import OK, CliError
from trainmaster.cli.output import SHORT_ID, say
from trainmaster.client import Client, Json
from trainmaster.websocket import WebSocket, connect

_KIND = task_verbs.service("shell", "The shell")
_BLOCK_BYTES = 65536
_HOST = re.compile(r"[A-Za-z0-9._-]+")


def add(add_noun: Adder) -> None:
    verbs = add_noun("shell", help="start a shell on a host and connect to it over SSH").add_verbs()
    start = verbs.add_parser("start", help="start a shell and log in to it", run=_start)
    task_verbs.add_start_options(start)
    for parser in (start, task_verbs.add_one(verbs, "open", "log in to a running shell", _KIND, _open)):
        parser.add_argument("--show-ssh-command", action="store_true", help="also print the ssh command")
        parser.add_argument("ssh_options", metavar="SSH OPTION", nargs="*", help="options for ssh, after --")
    for name in ("show-ssh-command", "show_ssh_command"):
        text = "print the ssh command, for scp, port forwarding and editors; stores the key on this machine"
        task_verbs.add_one(verbs, name, text, _KIND, _show_command)
    parser = task_verbs.add_one(
        verbs,
        "ssh-config",
        "print an entry for ~/.ssh/config, for VS Code and other editors",
        _KIND,
        _ssh_config,
    )
    parser.add_argument("--name", help="the host name to use in ssh (default: trainmaster-<id>)")
    task_verbs.add_one(
        verbs, "tunnel", "carry SSH between stdin and stdout (used by ssh's ProxyCommand)", _KIND, _tunnel
    )
    task_verbs.add_verbs(verbs, _KIND)


def _start(client: Client, args: argparse.Namespace) -> int:
    shell_id = str(task_verbs.start_service(client, args, _KIND)["shell"]["id"])
    if args.detach:
        print(shell_id)
        return OK
    say(f"Launched shell {shell_id}")
    return _log_in(client, shell_id, args)


def _open(client: Client, args: argparse.Namespace, kind: task_verbs.Kind) -> int:
    return _log_in(client, str(kind.record(client, args.id)["id"]), args)


def _log_in(client: Client, shell_id: str, args: argparse.Namespace) -> int:
    record = task_verbs.wait_until_ready(client, _KIND, shell_id, args)
    with tempfile.TemporaryDirectory(prefix="trainmaster-shell-") as folder:
        command = _command(client, record, Path(folder), args.user) + list(args.ssh_options)
        if args.show_ssh_command:
            print(shlex.join(_command(client, record, _kept(shell_id), args.user)))
        try:
            code = subprocess.call(command)
        except FileNotFoundError as error:
            raise CliError("ssh is not installed on this machine; install the OpenSSH client.") from error
    short = shell_id[:SHORT_ID]
    say(
        f"The shell keeps running. Reconnect with `trainmaster shell open {short}`, "
        f"stop it with `trainmaster shell kill {short}`."
    )
    return code


def _show_command(client: Client, args: argparse.Namespace, kind: task_verbs.Kind) -> None:
    shell_id = str(kind.record(client, args.id)["id"])
    record = task_verbs.wait_until_ready(client, kind, shell_id, args)
    print(shlex.join(_command(client, record, _kept(shell_id), args.user)))


def _ssh_config(client: Client, args: argparse.Namespace, kind: task_verbs.Kind) -> None:
    """Print it. The key is kept on this machine, and the login is looked up anew whenever ssh connects."""
    name = args.name or ""
    if name and not _HOST.fullmatch(name):
        raise CliError(f"--name is {name!r}; allowed: letters, digits, dots, dashes and underscores.")
    shell_id = str(kind.record(client, args.id)["id"])
    record = task_verbs.wait_until_ready(client, kind, shell_id, args)
    way = _way(client, record, _kept(shell_id), args.user)
    print(f"Host {name or 'trainmaster-' + shell_id[:SHORT_ID]}")
    for key, value in (("HostName", shell_id), ("User", way.user), ("IdentityFile", way.key), *way.options):
        print(f"    {key} {value}")


def _kept(shell_id: str) -> Path:
    """Where the key lies for commands that are run later."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = base / "trainmaster" / "shell" / shell_id
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


class _Way(NamedTuple):
    """How ssh gets to a shell: as whom, with which key, and its other options."""

    user: str
    key: str
    options: List[Tuple[str, str]]


def _way(client: Client, record: Json, folder: Path, user: Optional[str]) -> _Way:
    """The task's key and the one that its sshd shows are written into the folder. `user`: whose login the tunnel
    uses, None for that of whoever is logged in then. Raises CliError.
    """
    if not record.get("privateKey"):
        raise CliError(f"it belongs to {record['username']}; only its owner or an admin may log in.")
    shell_id = str(record["id"])
    key, known = folder / "key", folder / "known_hosts"
    for path, text in ((key, str(record["privateKey"])), (known, f"{shell_id} {record['hostKey']}\n")):
        path.unlink(missing_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)
    login = ["-m", client.url, *(["-u", user] if user else [])]
    tunnel = shlex.join([sys.executable, "-m", "trainmaster.cli.main", *login, "shell", "tunnel", shell_id])
    options = [
        ("ProxyCommand", _literal(tunnel)), ("UserKnownHostsFile", _quoted(known)), ("StrictHostKeyChecking", "yes"),
        ("IdentitiesOnly", "yes"), ("HostKeyAlias", shell_id),
    ]  # fmt: skip
    account = str((record.get("agentUserGroup") or {}).get("user") or "root")
    return _Way(account, _quoted(key), options)


def _literal(text: str) -> str:
    """Without it ssh takes a percent sign for the beginning of a token such as %h."""
    return text.replace("%", "%%")


def _quoted(path: Path) -> str:
    """Quote a path that may contain spaces."""
    return f'"{_literal(str(path))}"'


def _command(client: Client, record: Json, folder: Path, user: Optional[str]) -> List[str]:
    """The words of ssh, whose keys lie in the folder. Raises CliError."""
    way = _way(client, record, folder, user)
    options = [*way.options, ("IdentityFile", way.key)]
    words = [word for name, value in options for word in ("-o", f"{name}={value}")]
    return ["ssh", *words, f"{way.user}@{record['id']}"]


def _tunnel(client: Client, args: argparse.Namespace, kind: task_verbs.Kind) -> None:
    """Until either side has said all."""
    tunnel = connect(client.connection(), f"/proxy/{args.id}/")
    threading.Thread(target=_carry_out, args=(tunnel,), daemon=True).start()
    try:
        for data in tunnel.messages():
            block = memoryview(data)
            while block:
                block = block[os.write(sys.stdout.fileno(), block) :]
    except OSError:
        pass  # ssh has left, or the server
    finally:
        tunnel.close()


def _carry_out(tunnel: WebSocket) -> None:
    try:
        while True:
            block = os.read(sys.stdin.fileno(), _BLOCK_BYTES)
            if not block:
                break
            tunnel.send(block)
    except OSError:
        pass
    tunnel.close()
