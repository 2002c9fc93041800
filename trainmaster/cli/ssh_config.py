"""What the user's own ssh would do for a name: address, port, user, jump hosts. Asked of `ssh -G`, never guessed."""

from __future__ import annotations

import getpass
import re
import shlex
import shutil
import subprocess
from typing import Dict, List, NamedTuple, Optional, Tuple

from trainmaster.cli.errors import CliError

_TIMEOUT_SECONDS = 20
_MOST_JUMPS = 8
_TARGET = re.compile(
    r"^(?:(?P<user>[^@\s]+)@)?(?:\[(?P<six>[0-9A-Fa-f:.%\w]+)\]|(?P<host>[^:@\[\]\s]+))(?::(?P<port>[0-9]+))?$"
)


class Hop(NamedTuple):
    """One sshd on the way; `alias` is what the user's own ssh calls it, with the options that it needs."""

    address: str
    port: int
    user: str
    alias: Tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.user}@{self.address}" + (f" port {self.port}" if self.port != 22 else "")


class Route(NamedTuple):
    """The host, and the jump hosts before it, nearest first."""

    target: Hop
    jumps: List[Hop]


class Target(NamedTuple):
    """[user@]host[:port] as it was typed."""

    user: Optional[str]
    host: str
    port: Optional[int]

    @property
    def words(self) -> Tuple[str, ...]:
        """How ssh is told to go there."""
        port = ("-p", str(self.port)) if self.port else ()
        return (*port, f"{self.user}@{self.host}" if self.user else self.host)


def parse_target(text: str) -> Target:
    """Raises CliError when it is no [user@]host[:port]."""
    bare = text[len("ssh://") :].rstrip("/") if text.startswith("ssh://") else text
    found = _TARGET.match(bare)
    host = (found["six"] or found["host"]) if found else ""
    if not found or not host or host.startswith("-") or (found["user"] or "").startswith("-"):
        raise CliError(f"found {text!r}, allowed: a host of your ssh config, or user@address[:port].")
    port = int(found["port"]) if found["port"] else None
    if port is not None and not 1 <= port <= 65535:
        raise CliError(f"found the port {port}, allowed: 1 to 65535.")
    return Target(found["user"], host, port)


def resolve(text: str) -> Route:
    """The route that the user's ssh takes to `text`. Raises CliError."""
    target = parse_target(text)
    if shutil.which("ssh") is None:
        return Route(Hop(target.host, target.port or 22, target.user or getpass.getuser(), target.words), [])
    return _route(target, frozenset())


def _route(target: Target, seen: "frozenset[str]") -> Route:
    if target.host in seen or len(seen) > _MOST_JUMPS:
        raise CliError(f"your ssh config is circular: {target.host} is its own jump host.")
    options = effective(target)
    hop = _hop(target, options)
    chain = _chain(target, options)
    if not chain:
        return Route(hop, [])
    first = _route(chain[0], seen | {target.host})  # only the first one's own jumps are used, as ssh does
    rest = [_hop(jump, effective(jump)) for jump in chain[1:]]
    return Route(hop, [*first.jumps, first.target, *rest])


def _hop(target: Target, options: Dict[str, str]) -> Hop:
    return Hop(options["hostname"], int(options["port"]), options["user"], target.words)


def effective(target: Target) -> Dict[str, str]:
    """The options that `ssh -G` prints, the first of each name. Raises CliError."""
    try:
        answer = _asked("ssh", "-G", *target.words)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CliError(f"`ssh -G {target.host}` failed: {error}.") from error
    if answer.returncode:
        said = answer.stderr.decode(errors="replace").strip()
        raise CliError(f"your ssh rejects {target.host}: {said or 'no reason given'}.")
    found: Dict[str, str] = {}
    for line in answer.stdout.decode(errors="replace").splitlines():
        name, _, value = line.strip().partition(" ")
        found.setdefault(name.lower(), value)
    return found


def _asked(*words: str) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        words, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TIMEOUT_SECONDS, check=False
    )


def _chain(target: Target, options: Dict[str, str]) -> List[Target]:
    """The jump hosts that the config names, nearest first."""
    jumps = options.get("proxyjump", "none")
    if jumps.lower() not in ("none", ""):
        return [parse_target(jump.strip()) for jump in jumps.split(",")]
    command = options.get("proxycommand", "none")
    if command.lower() in ("none", ""):
        return []
    return _of_command(target, command)


def _of_command(target: Target, command: str) -> List[Target]:
    """`ssh -W %h:%p JUMP`, the older way to write ProxyJump. Raises CliError for any other command."""
    words = shlex.split(command)
    if words and words[0] == "exec":
        words = words[1:]
    rest = words[1:]
    if words and words[0].rsplit("/", 1)[-1] == "ssh" and "-W" in rest:
        at = rest.index("-W")
        del rest[at : at + 2]
        plain = [word for word in rest if word not in ("-q", "-T")]
        if len(plain) == 1 and not plain[0].startswith("-"):
            return [parse_target(plain[0])]
    raise CliError(
        f"your ssh config reaches {target.host} with the ProxyCommand `{command}`, which the server cannot run. "
        "Use ProxyJump instead, or give an address that the server can reach: user@address[:port]."
    )


def known_fingerprints(address: str, port: int) -> List[str]:
    """SHA256:… of the keys that the user's known_hosts has for an address; none where that cannot be told."""
    name = address if port == 22 else f"[{address}]:{port}"
    try:
        answer = _asked("ssh-keygen", "-l", "-F", name)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return re.findall(r"SHA256:[A-Za-z0-9+/]+", answer.stdout.decode(errors="replace"))


_INSTALL = (
    'umask 077; mkdir -p "$HOME/.ssh" && touch "$HOME/.ssh/authorized_keys" && IFS= read -r key && '
    '{ grep -qxF "$key" "$HOME/.ssh/authorized_keys" || printf "%s\\n" "$key" >> "$HOME/.ssh/authorized_keys"; }'
)


def install_key(hop: Hop, public_key: str) -> None:
    """Add a line to authorized_keys of the account, by the user's own ssh, once. Raises CliError.

    ssh may ask the user for a password or a passphrase; it has the terminal.
    """
    command = ["ssh", "-o", "ConnectTimeout=15", *hop.alias, "sh -c " + shlex.quote(_INSTALL)]
    try:
        answer = subprocess.run(command, input=(public_key.strip() + "\n").encode(), check=False)
    except OSError as error:
        raise CliError(f"cannot start your ssh: {error.strerror}.") from error
    if answer.returncode:
        raise CliError(
            f"your ssh could not add the server's key on {hop} (exit code {answer.returncode}). "
            f"Add this line to its ~/.ssh/authorized_keys and use --no-key:\n{public_key}"
        )
