"""One sentence of the evidence of a gang that stands still, and whether two looks prove a hang. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from logs.hangs import collectives, places
from logs.hangs.collectives import Stuck, ranks_in_words
from logs.hangs.evidence import ENDED, Told
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
_FOR_GOOD = {Kind.STOPPED} | _OF_THE_HOST
#: A rank that is alone there may be waiting for something that never comes.
_TELLING = _FOR_GOOD | {Kind.WRITEBACK, Kind.LOADER, Kind.LOCK, Kind.PIPE, Kind.SOCKET, Kind.FILE, Kind.CHILD}
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

    @property
    def needs_the_kernels_word(self) -> bool:
        """Whether a rank that it names stands there: how long is for the pulse to say."""
        return any(Kind(place) in _OF_THE_HOST for place in self.places)


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
    who, words = _who(ranks, gang), at[ranks[0]].words
    sentence = f"{who} {words}." if len(ranks) == 1 else f"{who} stand still. Rank {ranks[0]} {words}."
    return Verdict(_BY_PLACE, tuple(ranks), sentence, places=_kinds(ranks, at))


def confirmed(before: Verdict | None, now: Verdict | None) -> bool:
    """Whether two looks say the same, so that nothing has moved between them."""
    if before is None or now is None:
        return False
    return (before.kind, before.ranks, before.collective) == (now.kind, now.ranks, now.collective)


def is_worth_telling(
    verdict: Verdict, before: Sequence[Told], now: Sequence[Told], apart_seconds: float
) -> bool:
    """Where no collective says that others wait, a rank is named only if it is not seen to move."""
    if verdict.kind not in (_BY_STACKS, _BY_PLACE):
        return True
    then = {told.rank: told for told in before}
    pairs = [(then.get(told.rank), told) for told in now if told.rank in verdict.ranks]
    return all(was is not None and not _has_moved(was, told, apart_seconds) for was, told in pairs)


def may_be_ended(verdict: Verdict, before: Sequence[Told], now: Sequence[Told], apart_seconds: float) -> bool:
    """Whether what two looks saw proves that the gang never continues by itself.

    No rank has moved between the looks, and all are known. Then either all that are left wait in collectives that
    cannot end, each in one; or the ranks that are named stand in places in which nothing ever happens again.
    """
    then = {told.rank: told for told in before}
    if apart_seconds < APART_SECONDS or verdict.kind in (_BY_STACKS, _BY_MARK):
        return False  # which say that a rank is elsewhere, not that others wait for it
    if then.keys() != {told.rank for told in now} or not then.keys() >= set(verdict.ranks):
        return False
    if not all(_stood_still(then[told.rank], told, apart_seconds) for told in now):
        return False
    left = [told for told in now if told.state != ENDED]
    if verdict.kind in _UNLIKE:
        return _cannot_fit(verdict, now) and all(map(_only_waits, left))
    named = [told for told in now if told.rank in verdict.ranks]
    if any(told.state == ENDED for told in named):  # that alone is a rank whose work is done
        waiting = [told for told in left if told not in named]
        if verdict.kind != collectives.Kind.MISSING or not waiting or not all(map(_only_waits, waiting)):
            return False
    return all(told.state == ENDED or _stays(told) for told in named)


def _cannot_fit(verdict: Verdict, now: Sequence[Told]) -> bool:
    """Whether the ranks that are named are still in such a collective: a rank that has left it is not stuck there."""
    stuck = collectives.find(now)
    return stuck is not None and stuck.ranks == verdict.ranks and (
        stuck.kind == collectives.Kind.CYCLE or set(stuck.ranks) <= set(stuck.waiting)
    )  # fmt: skip


def _only_waits(told: Told) -> bool:
    """Its main thread is in a collective, no other is at work, and there is one that it can be in."""
    calls_open = [call for group in (told.groups or {}).values() for call in group.calls if not call.done]
    return len(calls_open) == 1 and places.only_waits(told)


def _stays(told: Told) -> bool:
    """A rank that the kernel holds may have a thread that is at work over the network: slow is not stuck."""
    kind = places.place_of(told).kind
    return kind in _FOR_GOOD and (
        kind not in _OF_THE_HOST or (bool(told.text) and not places.talks(told.text))
    )


def _stood_still(before: Told, now: Told, seconds: float) -> bool:
    """It is seen not to have moved; what nobody knows is no evidence."""
    if ENDED in (before.state, now.state):
        return before.state == now.state
    known = (before.cpu_seconds, now.cpu_seconds, before.moved_bytes_after, now.moved_bytes)
    return None not in known and not _has_moved(before, now, seconds)


def _has_moved(before: Told, now: Told, seconds: float) -> bool:
    """Another process or place, or it has computed, or has moved bytes. Our own question moves some, which are in
    `moved_bytes_after`."""
    # which thread is called the current one depends on who took the signal
    texts = [told.text.replace("Current thread", "Thread") for told in (before, now)]
    kinds = {places.place_of(told).kind for told in (before, now)}
    if before.pid != now.pid or texts[0] != texts[1] or len(kinds) > 1:
        return True
    if (
        None not in (before.moved_bytes_after, now.moved_bytes)
        and before.moved_bytes_after != now.moved_bytes
    ):
        return True
    if before.cpu_seconds is None or now.cpu_seconds is None:
        return False
    return not 0 <= now.cpu_seconds - before.cpu_seconds <= _NOTHING_CPU * seconds + _NOTHING_SECONDS


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
