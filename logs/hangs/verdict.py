"""One sentence of the evidence of a gang that stands still, and whether two looks prove a hang. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from logs.hangs import collectives, places
from logs.hangs.collectives import Stuck, ranks_in_words
from logs.hangs.evidence import Told
from logs.hangs.places import Kind, Place

#: of one processor, between two looks: what a rank may use and yet have done nothing (timers, watchdogs of libraries)
_NOTHING_CPU = 0.005
_NOTHING_SECONDS = 0.05
#: Two looks that are to agree are at least this far apart.
APART_SECONDS = 20.0
_OF_THE_HOST = {Kind.MOUNT, Kind.KERNEL}
#: Places that a rank does not leave by itself. A rank elsewhere may be at work however long it takes, so nobody ends
#: it: what computes, sleeps, or is in a debugger, and also what waits for a lock, a pipe, a loader or the network,
#: because the other end may be at work where nobody can see it.
_FOR_GOOD = {Kind.ENDED, Kind.STOPPED} | _OF_THE_HOST
#: A rank that is alone there may be waiting for something that never comes.
_TELLING = _FOR_GOOD | {Kind.LOADER, Kind.LOCK, Kind.PIPE, Kind.SOCKET, Kind.FILE, Kind.CHILD}
_UNLIKE = {collectives.Kind.ORDER, collectives.Kind.SIZES, collectives.Kind.CYCLE}
_BY_STACKS = "stacks"
_BY_PLACE = "place"
_BY_MARK = "mark"


@dataclass(frozen=True)
class Verdict:
    """`kind`: one of collectives.Kind, `stacks`, `place` or `mark`. `places`: the kinds of place of `ranks`."""

    kind: str
    ranks: tuple[int, ...]
    sentence: str
    collective: str = ""
    places: tuple[str, ...] = ()

    @property
    def is_of_the_host(self) -> bool:
        """Whether every rank that it names stands in the kernel or a mount: a fault of the host, not the program."""
        return bool(self.places) and all(Kind(place) in _OF_THE_HOST for place in self.places)


def judge(gang: Sequence[Told], marks: Mapping[int, str] | None = None) -> Verdict | None:
    """What keeps the gang, None where the evidence names nothing. `marks`: of logs.pulse_marks, the weakest kind."""
    at = {told.rank: places.place_of(told) for told in gang}
    if stuck := collectives.find(gang):
        return _of_collective(stuck, gang, at)
    if verdict := _of_stacks(gang, at):
        return verdict
    ranks = [rank for rank, place in at.items() if place.kind in _TELLING]
    if ranks and len({at[rank].kind for rank in ranks}) == 1:
        return _of_places(gang, ranks, at)
    if marks:
        (rank, mark) = min(marks.items())
        return Verdict(_BY_MARK, (rank,), mark, places=_kinds([rank], at))
    return None


def _of_collective(stuck: Stuck, gang: Sequence[Told], at: Mapping[int, Place]) -> Verdict:
    words = stuck.words(len(gang))
    who, have = _who(stuck.ranks, gang), "has" if len(stuck.ranks) == 1 else "have"
    if stuck.kind == collectives.Kind.MISSING:
        sentence = (
            f"{who} {have} not entered {words}, in which rank{_s(stuck.waiting)} {ranks_in_words(stuck.waiting)} "
            f"wait{'s' if len(stuck.waiting) == 1 else ''}. {_it(stuck.ranks)} {at[stuck.ranks[0]].words}."
        )
    elif stuck.kind == collectives.Kind.CYCLE:
        sentence = f"{who} wait for each other in collectives of different groups, first in {words}."
    else:
        other = stuck.differs or stuck.call
        what = (
            f"{other.name} there"
            if stuck.kind == collectives.Kind.ORDER
            else f"sizes {other.sizes} {other.types}"
        )
        usual = (
            stuck.call.name
            if stuck.kind == collectives.Kind.ORDER
            else f"{stuck.call.sizes} {stuck.call.types}"
        )
        sentence = (
            f"{who} {have} called {words} otherwise than the other ranks: {what} instead of {usual}. "
            "Such a collective cannot end."
        )
    return Verdict(stuck.kind, stuck.ranks, sentence, words, _kinds(stuck.ranks, at))


def _of_stacks(gang: Sequence[Told], at: Mapping[int, Place]) -> Verdict | None:
    """Without recorders: most ranks are in a collective, and a few are elsewhere."""
    inside = [rank for rank, place in at.items() if place.kind == Kind.COLLECTIVE]
    outside = [rank for rank in at if rank not in inside and at[rank].kind != Kind.UNKNOWN]
    if not inside or not outside or len(outside) > len(gang) / 2:
        return None
    name = next((at[rank].collective for rank in inside if at[rank].collective), "a collective")
    sentence = (
        f"{_who(outside, gang)} {'is' if len(outside) == 1 else 'are'} not in {name}, in which rank{_s(inside)} "
        f"{ranks_in_words(inside)} wait{'s' if len(inside) == 1 else ''}. {_it(outside)} {at[outside[0]].words}."
    )
    return Verdict(_BY_STACKS, tuple(outside), sentence, name, _kinds(outside, at))


def _of_places(gang: Sequence[Told], ranks: Sequence[int], at: Mapping[int, Place]) -> Verdict:
    return Verdict(
        _BY_PLACE, tuple(ranks), f"{_who(ranks, gang)} {at[ranks[0]].words}.", places=_kinds(ranks, at)
    )


def confirmed(before: Verdict | None, now: Verdict | None) -> bool:
    """Whether two looks say the same, so that nothing has moved between them."""
    if before is None or now is None:
        return False
    return (before.kind, before.ranks, before.collective) == (now.kind, now.ranks, now.collective)


def may_be_ended(verdict: Verdict, before: Sequence[Told], now: Sequence[Told], apart_seconds: float) -> bool:
    """Whether what two looks saw proves that the gang never continues by itself.

    Either the ranks that it names wait in collectives that cannot end, or they are missing from one and have done
    nothing between the looks, in places in which nothing ever happens again.
    """
    then = {told.rank: told for told in before}
    pairs = [(then[told.rank], told) for told in now if told.rank in verdict.ranks and told.rank in then]
    if apart_seconds < APART_SECONDS or not pairs or len(pairs) < len(verdict.ranks):
        return False
    if verdict.kind in (
        _BY_STACKS,
        _BY_MARK,
    ):  # which say that a rank is elsewhere, not that others wait for it
        return False
    if verdict.kind in _UNLIKE:
        return all(_waits_still(*pair) for pair in pairs)
    return all(_did_nothing(*pair, apart_seconds) for pair in pairs)


def _waits_still(before: Told, now: Told) -> bool:
    """In the same line, and in no other than one that waits: its collective was not called to run beside other work."""
    kinds = {places.place_of(before).kind, places.place_of(now).kind}
    return kinds <= {Kind.COLLECTIVE, Kind.LOCK} and _is_unmoved(before, now)


def _did_nothing(before: Told, now: Told, seconds: float) -> bool:
    kinds = {places.place_of(before).kind, places.place_of(now).kind}
    if len(kinds) > 1 or not kinds <= _FOR_GOOD or kinds == {Kind.ENDED}:
        return kinds == {Kind.ENDED}
    if before.cpu_seconds is None or now.cpu_seconds is None or not _is_unmoved(before, now):
        return False
    used = now.cpu_seconds - before.cpu_seconds
    has_moved = now.moved_bytes is None or now.moved_bytes != before.moved_bytes
    if kinds <= _OF_THE_HOST and (has_moved or places.talks(now.text)):  # slow is not stuck
        return False
    return used <= _NOTHING_CPU * seconds + _NOTHING_SECONDS


def _is_unmoved(before: Told, now: Told) -> bool:
    """All its threads are where they were. Which of them is called the current one depends on who took the signal."""
    texts = [told.text.replace("Current thread", "Thread") for told in (before, now)]
    return before.pid == now.pid and texts[0] == texts[1]


def _kinds(ranks: Sequence[int], at: Mapping[int, Place]) -> tuple[str, ...]:
    return tuple(str(at[rank].kind) for rank in ranks if rank in at)


def _who(ranks: Sequence[int], gang: Sequence[Told]) -> str:
    if len(ranks) == 1:
        name = next((told.name for told in gang if told.rank == ranks[0]), f"rank {ranks[0]}")
        return name[:1].upper() + name[1:]
    return f"Ranks {ranks_in_words(ranks)}"


def _it(ranks: Sequence[int]) -> str:
    return "It" if len(ranks) == 1 else f"Rank {ranks[0]}"


def _s(ranks: Sequence[int]) -> str:
    return "" if len(ranks) == 1 else "s"
