"""Which part of a group makes it slow: from the rates of its pairs, or by a binary search over halves. Pure.

A part is a host of a gang, or a GPU of one host, by its number. No part is named without proof: whatever the rates are,
a healthy one is not named as long as the healthy ones are more than half, and differ by less than `SLOW`.
"""

from __future__ import annotations

from itertools import product
from typing import (
    Dict,
    FrozenSet,
    Generator,
    Iterable,
    Iterator,
    List,
    Mapping,
    Optional,
    Sequence,
    Set,
    Tuple,
)

Pair = FrozenSet[int]
#: the subsets of one round, which share no part, and whether each of them works well
Round = List[Tuple[int, ...]]
Search = Generator[Round, List[bool], Optional[int]]

#: of what is usual: below the first it is told, below the second it is bad
SLOW, BAD = 0.75, 0.5


def rounds(count: int) -> Iterator[List[Tuple[int, int]]]:
    """Pairs of 0 … count - 1 by the circle method: one stays, the others move on by a place each round.

    Every pair comes once, and no part is in two pairs of a round.
    """
    circle: List[Optional[int]] = [*range(count)]
    if count % 2:
        circle.append(None)  # whoever draws it rests
    half = len(circle) // 2
    for _ in range(len(circle) - 1):
        facing = [(circle[place], circle[-1 - place]) for place in range(half)]
        yield [(min(a, b), max(a, b)) for a, b in facing if a is not None and b is not None]
        circle.insert(1, circle.pop())


def usual(rates: Iterable[float], count: int) -> float:
    """The rate that the pairs of more than half of `count` parts reach; 0 if too few pairs were measured."""
    majority = count // 2 + 1
    place = majority * (majority - 1) // 2
    ordered = sorted(rates, reverse=True)
    return ordered[place - 1] if 0 < place <= len(ordered) else 0.0


def slow_parts(pairs: Mapping[Pair, float], parts: Sequence[int], share: float = SLOW) -> Optional[Set[int]]:
    """The parts that are slow with each of the others, which are all well among themselves; None if it is not so.

    Slow is below this share of what is usual. A pair that failed has the rate 0.
    """
    least = share * usual(pairs.values(), len(parts))
    if least <= 0:
        return None
    well = _together(pairs, parts, least)
    if 2 * len(well) <= len(parts):
        return None
    if any(pairs.get(frozenset((a, b)), 0.0) < least for a in well for b in well if a < b):
        return None
    outside = set(parts) - well
    is_known = all(frozenset((a, b)) in pairs for a in well for b in outside)
    return outside if is_known else None


def _together(pairs: Mapping[Pair, float], parts: Sequence[int], least: float) -> Set[int]:
    """The most parts that pairs with this rate connect."""
    found: List[Set[int]] = []
    left = set(parts)
    while left:
        group, edge = set(), [left.pop()]
        while edge:
            part = edge.pop()
            group.add(part)
            near = {other for other in left if pairs.get(frozenset((part, other)), 0.0) >= least}
            left -= near
            edge += near
        found.append(group)
    return max(found, key=len, default=set())


def search(parts: Sequence[int]) -> Search:
    """Find the part because of which all of them together are not well. It returns None if it is not a single one.

    Yields rounds of subsets, and is sent whether each works well. Of n parts at most ceil(log2 n) + 1 rounds are
    needed; the last one is the proof, that all without the part are well.
    """
    suspects: List[int] = list(parts)
    good: List[int] = []
    while len(suspects) > 1:
        half = (len(suspects) + 1) // 2
        halves = [suspects[:half], suspects[half:]]
        tried = _with_partners(halves, good)
        if not tried:
            return None
        answers = yield [tuple(sorted(subset)) for subset in tried]
        if len(tried) == 2 and answers[0] == answers[1]:
            return None
        bad = 1 if answers[0] else 0
        good, suspects = good + halves[1 - bad], halves[bad]
    rest = tuple(part for part in parts if part != suspects[0])
    if len(rest) < 2:
        return None
    answers = yield [rest]
    return suspects[0] if answers[0] else None


def _with_partners(halves: Sequence[Sequence[int]], good: Sequence[int]) -> List[List[int]]:
    """The halves, each with half of the good parts; the first one alone if nothing is left for the second."""
    tried = [[*half, *good[place::2]] for place, half in enumerate(halves)]
    has_both = len(tried[1]) > 1 and len(good) != 1
    return [subset for subset in (tried if has_both else tried[:1]) if len(subset) > 1]


def found_by(parts: Sequence[int], well: Mapping[FrozenSet[int], bool]) -> Optional[int]:
    """What the search finds with these answers; None as well if one that it needs is missing."""
    going = search(parts)
    answers: Optional[List[bool]] = None
    try:
        while True:
            subsets = next(going) if answers is None else going.send(answers)
            if any(frozenset(subset) not in well for subset in subsets):
                return None
            answers = [well[frozenset(subset)] for subset in subsets]
    except StopIteration as over:
        part: Optional[int] = over.value
        return part


def asked(parts: Sequence[int]) -> Set[FrozenSet[int]]:
    """All larger subsets that are measured whatever the answers: all parts, and what the search may ask for."""
    found = {frozenset(parts)}
    paths: List[List[List[bool]]] = [[]]
    while paths:
        path = paths.pop()
        going = search(parts)
        try:
            subsets = next(going)
            for answers in path:
                subsets = going.send(answers)
        except StopIteration:
            continue
        found |= {frozenset(subset) for subset in subsets}
        paths += [[*path, list(answers)] for answers in product((False, True), repeat=len(subsets))]
    return found


def lower(known: Dict[Tuple[int, ...], float], subset: Tuple[int, ...], rate: float) -> None:
    """Keep the lower of what the members of a subset say: so each can only spoil what it is part of."""
    known[subset] = min(rate, known.get(subset, rate))
