"""Hosts that are slower than their peers: noted with each attempt that has ended, and told once several show it."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime

from hosts.health import pace, signs
from jobs.models import Member

_MOST_RUNS = 200


def note(allocation_id: str, paces: Mapping[str, float], now: datetime) -> None:
    """Keep how the hosts of a gang compared (by name), and tell of those that are slow."""
    for member in Member.objects.filter(allocation=allocation_id, host__name__in=paces).select_related(
        "host"
    ):
        Member.objects.filter(pk=member.pk).update(pace=paces[member.host.name])
        _tell(member.host_id, now)


def _tell(host_id: uuid.UUID, now: datetime) -> None:
    recent = Member.objects.filter(host=host_id, pace__isnull=False, ended_at__gt=now - pace.WINDOW)
    rows = list(
        recent.order_by("-ended_at").values_list("allocation_id", "allocation__task_id", "pace")[:_MOST_RUNS]
    )
    peers: dict[str, set[str]] = defaultdict(set)
    beside = Member.objects.filter(allocation__in=[row[0] for row in rows]).exclude(host=host_id)
    for allocation_id, name in beside.values_list("allocation_id", "host__name"):
        peers[allocation_id].add(name)
    runs = [pace.Run(task, value or 0.0, frozenset(peers[allocation])) for allocation, task, value in rows]
    if found := pace.slow(runs):
        signs.tell_slow(host_id, pace.in_words(found, len(runs)), now - pace.WINDOW)
