"""The ranks of a detached run on this machine: their user has started them, so nobody here can wait for them.

A rank says how it ended in a file (experimental/core_v2/_farewell.py); one whose process is gone without having said so
was killed. Its processes are the one that called `core_v2.init` and all below it.
"""

from __future__ import annotations

import os
import time
from typing import Dict, List, NamedTuple, Optional, cast

from trainmaster.jsonfile import read_json
from trainmaster.paths import RunPaths
from trainmaster.processes import PROC, boot_id, exit_status, reference, status_of_corpse
from trainmaster.protocol import ProcessRef
from trainmaster.rank_processes import Seen, look_at

#: how long the runner of a run that is over waits for a server that is away; the folder stays
GIVE_UP_SECONDS = 7 * 24 * 3600.0


class RankEnd(NamedTuple):
    """How a rank ended. `said`: by its own word; else `code` and `signal` are known only if its corpse was seen.

    `t` is in epoch seconds; of a killed rank the last time at which it was seen alive.
    """

    rank: int
    code: Optional[int]
    signal: Optional[int]
    t: float
    said: bool


class DetachedRanks:
    """What became of the ranks, and which processes they have; `ranks.json` names them."""

    ranked = True  # for the pulse: each process is of a rank

    def __init__(self, paths: RunPaths) -> None:
        known = read_json(paths.ranks) or {"boot_id": "", "ranks": {}}
        self._paths = paths
        self._same_boot = known["boot_id"] == boot_id()
        self._ranks = {int(rank): cast(ProcessRef, process) for rank, process in known["ranks"].items()}
        self._ends: Dict[int, RankEnd] = {}
        self._status: Dict[int, int] = {}
        self._looked_at = time.time()

    @property
    def over(self) -> bool:
        return len(self._ends) == len(self._ranks)

    @property
    def ends(self) -> List[RankEnd]:
        """Return the ends of the ranks that are over, the earliest first."""
        return sorted(self._ends.values(), key=lambda end: end.t)

    def look_for_ends(self) -> List[RankEnd]:
        """The ranks that have ended since the last look, killed ones first: the others may have failed with them."""
        looked_at, before = self._looked_at, set(self._ends)
        self._looked_at = time.time()
        waiting = [rank for rank in self._ranks if rank not in self._ends]
        said = {rank: end for rank in waiting for end in [self._said(rank)] if end is not None}
        for rank in waiting:
            end = said.get(rank)
            if end is None and not self._lives(rank):
                status = self._status.get(rank)
                code, number = (None, None) if status is None else exit_status(status)
                end = self._said(rank) or RankEnd(rank, code, number, looked_at, said=False)
            if end is not None:
                self._ends[rank] = end
        news = [end for rank, end in self._ends.items() if rank not in before]
        return sorted(news, key=lambda end: (end.said, end.t))

    def look(self) -> Dict[int, List[Seen]]:
        """The living processes of each rank, the first before those below it; for the pulse."""
        children: Dict[int, List[int]] = {}
        for name in os.listdir(PROC):  # noqa: PTH208  # every two seconds
            seen = look_at(int(name)) if name.isdigit() else None
            if seen is not None:
                children.setdefault(seen.parent, []).append(seen.pid)
        found = {}
        for rank, process in self._ranks.items():
            if rank not in self._ends and self._lives(rank):
                found[rank] = _tree(process["pid"], children)
        return found

    def _said(self, rank: int) -> Optional[RankEnd]:
        try:
            end = read_json(self._paths.rank_end(rank))
            return None if end is None else RankEnd(rank, int(end["code"]), None, float(end["t"]), said=True)
        except (KeyError, TypeError, ValueError):
            return None

    def _lives(self, rank: int) -> bool:
        process = self._ranks[rank]
        if not self._same_boot:
            return False
        if reference(process["pid"]) == process:
            return True
        status = status_of_corpse(process)
        if status:
            self._status[rank] = status
        return False


def _tree(root: int, children: Dict[int, List[int]]) -> List[Seen]:
    found, waiting = [], [root]
    while waiting:
        pid = waiting.pop(0)
        seen = look_at(pid)
        if seen is not None:
            found.append(seen)
        waiting.extend(children.get(pid, []))
    return found
