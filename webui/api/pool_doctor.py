"""The doctor of a resource pool: which pairs of its hosts can be in one gang, over what and how fast."""

from __future__ import annotations

from rest_framework import status
from rest_framework.request import Request

from accounts.rights import Right
from hosts import pair_checks
from hosts.models import ResourcePool
from shown import pools
from webui.api.answers import Answer, Time
from webui.api.job_queue import pool_named
from webui.api.permissions import actor
from webui.api.views import ApiView


class PairRecord(Answer):
    """Two hosts of the pool, in order of name; values that were not measured are null."""

    first: str
    second: str
    ok: bool
    sentence: str
    interface: str
    round_trip_ms: float | None
    mb_per_second: float | None
    all_reduce_mb_per_second: float | None
    checked_at: Time


class UntestedRecord(Answer):
    hosts: list[str]
    sentence: str


class NetworkRecord(Answer):
    """A network that connects hosts: `hosts` by name, each with its interface; rates are those of the slowest."""

    network: str
    interface: str
    hosts: dict[str, str]
    pairs: int
    everywhere: bool
    mb_per_second: float
    speed_mbit: int | None


class PairsAnswer(Answer):
    """The tested pairs, of `all`; the times and `askedBy` are null if no test was requested yet."""

    running: bool
    done: int = 0
    all: int = 0
    asked_by: str | None = None
    started_at: Time | None = None
    ended_at: Time | None = None
    hosts: list[str]
    pairs: list[PairRecord]
    untested: list[UntestedRecord]
    interfaces: list[NetworkRecord]
    advice: str


def encode(pool: ResourcePool) -> PairsAnswer:
    """Bad pairs come first; `interfaces` are networks on which hosts meet, those of all pairs and the fastest first."""
    found = pools.pairs(pool)
    search = found.search
    return PairsAnswer.of(
        search,
        running=found.testing is not None,
        all=search.pairs if search else 0,
        hosts=found.names,
        pairs=[PairRecord.of(check, first=check.names[0], second=check.names[1]) for check in found.checks],
        untested=search.untested if search else [],
        interfaces=[NetworkRecord.of(network, hosts=network.interfaces) for network in found.networks],
        advice=found.advice,
    )


class PoolDoctor(ApiView):
    """Results for the pairs; POST tests all pairs of ready hosts again, which takes seconds per pair."""

    rights = {"GET": Right.READ, "POST": Right.ADMIN}
    statuses = {"POST": status.HTTP_202_ACCEPTED}

    def get(self, request: Request, name: str) -> PairsAnswer:
        return encode(pool_named(name))

    def post(self, request: Request, name: str) -> PairsAnswer:
        """A running test is not started again."""
        pool = pool_named(name)
        pair_checks.begin(pool, actor=actor(request))
        return encode(pool)
