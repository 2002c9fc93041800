"""What has changed between the code of two experiments: files added, removed and changed, line by line."""

from __future__ import annotations

import difflib
from collections import Counter
from dataclasses import dataclass
from typing import Literal

from submissions import contexts
from submissions.models import Context

Kind = Literal["added", "removed", "changed"]
MOST_LINES = 5_000  # of a file: comparing takes time that grows with the square of what differs
MOST_BYTES = 512 * 1024
MOST_PAIRS = 2_000_000  # of equal lines, in all files: each is looked at, some of them several times
MOST_ROWS = 20_000  # of all files
AROUND = 3  # lines shown before and after what differs


@dataclass(frozen=True)
class DiffLine:
    """A line of a unified diff. `mark`: "+", "-", " ", or "@" where lines are left out."""

    mark: str
    old: int | None
    new: int | None
    text: str


@dataclass(frozen=True)
class Change:
    """One file. `rows` is empty where `told` says why there are no lines to show."""

    path: str
    kind: Kind
    rows: list[DiffLine]
    added: int
    removed: int
    told: str = ""


def between(old: Context, new: Context) -> list[Change]:
    """In the order of the paths. The same content is found by its digest without being read."""
    if old.sha256 == new.sha256:
        return []
    before, after = dict(contexts.files_of(old)), dict(contexts.files_of(new))
    changes, left = [], Budget()
    for path in sorted(path for path in {*before, *after} if before.get(path) != after.get(path)):
        changes.append(of_file(path, before.get(path), after.get(path), left=left))
    return changes


@dataclass
class Budget:
    """What one page may still take: pairs of equal lines to be looked at, and rows to be shown."""

    pairs: int = MOST_PAIRS
    rows: int = MOST_ROWS


def of_file(path: str, old: bytes | None, new: bytes | None, *, left: Budget | None = None) -> Change:
    """One file; None where it is not there."""
    left = left or Budget()
    kind: Kind = "added" if old is None else "removed" if new is None else "changed"
    first, second = old or b"", new or b""
    if b"\0" in first[:8192] or b"\0" in second[:8192]:
        return Change(path, kind, [], 0, 0, f"Not text: {len(first):,} bytes before, {len(second):,} now.")
    before, after = (part.decode("utf-8", "replace").splitlines() for part in (first, second))
    if max(len(before), len(after)) > MOST_LINES or max(len(first), len(second)) > MOST_BYTES:
        told = f"Too large to compare line by line: {len(before):,} lines before, {len(after):,} now."
        return Change(path, kind, [], 0, 0, told)
    pairs = _pairs(before, after)
    rows = _rows(before, after) if pairs <= left.pairs else []
    if pairs > left.pairs or len(rows) > left.rows:
        told = f"Too many differences for one page: {len(before):,} lines before, {len(after):,} now."
        return Change(path, kind, [], 0, 0, told)
    left.pairs, left.rows = left.pairs - pairs, left.rows - len(rows)
    marks = [row.mark for row in rows]
    told = "" if rows else "Only the line endings differ."
    return Change(path, kind, rows, marks.count("+"), marks.count("-"), told)


def _pairs(before: list[str], after: list[str]) -> int:
    """How many lines of the one are how many of the other: many, where a line stands there again and again."""
    counts = Counter(before)
    return sum(counts[line] * count for line, count in Counter(after).items())


def _rows(before: list[str], after: list[str]) -> list[DiffLine]:
    rows: list[DiffLine] = []
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for group in matcher.get_grouped_opcodes(AROUND):
        rows.append(DiffLine("@", None, None, f"from line {group[0][3] + 1}"))
        for tag, a, b, c, d in group:
            if tag == "equal":
                rows += [DiffLine(" ", a + n + 1, c + n + 1, after[c + n]) for n in range(d - c)]
                continue
            rows += [DiffLine("-", a + n + 1, None, before[a + n]) for n in range(b - a)]
            rows += [DiffLine("+", None, c + n + 1, after[c + n]) for n in range(d - c)]
    return rows
