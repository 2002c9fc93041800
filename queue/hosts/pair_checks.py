"""What is known of the pairs of a pool's hosts: the checks, and the search that makes them. Contacts nobody."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from accounts.refusals import Code, Refusal
from events.announce import announce, wake
from events.models import Event
from events.record import record
from hosts.models import Host, PairCheck, PairSearch, ResourcePool
from hosts.pools import mark_dirty
from trainmaster.burn_in.bad_part import rounds

TASK = "dispatch.host_tasks.examine_pairs"
#: Pairs that meet at the same time, each with connections to two hosts.
PAIRS_AT_ONCE = 8


@dataclass(frozen=True)
class PairFound:
    """What was found between two hosts, as PairCheck has it."""

    ok: bool
    sentence: str
    interface: str = ""
    round_trip_ms: float | None = None
    mb_per_second: float | None = None
    all_reduce_mb_per_second: float | None = None
    networks: list[dict[str, Any]] = field(default_factory=list)


@transaction.atomic
def note(first: Host, second: Host, found: PairFound) -> None:
    """Store it. A pair that has turned bad or good is news for the next pass."""
    one, other = sorted((first, second), key=lambda host: host.pk)
    before = PairCheck.objects.filter(first=one, second=other).values_list("ok", flat=True).first()
    PairCheck.objects.update_or_create(first=one, second=other, defaults=asdict(found))
    if found.ok != (True if before is None else before):
        for pool_id in {first.pool_id, second.pool_id}:
            mark_dirty(pool_id)


def forget(host_id: uuid.UUID) -> None:
    """The host is gone, and with it what was known of its pairs."""
    PairCheck.objects.filter(Q(first=host_id) | Q(second=host_id)).delete()


def ready(pool_id: int) -> QuerySet[Host]:
    """The hosts of the pool whose pairs can be tested, by name."""
    asked = [Host.Transport.SSH, Host.Transport.LOCAL]
    return Host.objects.filter(pool_id=pool_id, admission=Host.Admission.READY, transport__in=asked).order_by(
        "name"
    )


def of_pool(pool: ResourcePool) -> list[PairCheck]:
    """The checks of pairs that are both in the pool now, bad ones first."""
    inside = Host.objects.filter(pool=pool).exclude(admission=Host.Admission.REMOVED)
    checks = PairCheck.objects.filter(first__in=inside, second__in=inside).select_related("first", "second")
    return sorted(checks, key=lambda check: (check.ok, check.names))


# --- the search ---------------------------------------------------------------------------------------------


def batches(count: int, at_once: int = PAIRS_AT_ONCE) -> list[list[tuple[int, int]]]:
    """The rounds, cut into batches of at most so many pairs."""
    return [
        meeting[begin : begin + at_once]
        for meeting in rounds(count)
        for begin in range(0, len(meeting), at_once)
    ]


def search_of(pool: ResourcePool) -> PairSearch | None:
    """The one that runs, or the newest."""
    return PairSearch.objects.filter(pool=pool).first()


@transaction.atomic
def begin(pool: ResourcePool, *, actor: str) -> PairSearch:
    """Start to test every pair of the pool's ready hosts; a search under way goes on. Raises Refusal."""
    ResourcePool.objects.select_for_update().get(pk=pool.pk)
    running = PairSearch.objects.filter(pool=pool, ended_at=None).first()
    if running is None:
        ids = [str(pk) for pk in ready(pool.pk).values_list("pk", flat=True)]
        if len(ids) < 2:
            there = "no ready host" if not ids else "one ready host"
            raise Refusal(f"Pool {pool.name} has {there}; a pair needs two.", Code.CONFLICT)
        PairSearch.objects.filter(pool=pool).delete()
        running = PairSearch.objects.create(
            pool=pool,
            asked_by=actor.removeprefix("user:"),
            hosts=ids,
            pairs=len(ids) * (len(ids) - 1) // 2,
            started_at=timezone.now(),
        )
        detail = {"name": pool.name}
        record(
            Event.Kind.POOL, pool.pk, reason="pair_test_begun", actor=actor, detail=detail, pools=[pool.pk]
        )
        announce(f"pool:{pool.pk}")
    wake(TASK, pool.pk)
    return running


def forgotten() -> list[int]:
    """Pools whose search nobody works on: a message was lost, a worker has died, or another pool's was under way."""
    idle = Q(claimed_until=None) | Q(claimed_until__lt=timezone.now())
    return list(PairSearch.objects.filter(idle, ended_at=None).values_list("pool_id", flat=True))


@transaction.atomic
def claim(pool_id: int, seconds: float) -> PairSearch | None:
    """The search, for its next batch, or None where there is none or somebody is at a batch, of whichever pool.

    One batch at a time: all pools' hosts meet on the same few ports, and one host may be two accounts of a machine.
    What has not come back after `seconds` is begun again by another worker.
    """
    now = timezone.now()
    # all rows are locked, in one order, so that of two workers the second sees the claim of the first
    searches = list(PairSearch.objects.filter(ended_at=None).order_by("pk").select_for_update())
    mine = next((search for search in searches if search.pool_id == pool_id), None)
    if mine is None or any(search.claimed_until and search.claimed_until >= now for search in searches):
        return None
    mine.claimed_until = now + timedelta(seconds=seconds)
    mine.save(update_fields=["claimed_until"])
    return mine


def next_batch(search: PairSearch) -> list[tuple[Host, Host]]:
    """The pairs of the claimed batch that are still there, of hosts that are still ready."""
    planned = batches(len(search.hosts))
    if search.batch >= len(planned):
        return []
    pairs = [(search.hosts[one], search.hosts[other]) for one, other in planned[search.batch]]
    wanted = [host_id for pair in pairs for host_id in pair]
    hosts = {str(host.pk): host for host in ready(search.pool_id).filter(pk__in=wanted)}
    return [(hosts[one], hosts[other]) for one, other in pairs if one in hosts and other in hosts]


@transaction.atomic
def batch_done(search: PairSearch, untested: Sequence[dict[str, Any]]) -> None:
    """Give the claim back; the next batch is asked for, or the search is over."""
    planned = batches(len(search.hosts))
    mine = PairSearch.objects.filter(pool_id=search.pool_id, claimed_until=search.claimed_until)
    over = search.batch + 1 >= len(planned)
    told = mine.update(
        batch=search.batch + 1,
        done=sum(len(batch) for batch in planned[: search.batch + 1]),
        untested=[*search.untested, *untested],
        claimed_until=None,
        ended_at=timezone.now() if over else None,
    )
    if told and not over:
        wake(TASK, search.pool_id)
    announce(f"pool:{search.pool_id}")
