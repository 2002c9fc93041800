"""Durations, sizes and counts as people read them: the same words in the CLI, on pages and in logs."""

from __future__ import annotations

from typing import Any, Iterable, List

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"))


def duration(seconds: float) -> str:
    """`95 s`, `12 min`, `3 h 20 min`, `4 d 6 h`."""
    if round(seconds) < 120:
        return f"{max(0, round(seconds))} s"
    grain = 3_600 if seconds >= 86_400 else 60
    left = round(seconds / grain) * grain
    parts = []
    for size_of_unit, unit in _UNITS:
        count, left = divmod(left, size_of_unit)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts)


def age(seconds: float) -> str:
    """`40 s`, `3 h`, `4 d`: a duration that keeps growing, in one unit. static/js/live.js counts in the same words."""
    for size_of_unit, unit in _UNITS:
        if seconds >= size_of_unit:
            return f"{seconds / size_of_unit:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def counted(number: int, noun: str) -> str:
    """`1 file`, `3 files`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def spans(numbers: Iterable[int]) -> List[str]:
    """`0-3` and `7` of ascending numbers."""
    found: List[List[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return [f"{first}" if first == last else f"{first}-{last}" for first, last in found]


def size(count: float) -> str:
    """`512 B`, `1.5 KiB`, `95.0 MiB`."""
    if count < 1024:
        return f"{count:.0f} B"
    for unit in ("KiB", "MiB", "GiB"):
        count /= 1024
        if count < 1024:
            return f"{count:.1f} {unit}"
    return f"{count / 1024:.1f} TiB"


def number_or_text(text: str) -> Any:
    """The number, or the text as it is: the server has the one sentence for what is wrong."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
