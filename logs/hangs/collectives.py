"""Which rank is missing from which collective, out of what the flight recorders of a gang know. Pure.

A group's ranks make the same collectives in the same order, so its recorders agree but for the newest ones. Of the
oldest collective that some rank has entered and not left, the others have either not entered it: they are missing. Or
all have, and one has called something else there, or with other sizes. A rank that is missing because it waits in a
collective of another group is not the one to name, but the one that is missing there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from logs.hangs.evidence import ENDED, Call, Told
from trainmaster.quantities import spans

#: Their ranks may name other sizes than their peers.
_UNEQUAL = (
    "gather",
    "scatter",
    "all_to_all",
    "alltoall",
    "alltoall_base",
    "all_to_all_single",
    "send",
    "recv",
)
_SILENT_STATES = ("T", "t", "D", ENDED)


class Kind(StrEnum):
    MISSING = "missing"
    ORDER = "order"
    SIZES = "sizes"
    CYCLE = "cycle"


@dataclass(frozen=True)
class Stuck:
    """A collective that cannot end. `ranks` are those to name, `waiting` those that have entered it.

    `differs`: what the ranks to name have called, where that is something else.
    """

    kind: Kind
    call: Call
    members: tuple[int, ...]
    ranks: tuple[int, ...]
    waiting: tuple[int, ...]
    differs: Call | None = None

    def words(self, gang: int) -> str:
        """The collective as sentences name it."""
        of = "" if len(self.members) in (0, gang) else f" of ranks {ranks_in_words(self.members)}"
        return f"{self.call.name or 'collective'} number {self.call.number}{of}"


def find(gang: Sequence[Told]) -> Stuck | None:
    """None where no rank waits in a collective, or all of its ranks have entered it alike."""
    found = list(_stuck(gang))
    for stuck in found:
        if stuck.kind in (Kind.ORDER, Kind.SIZES):
            return stuck
    blocked = {rank for stuck in found for rank in stuck.waiting}
    for stuck in sorted(found, key=lambda each: -len(each.waiting)):
        if free := tuple(rank for rank in stuck.ranks if rank not in blocked):
            return Stuck(stuck.kind, stuck.call, stuck.members, free, stuck.waiting)
    if found:
        first = found[0]
        ranks = tuple(sorted({rank for stuck in found for rank in stuck.ranks}))
        return Stuck(Kind.CYCLE, first.call, first.members, ranks, first.waiting)
    return None


def _stuck(gang: Sequence[Told]) -> Iterator[Stuck]:
    for name in sorted({name for told in gang for name in told.groups or ()}):
        of_all = {told.rank: told.groups[name].calls for told in gang if told.groups and name in told.groups}
        members = _members(name, gang, of_all)
        calls = {rank: of_rank for rank, of_rank in of_all.items() if rank in members}
        open_calls = [call for of_rank in calls.values() for call in of_rank if not call.done]
        if not open_calls:
            continue
        number = min(call.number for call in open_calls)
        entered = {rank: call for rank, of_rank in calls.items() for call in of_rank if call.number == number}
        beyond = {rank for rank, of_rank in calls.items() if of_rank and of_rank[-1].number > number}
        missing = [told for told in gang if told.rank in members and told.rank not in {*entered, *beyond}]
        waiting = tuple(sorted(rank for rank, call in entered.items() if not call.done))
        if not missing:
            yield from _unlike(entered, members, waiting)
        elif ranks := _to_name(missing, len(members)):
            call = next(call for call in entered.values() if not call.done)
            yield Stuck(Kind.MISSING, call, members, ranks, waiting)


def _members(name: str, gang: Sequence[Told], calls: dict[int, tuple[Call, ...]]) -> tuple[int, ...]:
    ranks = {told.rank for told in gang}
    for told in gang:
        members = told.groups[name].members if told.groups and name in told.groups else ()
        if members:
            return tuple(rank for rank in members if rank in ranks)
    return tuple(sorted(calls))


def _to_name(missing: Sequence[Told], size: int) -> tuple[int, ...]:
    """Of the ranks that have not entered it: who could tell and is not there, and who cannot tell for a reason."""
    sure = [told.rank for told in missing if told.groups is not None or told.state in _SILENT_STATES]
    unheard = [told.rank for told in missing]
    if sure:
        return tuple(sure)
    return tuple(unheard) if len(unheard) <= size / 2 else ()


def _unlike(entered: dict[int, Call], members: tuple[int, ...], waiting: tuple[int, ...]) -> Iterator[Stuck]:
    """All have entered it: whether they have called the same."""
    if stuck := _minority(Kind.ORDER, {rank: call.name for rank, call in entered.items()}, entered, members):
        yield Stuck(Kind.ORDER, stuck.call, members, stuck.ranks, waiting, stuck.differs)
        return
    if next(iter(entered.values())).name in _UNEQUAL:
        return
    sizes = {rank: f"{call.sizes} {call.types}" for rank, call in entered.items()}
    if stuck := _minority(Kind.SIZES, sizes, entered, members):
        yield Stuck(Kind.SIZES, stuck.call, members, stuck.ranks, waiting, stuck.differs)


def _minority(
    kind: Kind, said: dict[int, str], entered: dict[int, Call], members: tuple[int, ...]
) -> Stuck | None:
    counts = Counter(said[rank] for rank in sorted(said)).most_common()
    if len(counts) < 2:
        return None
    usual = counts[0][0]
    ranks = tuple(sorted(rank for rank, words in said.items() if words != usual))
    call = next(entered[rank] for rank in sorted(said) if said[rank] == usual)
    return Stuck(kind, call, members, ranks, (), entered[ranks[0]])


def ranks_in_words(ranks: Sequence[int]) -> str:
    return ", ".join(spans(sorted(ranks))[:20])
