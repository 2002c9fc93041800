"""What is in a chunk: its runs, and the lines that filters choose, without touching those that they do not."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain
from typing import Any

from logs.chunks import ChunkRun, Source
from logs.filters import Clock, Filters
from logs.levels import Level
from logs.lines import LogLine, text_of

_NAME_OF_DIGIT = {ord(str(level.value)): level.name if level else None for level in Level}


@dataclass(frozen=True)
class Piece:
    """Bytes for a download, of one `source` (with rank and stream). `cut`: its last line goes on in its next piece."""

    data: bytes
    source: tuple[Source, int | None, str]
    cut: bool


class Contents:
    """One unpacked chunk. Line indices count from 0 within it; line `index` has the number `first_line + index`."""

    def __init__(self, content: bytes, first_line: int) -> None:
        self._content = content
        self._text_at = content.index(b"\n") + 1
        self.first_line = first_line

    @cached_property
    def _header(self) -> dict[str, Any]:
        header: dict[str, Any] = json.loads(self._content[: self._text_at])
        return header

    @cached_property
    def _line_at(self) -> list[int]:
        """Index of the first line of each run, and how many there are in all."""
        return [0, *accumulate(self._header["lines"])]

    @cached_property
    def _times(self) -> list[float]:
        return [microseconds / 1_000_000 for microseconds in accumulate(self._header["time"])]

    @cached_property
    def _sources(self) -> list[Source]:
        return [Source(*source) for source in self._header["sources"]]

    @cached_property
    def _levels(self) -> bytes:
        levels: str = self._header.get("levels", "")
        return levels.encode()

    @cached_property
    def _texts(self) -> list[bytes]:
        return self._content[self._text_at :].split(b"\n")[:-1]

    @cached_property
    def _cut(self) -> frozenset[int]:
        return frozenset(self._header.get("cut", ()))

    def may_match(self, filters: Filters) -> bool:
        """False when no line can hold the text; costs no more than looking for its bytes."""
        return filters.may_match(self._content, self._text_at)

    def indices(self, filters: Filters, start: int, stop: int, clock: Clock) -> Sequence[int]:
        """Indices of the wanted lines from `start` up to and without `stop`. Raises Refusal."""
        stop = min(stop, self._line_at[-1])
        wanted = (
            [self._is_wanted(run, filters) for run in range(len(self._header["lines"]))]
            if (filters.chooses_runs)
            else None
        )
        if filters.text:
            found: Sequence[int] = self._holding(filters, start, stop)
            if wanted is not None:
                found = [index for index in found if wanted[bisect_right(self._line_at, index) - 1]]
        elif wanted is not None and not all(wanted):
            at = self._line_at
            ranges = (
                range(max(start, at[run]), min(stop, at[run + 1])) for run, yes in enumerate(wanted) if yes
            )
            found = list(chain.from_iterable(ranges))
        else:
            found = range(max(0, start), stop)
        if filters.levels:
            found = self._of_levels(filters, found)
        if filters.pattern:
            found = [index for index in found if filters.matches_pattern(text_of(self._texts[index]), clock)]
        return found

    def _is_wanted(self, run: int, filters: Filters) -> bool:
        header = self._header
        return filters.wants_run(
            header["rank"][run],
            header["stream"][run],
            self._times[run],
            self._sources[header["source"][run]],
        )

    def _holding(self, filters: Filters, start: int, stop: int) -> list[int]:
        """Indices of the lines that hold the text, found in the chunk's whole text and counted by its newlines."""
        if "\n" in filters.text:
            return []
        text: Any  # bytes or characters, and so is what is sought
        text, needle = filters.to_search(self._content[self._text_at :])
        newline: Any = "\n" if isinstance(needle, str) else b"\n"
        found, line, counted = [], 0, 0
        at = text.find(needle)
        while at >= 0 and line < stop:
            line += text.count(newline, counted, at)
            if start <= line < stop:
                found.append(line)
            counted = text.find(newline, at)
            at = text.find(needle, counted)
        return found

    def _of_levels(self, filters: Filters, found: Sequence[int]) -> Sequence[int]:
        if not self._levels:
            return found if Level.UNSPECIFIED in filters.levels else []
        digits = {ord(str(level.value)) for level in filters.levels}
        levels = self._levels
        return [index for index in found if levels[index] in digits]

    def lines(self, indices: Sequence[int]) -> list[LogLine]:
        """The lines of these ascending indices."""
        header, line_at, texts, levels = self._header, self._line_at, self._texts, self._levels
        lines, until = [], -1
        for index in indices:
            if index >= until:
                run = bisect_right(line_at, index) - 1
                until = line_at[run + 1]
                time, rank, stream = self._times[run], header["rank"][run], header["stream"][run]
                member, host = self._sources[header["source"][run]]
            level = _NAME_OF_DIGIT[levels[index]] if levels else None
            text = text_of(texts[index])
            number, cut = self.first_line + index, index in self._cut
            lines.append(LogLine(number, time, rank, stream, level, text, host, member, cut))
        return lines

    def runs(self) -> Iterator[ChunkRun]:
        """All of it, as it was packed."""
        header, at = self._header, self._text_at
        columns = zip(*(header[name] for name in ("source", "rank", "stream", "lines", "bytes")), strict=True)
        for run, (source, rank, stream, lines, size) in enumerate(columns):
            start = self._line_at[run]
            stop = start + lines
            levels = self._levels[start:stop]
            cut = [index - start for index in sorted(self._cut) if start <= index < stop] if self._cut else ()
            time = round(self._times[run] * 1_000_000)
            text = self._content[at : at + size]
            yield ChunkRun(self._sources[source], time, rank, stream, lines, levels, cut, text)
            at += size

    def number_at(self, time: float) -> int | None:
        """The number of the first line at or after this host time."""
        for run, at in enumerate(self._times):
            if at >= time:
                return self.first_line + self._line_at[run]
        return None

    def pieces(self, filters: Filters, start: int, stop: int, clock: Clock) -> Iterator[Piece]:
        """The exact bytes of the wanted lines, a piece for each stretch that needs no look at its lines."""
        indices = None
        if filters.chooses_lines:
            indices = set(self.indices(filters, start, stop, clock))
        for number, run in enumerate(self.runs()):
            if filters.chooses_runs and not self._is_wanted(number, filters):
                continue
            at = self._line_at[number]
            first, behind = max(0, start - at), min(run.lines, stop - at)
            chosen = (
                range(first, behind)
                if indices is None
                else [i for i in range(first, behind) if at + i in indices]
            )
            if chosen:
                yield _piece(run, chosen)


def _piece(run: ChunkRun, chosen: Sequence[int]) -> Piece:
    source = (run.source, run.rank, run.stream)
    if len(chosen) == run.lines and not run.cut:
        return Piece(run.text, source, False)
    texts, cut = run.text.split(b"\n"), frozenset(run.cut)
    data = b"".join(texts[i] if i in cut else texts[i] + b"\n" for i in chosen)
    return Piece(data, source, chosen[-1] in cut)
