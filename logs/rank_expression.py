"""What a person writes to choose ranks: `0-7,64,!5 host:gpu-2 silent one-per-host`.

Words narrow one another from left to right. Within a word, commas add, and `!` takes away:

- `5`, `0-7`: these ranks, whether or not they have written yet
- `host:NAME`: the ranks on that host
- `marked`: their progress stands while their peers' goes on; `silent`: no line while others write; `failed`
- `one-per-host`: the lowest rank of each host, of those that the words before leave
- `none`: lines outside any rank

Pure: what is known of the ranks is handed in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from accounts.refusals import Refusal
from logs.lines import NO_RANK

RANK_MAX = 9_999
TEXT_CHARACTERS_MAX = 1_000
#: A rank that no gang has: the filter of an expression that fits nobody. An empty filter would mean all.
NOBODY = 2**31 - 1

_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_MARKS = ("marked", "silent", "failed")
_ALLOWED = f"ranks (5, 0-7), host:NAME, {', '.join(_MARKS)}, one-per-host, none; `!` before one excludes it"


@dataclass(frozen=True)
class Known:
    """What is known of a rank (>= 0) now."""

    rank: int
    host: str
    marked: bool = False
    silent: bool = False
    failed: bool = False


class _Term(NamedTuple):
    """`word` is a mark, `one-per-host`, `none`, `host` (of `name`) or `range` (`first` to `last`)."""

    is_taken_away: bool
    word: str
    name: str = ""
    first: int = 0
    last: int = 0


@dataclass(frozen=True)
class Expression:
    """A parsed text. Without words it leaves all ranks."""

    text: str
    words: tuple[tuple[_Term, ...], ...]

    @property
    def needs_facts(self) -> bool:
        """Whether the choice depends on what is known of the ranks, and so may change as the job goes on."""
        only_takes_away = bool(self.words) and all(term.is_taken_away for term in self.words[0])
        return only_takes_away or any(
            term.word not in ("range", "none") for word in self.words for term in word
        )

    def ranks(self, known: Iterable[Known]) -> frozenset[int]:
        """The chosen ranks, -1 for lines outside any. Empty: nobody fits. A rank is listed once in `known`."""
        facts = {each.rank: each for each in known if each.rank >= 0}
        chosen: frozenset[int] | None = None  # None: nothing said so far, so all
        for word in self.words:
            chosen = _narrowed(chosen, word, facts)
        return frozenset(facts) | {NO_RANK} if chosen is None else chosen

    def for_filter(self, known: Iterable[Known]) -> frozenset[int]:
        """Return the chosen ranks for Filters.ranks (empty: all): {NOBODY} if no rank fits, empty without words."""
        return (self.ranks(known) or frozenset({NOBODY})) if self.words else frozenset()


def parse(text: str) -> Expression:
    """Read what a person wrote; empty chooses all. Raises Refusal."""
    if len(text) > TEXT_CHARACTERS_MAX:
        raise Refusal(
            f"The rank expression has {len(text)} characters; allowed: at most {TEXT_CHARACTERS_MAX}."
        )
    joined = re.sub(r"\s*,\s*", ",", text.strip().strip(",").strip())  # `0, 1` is one word
    words = [[_term(part) for part in word.split(",") if part] for word in joined.split()]
    return Expression(text.strip(), tuple(tuple(word) for word in words if word))


def _term(text: str) -> _Term:
    is_taken_away, bare = text.startswith("!"), text.removeprefix("!")
    if found := _RANGE.fullmatch(bare):
        return _range(is_taken_away, bare, int(found[1]), int(found[2] or found[1]))
    if bare.startswith("host:"):
        if name := bare.removeprefix("host:"):
            return _Term(is_taken_away, "host", name=name)
        raise Refusal("host: needs a host name; write host:NAME, for example host:gpu-2.")
    if bare in _MARKS or bare in ("one-per-host", "none"):
        return _Term(is_taken_away, bare)
    raise Refusal(f"{text!r} is not a rank expression; allowed: {_ALLOWED}.")


def _range(is_taken_away: bool, text: str, first: int, last: int) -> _Term:
    if first > last:
        raise Refusal(f"{text} starts after its end; write {last}-{first}.")
    if last > RANK_MAX:
        raise Refusal(f"{text} goes above rank {RANK_MAX}, the highest allowed.")
    return _Term(is_taken_away, "range", first=first, last=last)


def _narrowed(
    chosen: frozenset[int] | None, word: tuple[_Term, ...], facts: dict[int, Known]
) -> frozenset[int]:
    among = frozenset(facts) | {NO_RANK} if chosen is None else chosen
    kept = among
    if any(not term.is_taken_away for term in word):
        added = frozenset().union(*(_fitting(term, among, facts) for term in word if not term.is_taken_away))
        kept = added if chosen is None else chosen & added
    return kept.difference(*(_fitting(term, among, facts) for term in word if term.is_taken_away))


def _fitting(term: _Term, among: frozenset[int], facts: dict[int, Known]) -> set[int]:
    if term.word == "range":
        return set(range(term.first, term.last + 1))
    if term.word == "none":
        return {NO_RANK}
    if term.word == "one-per-host":
        lowest: dict[str, int] = {}
        for rank in sorted(among & facts.keys()):
            lowest.setdefault(facts[rank].host, rank)
        return set(lowest.values())
    if term.word == "host":
        return {rank for rank, each in facts.items() if each.host == term.name}
    return {rank for rank, each in facts.items() if getattr(each, term.word)}
