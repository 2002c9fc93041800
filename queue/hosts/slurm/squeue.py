"""Asks `squeue` for all jobs by one command that 20.11 to 25.05 understand, and reads its answer. Pure.

`-o` alone is used: `--only-job-state` is new, `-O` cuts what is long and pads the rest. Users choose names and
comments, with any sign in them and line ends too. So names are not asked for, the comment is the last field, and each
record begins with a random mark of the call, so nobody who submits a job can write one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

from hosts.slurm import texts

_FIELDS = "%i|%F|%K|%T|%u|%D|%C|%b|%P|%S|%N|%r|%k"
_COUNT = _FIELDS.count("|")
_TASKS = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?(?::(\d{1,9}))?", re.ASCII)
#: an array whose list of elements is cut (`0-5,7...`) has at least the elements that are listed
_AT_ONCE = re.compile(r"%\d+$")
_UNKNOWN_USER = re.compile(r"^(?:squeue: )?(?:error: )?Invalid user(?: id)?: (\S+)$", re.MULTILINE)


class Job(NamedTuple):
    """One job, or the waiting elements of an array together. `array_id` is `id` where it is none.

    `gres` and `nodelist` stay text: `gpus` and `texts.nodes` read them when they are needed, since of thousands of
    others' jobs few are looked at.
    """

    id: str
    array_id: str
    array_tasks: str
    state: str
    user: str
    nodes: int
    cpus: int
    gres: str
    partition: str
    start: str
    nodelist: str
    reason: str
    comment: str

    @property
    def starts_at(self) -> datetime | None:
        """When it started, or when Slurm expects to start it, as `squeue --start` says; None: not known."""
        return texts.moment(self.start)

    @property
    def gpus(self) -> int:
        """Of all its nodes, as far as it asked by node: what it asked for by job or by task is not listed."""
        return self.nodes * sum(texts.gpus(self.gres).values())

    @property
    def elements(self) -> int:
        """How many jobs it stands for."""
        return max(1, _elements(self.array_tasks)) if self.state == "PENDING" else 1


def command(mark: str, *, user: str = "", ids: tuple[str, ...] = ()) -> tuple[str, ...]:
    """All jobs of the cluster that squeue knows, also those that ended a moment ago; or of one user, or these."""
    of = ("-u", user) if user else ()
    which = ("-j", ",".join(ids)) if ids else ()
    return ("squeue", "--noheader", "--all", "--states=all", *of, *which, "-o", mark + _FIELDS)


def unknown_users(said: str) -> set[str]:
    """The users that it could not find just now, as it says on stderr: it leaves them out and lists the others."""
    return set(_UNKNOWN_USER.findall(said))


def jobs(text: str, mark: str) -> list[Job]:
    """The jobs of an answer; records that are cut off are left out."""
    return list(_read(text, mark))


def _read(text: str, mark: str) -> Iterator[Job]:
    for record in ("\n" + text).split("\n" + mark)[1:]:
        parts = record.split("|", _COUNT)
        if len(parts) <= _COUNT:
            continue
        id_, array_id, tasks, state, user, nodes, cpus, gres, partition, start, nodelist, reason, comment = (
            parts
        )
        yield Job(
            id_, array_id, "" if tasks == "N/A" else tasks, state, user,
            texts.whole(nodes) or 0, texts.whole(cpus) or 0,
            gres, partition, start, nodelist, texts.value(reason), texts.value(comment),
        )  # fmt: skip


def _elements(tasks: str) -> int:
    """Of `0-99%3`, `1,3,5`, `0-20:2`."""
    total = 0
    for part in _AT_ONCE.sub("", tasks).split(","):
        found = _TASKS.fullmatch(part.strip("[]."))
        if found is not None:
            first, last = int(found[1]), int(found[2] or found[1])
            total += max(0, last - first) // max(1, int(found[3] or 1)) + 1
    return total
