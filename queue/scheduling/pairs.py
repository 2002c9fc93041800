"""Pairs of hosts whose ranks cannot meet: no gang has both."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

#: host id -> hosts that cannot be in one gang with it
Apart = Mapping[str, frozenset[str]]


def apart(bad_pairs: Collection[frozenset[str]]) -> Apart:
    found: dict[str, frozenset[str]] = {}
    for pair in bad_pairs:
        for host_id in pair:
            found[host_id] = found.get(host_id, frozenset()) | (pair - {host_id})
    return found


def meeting(host_ids: Iterable[str], bad: Apart, others: Iterable[str] = ()) -> list[str]:
    """Those of the hosts, in order, that can meet `others` and those chosen before."""
    barred = {far for host_id in others for far in bad.get(host_id, ())}
    chosen = []
    for host_id in host_ids:
        if host_id not in barred:
            chosen.append(host_id)
            barred |= bad.get(host_id, frozenset())
    return chosen


def agreeable(host_ids: Iterable[str], bad: Apart) -> list[str]:
    """Those with the fewest bad pairs first: they leave the most choice."""
    return sorted(host_ids, key=lambda host_id: len(bad.get(host_id, ())))
