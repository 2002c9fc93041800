"""Commands of Slurm on a cluster's login node, whatever its login shell prints or is.

Banners and the rc files of `bash` may print before a command and after it, and csh or fish read quotes in their own
way. So the login shell gets one plain word to start, `/bin/sh`, which gets its script as one quoted argument; the
answer begins behind a line that nobody else prints. Slurm is looked for where the login shell would find it (module
systems set PATH in /etc/profile), and variables that change its answers are taken out.
"""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Sequence
from typing import NamedTuple

from dispatch.ssh import connections, remote
from dispatch.ssh.contact_errors import RemoteError, VerbFailed
from dispatch.ssh.ssh_session import CommandAnswer
from hosts.models import Host
from trainmaster.protocol import UnixIds

TIMEOUT_SECONDS = 60.0
#: under the account of a person, who may stop what runs there: others wait for no more than that
PERSON_SECONDS = 20.0
#: of these, for its answer that it took too long
_ANSWERED_SECONDS = 4.0
_SHOWN_CHARACTERS = 500
_NOT_FOUND = 127
#: where builds from source and cluster managers put it
_PLACES = "/opt/slurm/bin:/usr/local/slurm/bin:/cm/shared/apps/slurm/current/bin:/usr/local/bin:/usr/bin:/bin"
#: what users set for themselves: formats, filters, another cluster
_VARIABLES = " ".join(
    [
        *(f"SQUEUE_{name}" for name in (
            "ALL", "ARRAY", "ARRAY_UNIQUE", "CLUSTERS", "FORMAT", "FORMAT2", "LICENSES", "LOCAL", "NAMES", "PARTITION",
            "PRIORITY", "SORT", "STATES", "USERS", "ACCOUNT", "FEDERATION", "SIBLING")),
        *(f"SBATCH_{name}" for name in (
            "ACCOUNT", "ARRAY_INX", "CLUSTERS", "DEBUG", "DELAY_BOOT", "EXPORT", "GET_USER_ENV", "IGNORE_PBS",
            "JOB_NAME", "NO_REQUEUE", "OPEN_MODE", "PARTITION", "QOS", "REQUEUE", "SIGNAL", "TIMELIMIT", "WAIT", "GPUS",
            "GPUS_PER_NODE", "GPUS_PER_TASK", "INPUT", "OUTPUT", "ERROR", "MEM_PER_NODE")),
        "SLURM_CLUSTERS", "SACCT_FORMAT", "SCONTROL_ALL", "SCONTROL_FUTURE",
    ]
)  # fmt: skip
#: srun takes options of these names from the environment, of which there are more with every version
_OPTIONS_OF_SRUN = (
    r"unset $(env | sed -n 's/^\(S\(LURM\|RUN\)_[A-Za-z0-9_]*\)=.*/\1/p' "
    "| grep -vxE 'SLURM_(CONF|CONF_SERVER|JWT)') _; "
)
#: by which a command ends before nobody waits for it, and which it has to end in
_KILL_SECONDS = 5.0
_SCRIPT = (
    "command -v {program} >/dev/null 2>&1 || "
    '{{ found=$(. /etc/profile >/dev/null 2>&1 </dev/null; printf "%s\\n%s" "$PATH" "$SLURM_CONF"); '
    'PATH=$(printf "%s" "$found" | sed -n 1p):$PATH:{places}; conf=$(printf "%s" "$found" | sed -n 2p); '
    '[ -z "$conf" ] || {{ SLURM_CONF=$conf; export SLURM_CONF; }}; }}; '
    "unset {variables}; {unset_more}export PATH TZ=UTC0 LC_ALL=C SLURM_TIME_FORMAT=standard; "
    'printf "\\n%s\\n" {mark}; printf "\\n%s\\n" {mark} >&2; exec {command}'
)


class Person(NamedTuple):
    """The Unix account under which a command is run instead of the login's, and the numbers that it must have."""

    account: str
    ids: UnixIds | None = None


class SlurmRefused(RemoteError):
    """The command ran on the login node and said no. `said`: its own words, of several lines."""

    def __init__(self, sentence: str, *, said: str, code: int) -> None:
        super().__init__(sentence)
        self.said = said
        self.code = code


def ask(
    login: Host,
    words: Sequence[str],
    stdin: bytes = b"",
    *,
    timeout_seconds: float = TIMEOUT_SECONDS,
    ends: bool = False,
    person: Person | None = None,
) -> tuple[str, str]:
    """(what the command printed, what it said on stderr). Raises SlurmRefused, or RemoteError if it was not asked.

    `ends`: nothing of it is left on the login node once nobody waits for the answer any more. `person`: under whose
    account, as hosts do it; what it answers is theirs to write.
    """
    mark = secrets.token_hex(8)
    if ends:
        seconds = connections.sending_seconds(len(stdin)) + timeout_seconds - _KILL_SECONDS
        before: Sequence[str] = ("timeout", "-k", f"{_KILL_SECONDS:g}", f"{max(1.0, seconds):.0f}")
    else:
        before = ()
    script = _SCRIPT.format(
        program=shlex.quote(words[0]),
        places=_PLACES,
        variables=_VARIABLES,
        mark=mark,
        unset_more=_OPTIONS_OF_SRUN if words[0] == "srun" else "",
        command=shlex.join([*before, *words]),
    )
    if person is not None:
        answer = _under(login, person, script, stdin)
    else:
        answer = remote.noted_shell(
            login, f"/bin/sh -c {shlex.quote(script)}", stdin, timeout_seconds=timeout_seconds
        )
    noise, begun, printed = answer.stdout.decode(errors="replace").partition(f"\n{mark}\n")
    said = answer.stderr.decode(errors="replace").rpartition(f"\n{mark}\n")[2]
    if not begun:
        shown = (noise.strip() or said.strip())[-_SHOWN_CHARACTERS:]
        raise RemoteError(
            f"The login shell on {login.name} ended before the command began (exit code {answer.code}): "
            f"{shown or 'it printed nothing'}. Check its rc files and that the account may run commands over SSH."
        )
    if answer.code == _NOT_FOUND:
        raise RemoteError(
            f"{login.name} has no {words[0]}: it is neither in PATH, nor where /etc/profile or an installation has it. "
            "The login node must have Slurm's commands."
        )
    if answer.code:
        shown = said.strip()[-_SHOWN_CHARACTERS:] or "no reason given"
        raise SlurmRefused(
            f"{words[0]} on {login.name} failed with exit code {answer.code}: {shown}",
            said=said,
            code=answer.code,
        )
    return printed, said


def _under(login: Host, person: Person, script: str, stdin: bytes) -> CommandAnswer:
    """Raises RemoteError, a VerbFailed that was not `delivered` where the login may not do it."""
    request = {
        "unix_user": person.account,
        "unix_ids": person.ids,
        "script": script,
        "stdin": stdin.decode(),
        "seconds": PERSON_SECONDS - _ANSWERED_SECONDS,
    }
    said = remote.verb(login, "command", request, timeout_seconds=PERSON_SECONDS)
    code, printed, errors = said.get("code"), said.get("stdout"), said.get("stderr")
    if not (isinstance(code, int) and isinstance(printed, str) and isinstance(errors, str)):
        sentence = f"What a command under the account {person.account} answered cannot be read."
        raise VerbFailed("broke", sentence, delivered=True)
    return CommandAnswer(code=code, stdout=printed.encode(), stderr=errors.encode())
