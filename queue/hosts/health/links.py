"""What the rates between hosts of a group, or between GPUs of one host, mean. Pure.

Rates come from programs on hosts, so they are claims: of each subset the lowest that its members report counts, so
that a host which answers garbage spoils only what it is part of.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from itertools import combinations
from statistics import median
from types import MappingProxyType
from typing import Any

from hosts.health.burn_in import LEAST_HOSTS, Figure, is_of, printable
from trainmaster.burn_in.bad_part import BAD, SLOW, asked, found_by, slow_parts, usual

MEASURES = {"all_reduce": "all-reduce", "send": "point-to-point rate"}
UNIT = "GB/s"
_MOST, _HOW_CHARACTERS, _SENTENCE_CHARACTERS = 1e6, 160, 300
#: sentences about pairs in one result
_MOST_PAIRS = 5
#: parts of a subset that is more than a pair
_LARGER = 3
#: `how` of a rate whose parts are not alike, as of hosts with different GPUs; such are compared with no others
UNLIKE = "unlike"


#: how it was measured -> the median of all-reduces of pairs, and of how many
Medians = Mapping[str, tuple[float, int]]


@dataclass(frozen=True)
class Rate:
    """Of a subset of parts, which are ids of hosts or numbers of slots. `send` is from the first part to the second.

    0 with a `sentence`: it failed. `beside`: something else ran on one of the hosts.
    """

    measure: str
    parts: tuple[str, ...]
    value: float
    how: str = ""
    device: str = ""
    sentence: str = ""
    beside: bool = False

    @property
    def subset(self) -> frozenset[str]:
        return frozenset(self.parts)


@dataclass(frozen=True)
class LinkFinding:
    """`part`: whose fault it is, None if that is not known. `parts`: all that it is about. `fails`: not only slow."""

    part: str | None
    parts: tuple[str, ...]
    sentence: str
    is_bad: bool = False
    fails: bool = False

    @property
    def is_only_told(self) -> bool:
        """A slow pair without a part may be how the host is built, as where only some GPUs have a bridge."""
        return self.part is None and not self.fails


def stored(records: Iterable[Mapping[str, Any]]) -> list[Rate]:
    """As `as_record` made them."""
    return [Rate(**{**each, "parts": tuple(each["parts"])}) for each in records]


def as_record(rate: Rate) -> dict[str, Any]:
    return {**asdict(rate), "parts": list(rate.parts)}


def read(record: Mapping[str, Any], numbers: Mapping[int, str], own: Collection[str]) -> list[Rate]:
    """The rates in a record of a program; what is none is left out. `numbers`: the parts by their number in it.

    Only subsets with one of the parts in `own` count: those of the host that reports it. Of larger ones, only those
    that the program measures, so a host cannot tell so many that there is no room for those of others.
    """
    how, rates = record.get("how"), record.get("rates")
    if not isinstance(how, str) or not isinstance(rates, list):
        return []
    found = []
    for each in rates[: most_rates(len(numbers))]:
        rate = _read(each, numbers) if isinstance(each, dict) else None
        if rate is not None and rate.subset & set(own):
            found.append(replace(rate, how=printable(how)[:_HOW_CHARACTERS]))
    return found


def _read(told: dict[str, Any], numbers: Mapping[int, str]) -> Rate | None:
    measure, parts, value = told.get("measure"), told.get("parts"), told.get("value")
    if not isinstance(measure, str) or measure not in MEASURES or not isinstance(parts, list):
        return None
    if not 2 <= len(parts) <= len(numbers) or not all(
        part is not None and is_of(part, numbers) for part in parts
    ):
        return None
    if len(set(parts)) < len(parts) or (measure == "send" and len(parts) > 2):
        return None
    if len(parts) > 2 and frozenset(parts) not in _asked(tuple(sorted(numbers))):
        return None
    parts = parts if measure == "send" else sorted(parts)  # only there it matters which is the first
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _MOST:
        return None
    sentence = printable(str(told.get("sentence") or ""))[:_SENTENCE_CHARACTERS]
    return Rate(measure, tuple(numbers[part] for part in parts), float(value), sentence=sentence)


@lru_cache(maxsize=64)
def _asked(numbers: tuple[int, ...]) -> frozenset[frozenset[int]]:
    return frozenset(asked(numbers))


def merged(known: Sequence[Rate], new: Iterable[Rate], most: int) -> list[Rate]:
    """With the new ones, the lower of each that is known already; `most`: so many at most."""
    by_key = {(rate.measure, rate.parts): rate for rate in known}
    for rate in new:
        before = by_key.get((rate.measure, rate.parts))
        if before is None and len(by_key) >= most:
            continue
        if before is not None:
            lower = min(before, rate, key=lambda each: each.value)
            how = rate.how if rate.how == before.how else UNLIKE
            rate = replace(lower, how=how, beside=before.beside or rate.beside)
        by_key[rate.measure, rate.parts] = rate
    return list(by_key.values())


def most_rates(parts: int) -> int:
    """How many there can be: each pair, both ways between its parts, all together, and those of the search."""
    return 3 * parts * (parts - 1) // 2 + 4 * parts + 1


def _lowest(rates: Iterable[Rate], measure: str) -> dict[frozenset[str], Rate]:
    """Of each subset; of a pair the slower of both ways."""
    found: dict[frozenset[str], Rate] = {}
    for rate in rates:
        if rate.measure == measure:
            before = found.get(rate.subset)
            found[rate.subset] = rate if before is None else min(before, rate, key=lambda each: each.value)
    return found


def of_pairs(rates: Iterable[Rate], measure: str) -> dict[frozenset[str], Rate]:
    """The slower of both ways for each pair."""
    return {subset: rate for subset, rate in _lowest(rates, measure).items() if len(subset) == 2}


def figures(rates: Sequence[Rate], slots: Mapping[str, int]) -> list[Figure]:
    """Those of GPUs of one host as figures: of all together for the host, and for each slot the median of its pairs."""
    found = []
    pairs = of_pairs(rates, "all_reduce")
    for part, slot in slots.items():
        own = [rate for pair, rate in pairs.items() if part in pair]
        if _alike(own):
            value = median(rate.value for rate in own)
            found.append(Figure("pair_all_reduce", value, own[0].how, own[0].device, slot))
    whole = next(
        (rate for rate in rates if rate.measure == "all_reduce" and len(rate.parts) == len(slots)), None
    )
    if whole is not None and _alike([whole]):
        found.append(Figure("all_reduce", whole.value, f"{len(slots)} GPUs, {whole.how}", whole.device))
    return found


def judge(
    rates: Sequence[Rate],
    parts: Sequence[str],
    name: Callable[[str], str],
    usually: Medians = MappingProxyType({}),
) -> list[LinkFinding]:
    """What is wrong: parts that are slow with all others, else pairs. `usually`: of other pairs of the pool."""
    findings = _named_by_pairs(rates, parts, name) or _by_search(rates, parts, name)
    named = {each.part for each in findings if each.part is not None}
    findings += _uneven([rate for rate in rates if not named & rate.subset], parts, name)
    if not named:
        findings += _all_fail(rates, parts)
    about = {frozenset(each.parts) for each in findings}
    for finding in _beside_the_pool(rates, usually, name):
        if frozenset(finding.parts) not in about and not named & set(finding.parts):
            findings.append(finding)
    return findings


def _named_by_pairs(
    rates: Sequence[Rate], parts: Sequence[str], name: Callable[[str], str]
) -> list[LinkFinding]:
    for measure in MEASURES:
        pairs = of_pairs(rates, measure)
        numbers = {part: number for number, part in enumerate(parts)}
        values = {frozenset(numbers[part] for part in pair): rate.value for pair, rate in pairs.items()}
        slow = slow_parts(values, range(len(parts)))
        if slow is None:  # the others differ by more than a quarter
            slow = slow_parts(values, range(len(parts)), BAD)
        if slow:
            return [_named(pairs, measure, parts[number], parts, slow, name) for number in sorted(slow)]
    return []


def _uneven(rates: Sequence[Rate], parts: Sequence[str], name: Callable[[str], str]) -> list[LinkFinding]:
    """Pairs that fail, then those that are slow, although nobody is slow with all others."""
    pairs = of_pairs(rates, "all_reduce")
    usually = usual([rate.value for rate in pairs.values()], len(parts))
    slow = {pair: rate for pair, rate in pairs.items() if not rate.value or rate.value < BAD * usually}
    for pair, rate in of_pairs(rates, "send").items():
        if not rate.value:
            slow.setdefault(pair, rate)
    return [
        LinkFinding(None, rate.parts, _of_one_pair(rate, usually, name), fails=not rate.value)
        for rate in sorted(slow.values(), key=lambda rate: rate.value)[:_MOST_PAIRS]
    ]


def _of_one_pair(rate: Rate, usually: float, name: Callable[[str], str]) -> str:
    among = f", usual among these is {usually:.3g} {UNIT}" if usually and rate.measure == "all_reduce" else ""
    why = f"{_both(rate, name)}: {MEASURES[rate.measure]} {_amount(rate)}{among}"
    return f"{why}; because of which part is not known"


def _named(
    pairs: Mapping[frozenset[str], Rate],
    measure: str,
    part: str,
    parts: Sequence[str],
    slow: Collection[int],
    name: Callable[[str], str],
) -> LinkFinding:
    others = [each for number, each in enumerate(parts) if number not in slow]
    own = [pairs[frozenset((part, other))] for other in others]
    among = [pairs[frozenset(pair)] for pair in combinations(others, 2)]
    theirs = median(rate.value for rate in among)
    typical = sorted(own, key=lambda rate: rate.value)[len(own) // 2]
    least = BAD * usual([rate.value for rate in pairs.values()], len(parts))
    is_bad = (
        len(others) >= LEAST_HOSTS
        and all(rate.value < least for rate in own)
        and not any(rate.beside for rate in own)
        and _alike([*own, *among])
    )
    sentence = (
        f"{name(part)}: {MEASURES[measure]} with each of {len(others)} others {_amount(typical)}, "
        f"the others among themselves {theirs:.3g} {UNIT}"
    )
    return LinkFinding(part, (part, *others), sentence, is_bad)


def _alike(rates: Iterable[Rate]) -> bool:
    """Whether all were measured in the same way, so that a lower one is no property of what was measured."""
    hows = {rate.how for rate in rates}
    return len(hows) == 1 and UNLIKE not in hows


def _by_search(rates: Sequence[Rate], parts: Sequence[str], name: Callable[[str], str]) -> list[LinkFinding]:
    """The part without which all together are well, if no larger subset with it is."""
    known = _lowest(rates, "all_reduce")
    least = BAD * usual([rate.value for subset, rate in known.items() if len(subset) == 2], len(parts))
    whole = known.get(frozenset(parts))
    if whole is None or whole.value >= least:
        return []
    numbers = {part: number for number, part in enumerate(parts)}
    well = {
        frozenset(numbers[part] for part in subset): rate.value >= least for subset, rate in known.items()
    }
    found = found_by(range(len(parts)), well)
    larger = min(_LARGER, len(parts) - 1)
    if found is None or any(
        is_well for subset, is_well in well.items() if found in subset and len(subset) >= larger
    ):
        return []
    others = [part for part in parts if part != parts[found]]
    sentence = (
        f"{name(parts[found])}: all-reduce of all {len(parts)} {_amount(whole)}, "
        f"without it {_amount(known[frozenset(others)])}"
    )
    is_bad = len(others) >= LEAST_HOSTS and not whole.beside and _alike(known.values())
    return [LinkFinding(parts[found], (parts[found], *others), sentence, is_bad)]


def _all_fail(rates: Sequence[Rate], parts: Sequence[str]) -> list[LinkFinding]:
    """Slower together than in pairs is as on networks that all share; a failure is none."""
    whole = next((rate for rate in rates if rate.subset == frozenset(parts) and len(parts) > 2), None)
    if whole is None or whole.value:
        return []
    sentence = f"all {len(parts)} together: all-reduce {_amount(whole)}; because of which part is not known"
    return [LinkFinding(None, tuple(parts), sentence, fails=True)]


def _beside_the_pool(
    rates: Sequence[Rate], usually: Medians, name: Callable[[str], str]
) -> list[LinkFinding]:
    """Pairs that are slow beside other pairs of the pool that were measured in the same way."""
    found = []
    for rate in of_pairs(rates, "all_reduce").values():
        value, count = usually.get(rate.how, (0.0, 0))
        if rate.value < SLOW * value:
            sentence = (
                f"{_both(rate, name)}: all-reduce {_amount(rate)}, the median of "
                f"{count} other pairs of the pool is {value:.3g} {UNIT}"
            )
            found.append(LinkFinding(None, rate.parts, sentence))
    return found[:_MOST_PAIRS]


def medians(elsewhere: Iterable[Rate]) -> Medians:
    """Those of pairs, if they are `LEAST_HOSTS` or more."""
    by_how: dict[str, list[float]] = {}
    for rate in of_pairs(elsewhere, "all_reduce").values():
        by_how.setdefault(rate.how, []).append(rate.value)
    by_how.pop(UNLIKE, None)
    return {how: (median(found), len(found)) for how, found in by_how.items() if len(found) >= LEAST_HOSTS}


def _both(rate: Rate, name: Callable[[str], str]) -> str:
    return " and ".join(sorted(map(name, rate.parts)))


def _amount(rate: Rate) -> str:
    if rate.value:
        return f"{rate.value:.3g} {UNIT}"
    return f"fails ({rate.sentence.rstrip('.')})" if rate.sentence else "fails"
