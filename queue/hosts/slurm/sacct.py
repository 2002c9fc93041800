"""Asks `sacct`, where the cluster has accounting, how jobs ended that squeue no longer lists. Pure.

Only jobs with our names are asked for, which have none of the signs that separate fields: nobody else can write a line.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from hosts.slurm import texts

_FIELDS = ("JobID", "JobName", "User", "State", "ExitCode")
#: of a process that a signal ended, as shells count; and the highest code
_SIGNALS_FROM, _CODES_TO = 128, 255


class Ended(NamedTuple):
    """How one job ended. `state`: also `CANCELLED by 1000`, with the uid of who did. `exit_code`: as in a shell."""

    id: str
    name: str
    user: str
    state: str
    exit_code: int


def command(ids: Iterable[str], names: Iterable[str]) -> tuple[str, ...]:
    """-X: without steps. Of a job that was requeued, or whose id was used again, the last one.

    --allusers, and not the users by name: sacct ends if it does not know one of them.
    """
    of = ("-j", ",".join(ids), f"--name={','.join(names)}", "--allusers")
    return ("sacct", "-X", "--noheader", "--parsable2", *of, "-o", ",".join(_FIELDS))


def is_kept(config: dict[str, str]) -> bool:
    """Whether the cluster keeps what sacct tells, by its `scontrol show config`."""
    return config.get("AccountingStorageType", "").lower() not in {"", "accounting_storage/none"}


def ended(text: str) -> list[Ended]:
    found = []
    for line in text.splitlines():
        parts = line.split("|")
        if len(parts) != len(_FIELDS):
            continue
        id_, name, user, state, code = parts
        exit_code, signal = (texts.whole(part) or 0 for part in [*code.split(":"), "0"][:2])
        found.append(
            Ended(id_, name, user, state, min(_CODES_TO, _SIGNALS_FROM + signal if signal else exit_code))
        )
    return found
