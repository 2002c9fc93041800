"""Requests that could not be started somewhere are tried elsewhere first, and there again rather than never."""

from __future__ import annotations

from dataclasses import replace

from scheduling.prospects import Prospects
from scheduling.world import Request, Snapshot


def where_it_can(snapshot: Snapshot) -> Snapshot:
    """The snapshot in which requests avoid their `failed_hosts`, unless nothing else that is on could take them."""
    if not any(request.failed_hosts and request.running is None for request in snapshot.requests):
        return snapshot
    prospects = Prospects(snapshot)
    return replace(snapshot, requests=tuple(_where_it_can(prospects, each) for each in snapshot.requests))


def _where_it_can(prospects: Prospects, request: Request) -> Request:
    if not request.failed_hosts or request.running is not None:
        return request
    elsewhere = replace(request, avoid_hosts=request.avoid_hosts | request.failed_hosts)
    if prospects.hopeless(elsewhere) is None:
        return elsewhere
    return replace(request, failed_hosts=frozenset())
