"""The tab Pairs of a pool: which of its hosts can be in one gang, over what, and how fast."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dispatch.watching.pair_verdict import speed
from hosts.models import PairCheck, PairSearch, ResourcePool
from shown import pools

#: with more hosts the cells have no words; with even more there is no matrix, only what is wrong
MOST_WORDS = 14
MOST_IN_MATRIX = 64


@dataclass(frozen=True)
class Cell:
    """`state`: ok, bad, untested, unknown or self. `word` is the rate; `tells` names the pair and what is known."""

    state: str
    word: str = ""
    tells: str = ""
    href: str = ""


def of(pool: ResourcePool) -> dict[str, Any]:
    """What fragments/pool_pairs.html shows."""
    found = pools.pairs(pool)
    names, checks, search = found.names, found.checks, found.search
    return {
        "names": names,
        "search": search,
        "testing": found.testing,
        "good": sum(check.ok for check in checks),
        "bad": [check for check in checks if not check.ok],
        "matrix": _matrix(names, checks, search) if checks and len(names) <= MOST_IN_MATRIX else [],
        "most_in_matrix": MOST_IN_MATRIX,
        "wordless": len(names) > MOST_WORDS,
        "without": next(
            (check for check in checks if check.ok and check.all_reduce_mb_per_second is None), None
        ),
        "networks": found.networks,
        "advice": found.advice,
    }


def _matrix(
    names: list[str], checks: list[PairCheck], search: PairSearch | None
) -> list[tuple[str, list[Cell]]]:
    cells = {frozenset(check.names): _cell(check) for check in checks}
    for row in search.untested if search else []:
        pair = frozenset(row["hosts"])
        if pair not in cells or cells[pair].state == "ok":  # a bad one stays bad until a test says otherwise
            cells[pair] = Cell("untested", "?", f"{_both(row['hosts'])}: {row['sentence']}")
    return [(name, [_at(cells, name, other) for other in names]) for name in names]


def _at(cells: dict[frozenset[str], Cell], one: str, other: str) -> Cell:
    if one == other:
        return Cell("self")
    return cells.get(frozenset((one, other)), Cell("unknown", "?", f"{_both([one, other])}: not tested yet"))


def _cell(check: PairCheck) -> Cell:
    tells = f"{_both(check.names)}: {check.sentence}"
    if not check.ok:
        return Cell("bad", "bad", tells, f"#pair-{check.pk}")
    rate = check.all_reduce_mb_per_second or check.mb_per_second
    return Cell("ok", speed(rate) if rate else "ok", tells)


def _both(names: list[str]) -> str:
    return " and ".join(names)
