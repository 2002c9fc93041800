"""Who meets whom, and when: every pair once, no host in two pairs at a time. Pure."""

from __future__ import annotations

from collections.abc import Iterator

Pair = tuple[int, int]


def rounds(count: int) -> Iterator[list[Pair]]:
    """Pairs of 0 … count - 1 by the circle method: one stays, the others move on by a place each round."""
    circle: list[int | None] = [*range(count)]
    if count % 2:
        circle.append(None)  # whoever draws it rests
    half = len(circle) // 2
    for _ in range(len(circle) - 1):
        facing = zip(circle[:half], reversed(circle[half:]), strict=True)
        yield [(min(a, b), max(a, b)) for a, b in facing if a is not None and b is not None]
        circle.insert(1, circle.pop())


def batches(count: int, at_once: int) -> list[list[Pair]]:
    """The rounds, cut into batches of at most so many pairs."""
    return [
        meeting[begin : begin + at_once]
        for meeting in rounds(count)
        for begin in range(0, len(meeting), at_once)
    ]
