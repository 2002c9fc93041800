"""Arrays: one command run once for each of several numbers (pure). Written as in Slurm: `0-99%8`, `0-99:2`, `1,3,7`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

#: variables of each element: its index, what all elements share, and the bounds of the indices
INDEX, ID, COUNT = "TRAINMASTER_ARRAY_INDEX", "TRAINMASTER_ARRAY_ID", "TRAINMASTER_ARRAY_COUNT"
MIN, MAX = "TRAINMASTER_ARRAY_MIN", "TRAINMASTER_ARRAY_MAX"
#: the largest index
MOST_INDEX = 999_999
FORMS = "indices such as 0-99, 0-99:2 (every second) or 1,3,7; add %8 to run at most 8 at once"
_PART = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?", re.ASCII)
_LIMIT = re.compile(r"\d{1,9}", re.ASCII)


@dataclass(frozen=True)
class Indices:
    """The indices in ascending order, and how many elements run at once (None: all)."""

    values: tuple[int, ...]
    at_once: int | None = None

    def __str__(self) -> str:
        limit = f"%{self.at_once}" if self.at_once else ""
        return f"{','.join(map(_run, _runs(self.values)))}{limit}"


def parse(text: str, most: int) -> Indices:
    """The indices that a text describes, `most` at most. Raises ValueError with what is allowed instead."""
    listed, percent, limit = "".join(text.split()).partition("%")
    if percent and not (_LIMIT.fullmatch(limit) and int(limit)):
        raise ValueError("a whole number above 0 after %, such as 0-99%8")
    values: set[int] = set()
    for part in listed.split(","):
        found = _PART.fullmatch(part)
        if found is None:
            raise ValueError(FORMS)
        _add(values, *(None if group is None else int(group) for group in found.groups()), most=most)
    return Indices(tuple(sorted(values)), int(limit) if percent else None)


def _add(values: set[int], first: int | None, last: int | None, step: int | None, *, most: int) -> None:
    assert first is not None
    last = first if last is None else last
    if step == 0:
        raise ValueError("a step of 1 or more after :, such as 0-99:2")
    if last < first:
        raise ValueError(f"a range from the smaller index to the larger one, such as {last}-{first}")
    if last > MOST_INDEX:
        raise ValueError(f"indices from 0 to {MOST_INDEX:,}")
    new = range(first, last + 1, step or 1)
    if len(values) + len(new) > most:
        raise ValueError(f"at most {most:,} elements; split it into several arrays")
    if twice := values.intersection(new):
        raise ValueError(f"each index once; {min(twice)} is there twice")
    values.update(new)


def variables(indices: Indices, index: int, array_id: str) -> dict[str, str]:
    """What the environment of an element has, besides what all commands have."""
    values = indices.values
    found = {INDEX: index, ID: array_id, COUNT: len(values), MIN: values[0], MAX: values[-1]}
    return {name: str(value) for name, value in found.items()}


def _runs(values: Sequence[int]) -> list[tuple[int, int, int]]:
    """(first, last, step) of each run of at least 3 indices at one distance, and of each index between them."""
    runs: list[tuple[int, int, int]] = []
    at = 0
    while at < len(values):
        end, step = at, 1
        if at + 2 < len(values):
            step = values[at + 1] - values[at]
            while end + 1 < len(values) and values[end + 1] - values[end] == step:
                end += 1
        end = end if end - at >= 2 else at
        runs.append((values[at], values[end], step))
        at = end + 1
    return runs


def _run(run: tuple[int, int, int]) -> str:
    first, last, step = run
    if first == last:
        return str(first)
    return f"{first}-{last}" + (f":{step}" if step > 1 else "")
