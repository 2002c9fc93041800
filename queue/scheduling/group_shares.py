"""Groups of people and what a pool gives them: their guarantees, and the slots that they hold against their limits.

A request belongs to a path of groups: a department and a team of it. `group_rules` says who is served and stopped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from copy import copy

from scheduling import group_reasons as reasons
from scheduling.reasons import Reason
from scheduling.spares import Spares
from scheduling.world import GroupShare, Request, Snapshot

#: a department and a team of it; a name with a slash for who is in no team, alone the slash for who is in no group
Path = tuple[str, str]


class _Paths(dict[tuple[str, ...], Path]):
    def __missing__(self, names: tuple[str, ...]) -> Path:
        first = names[0] if names else ""
        self[names] = path = (first, names[1] if len(names) > 1 else f"{first}/")
        return path


_PATHS = _Paths()


_NAMES: dict[tuple[str, ...], tuple[str, ...]] = {}


def shared(names: tuple[str, ...]) -> tuple[str, ...]:
    """The one tuple of these names: a pass looks paths up by it, three times as fast as by others that are equal."""
    return _NAMES.setdefault(names, names)


def path_of(request: Request) -> Path:
    return _PATHS[request.groups]


def by_name(of_paths: Mapping[Path, int]) -> Counter[str]:
    """Group -> slots, of departments those of their teams together."""
    found = Counter[str]()
    for path, slots in of_paths.items():
        for name in path:
            found[name] += slots
    return found


def guarantees(shares: Mapping[str, GroupShare]) -> dict[str, int]:
    """Group -> slots; a department has at least what its teams have together."""
    found = {name: share.guarantee for name, share in shares.items()}
    of_teams = Counter[str]()
    for share in shares.values():
        if share.parent:
            of_teams[share.parent] += share.guarantee
    for name, slots in of_teams.items():
        found[name] = max(slots, found.get(name, 0))
    return found


class Room:
    """Slots that groups hold while a pass fills them in, against what they may hold."""

    def __init__(self, snapshot: Snapshot, spares: Spares | None) -> None:
        self._shares = snapshot.pool.shares
        self._guaranteed = {name: slots for name, slots in guarantees(self._shares).items() if slots}
        self.has_limits = any(share.limit is not None for share in self._shares.values())
        tops = (slots for name, slots in self._guaranteed.items() if not parent_of(self._shares, name))
        usable = sum(
            slot.held_by is not None or slot.usable for host in snapshot.hosts for slot in host.slots
        )
        kept, self._for_recoveries = (spares.usable, spares.slots) if spares is not None else (0, 0)
        self._unguaranteed = max(0, usable - kept - sum(tops))
        of_path = Counter[Path]()
        self._firm = Counter[str]()  # department -> slots of work that may not be stopped
        for request in snapshot.requests:
            if request.running is not None:
                of_path[path_of(request)] += request.slots
                if not request.preemptible:
                    self._firm[path_of(request)[0]] += request.slots
        self.held = by_name(of_path)
        #: department -> what it has borrowed for work that may not be stopped, and all of that together
        self._borrowed = {
            name: over
            for name, held in self._firm.items()
            if (over := held - self._guaranteed.get(name, 0)) > 0
        }
        self._all_borrowed = sum(self._borrowed.values())

    def copy(self) -> Room:
        other = copy(self)
        other.held, other._firm, other._borrowed = self.held.copy(), self._firm.copy(), dict(self._borrowed)
        return other

    def take(self, request: Request) -> None:
        for name in path_of(request):
            self.held[name] += request.slots
        if not request.preemptible:
            top = path_of(request)[0]
            self._firm[top] += request.slots
            over = max(0, self._firm[top] - self._guaranteed.get(top, 0))
            self._all_borrowed += over - self._borrowed.get(top, 0)
            self._borrowed[top] = over

    def lacking(self, request: Request) -> Reason | None:
        """Why so much more would be too much for its groups."""
        for name in request.groups if self.has_limits else ():
            share = self._shares.get(name)
            if (
                share is not None
                and share.limit is not None
                and self.held[name] + request.slots > share.limit
            ):
                if request.slots > share.limit:
                    return reasons.over_group_limit(name, request.slots, share.limit)
                return reasons.group_limit(name, self.held[name], request.slots, share.limit)
        if request.preemptible or not self._guaranteed:
            return None
        top = path_of(request)[0]
        others = self._all_borrowed - self._borrowed.get(top, 0)
        own = max(0, self._firm[top] + request.slots - self._guaranteed.get(top, 0))
        most = self._unguaranteed + (self._for_recoveries if request.recovers else 0)
        if own and others + own > most:
            return reasons.not_reclaimable(self._all_borrowed, request.slots, most)
        return None

    def in_words(self, request: Request) -> list[Reason]:
        """What its groups hold, and why they may not hold so much more."""
        lacking = self.lacking(request)
        found = [lacking] if lacking is not None else []
        for name in request.groups:
            guaranteed = self._guaranteed.get(name, 0)
            within = self.held[name] + request.slots <= guaranteed
            found.append(reasons.group_share(name, self.held[name], guaranteed, within))
        return found


def parent_of(shares: Mapping[str, GroupShare], name: str) -> str:
    share = shares.get(name)
    return share.parent if share else ""


def load(shares: Mapping[str, GroupShare], name: str, held: float) -> float:
    """Slots held now and lately, for the weight of the group: of several groups, the one with the least is next."""
    share = shares.get(name)
    return held if share is None else (held + share.usage) / share.weight
