"""Asks `sacct`, where the cluster has accounting, how jobs ended. Pure.

`--parsable2` separates by `|`, and only fields are asked for in which nobody can write one.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from hosts.slurm import texts

_FIELDS = ("JobID", "State", "ExitCode", "User", "NodeList", "Start", "End")


class Ended(NamedTuple):
    """How one job ended. `state` without `by 1000`; `by`: the uid of whoever canceled it, empty if not said."""

    id: str
    state: str
    by: str
    exit_code: int
    signal: int
    user: str
    nodelist: str
    started_at: datetime | None
    ended_at: datetime | None


def command(ids: list[str]) -> tuple[str, ...]:
    """-X: without steps. Of a job that was requeued the last run."""
    return ("sacct", "-X", "--noheader", "--parsable2", "-j", ",".join(ids), "-o", ",".join(_FIELDS))


def is_kept(config: dict[str, str]) -> bool:
    """Whether the cluster keeps what sacct tells, by its `scontrol show config`."""
    return config.get("AccountingStorageType", "").lower() not in {"", "accounting_storage/none"}


def ended(text: str) -> list[Ended]:
    found = []
    for line in text.splitlines():
        parts = line.split("|")
        if len(parts) != len(_FIELDS):
            continue
        id_, state, code, user, nodelist, start, end = parts
        word, _, by = state.partition(" by ")
        exit_code, signal = (texts.whole(part) or 0 for part in [*code.split(":"), "0"][:2])
        found.append(
            Ended(id_, word.rstrip("+"), by, exit_code, signal, texts.value(user), texts.value(nodelist),
                  texts.moment(start), texts.moment(end))
        )  # fmt: skip
    return found
