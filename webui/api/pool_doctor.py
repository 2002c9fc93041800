"""The doctor of a resource pool: which pairs of its hosts can be in one gang, over what and how fast."""

from __future__ import annotations

from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response
from typing_extensions import TypedDict

from dispatch import pair_networks
from hosts import pair_checks
from hosts.models import Host, PairCheck, ResourcePool
from webui.api import encoding
from webui.api.answers import Time
from webui.api.job_queue import pool_named
from webui.api.permissions import actor
from webui.api.views import ApiView, Json


class PairRecord(TypedDict):
    """Two hosts of the pool, by name in their order; what was not measured is null."""

    first: str
    second: str
    ok: bool
    sentence: str
    interface: str
    roundTripMs: float | None
    mbPerSecond: float | None
    allReduceMbPerSecond: float | None
    checkedAt: Time


class UntestedRecord(TypedDict):
    hosts: list[str]
    sentence: str


class NetworkRecord(TypedDict):
    """A network on which hosts meet: `hosts` by name, each with its interface; rates are those of the slowest."""

    network: str
    interface: str
    hosts: dict[str, str]
    pairs: int
    everywhere: bool
    mbPerSecond: float
    speedMbit: int | None


class PairsAnswer(TypedDict):
    """The pairs that were tested, of `all`; the times and `askedBy` are null where nobody has asked yet."""

    running: bool
    done: int
    all: int
    askedBy: str | None
    startedAt: Time | None
    endedAt: Time | None
    hosts: list[str]
    pairs: list[PairRecord]
    untested: list[UntestedRecord]
    interfaces: list[NetworkRecord]
    advice: str


def encode(pool: ResourcePool) -> Json:
    """Bad pairs come first; `interfaces` are networks on which hosts meet, those of all pairs and the fastest first."""
    search = pair_checks.search_of(pool)
    checks = pair_checks.of_pool(pool)
    hosts = Host.objects.filter(pool=pool, admission=Host.Admission.READY).order_by("name")
    names = list(hosts.values_list("name", flat=True))
    networks = pair_networks.common(checks)
    return {
        "running": search is not None and search.ended_at is None,
        "done": search.done if search else 0,
        "all": search.pairs if search else 0,
        "askedBy": search.asked_by if search else None,
        "startedAt": encoding.time(search.started_at) if search else None,
        "endedAt": encoding.time(search.ended_at) if search else None,
        "hosts": names,
        "pairs": [_pair(check) for check in checks],
        "untested": search.untested if search else [],
        "interfaces": [_network(network) for network in networks],
        "advice": pair_networks.advice(networks, pool.name, pool.network_interface),
    }


def _pair(check: PairCheck) -> Json:
    first, second = check.names
    return {
        "first": first,
        "second": second,
        "ok": check.ok,
        "sentence": check.sentence,
        "interface": check.interface,
        "roundTripMs": check.round_trip_ms,
        "mbPerSecond": check.mb_per_second,
        "allReduceMbPerSecond": check.all_reduce_mb_per_second,
        "checkedAt": encoding.time(check.checked_at),
    }


def _network(network: pair_networks.Network) -> Json:
    return {
        "network": network.network,
        "interface": network.interface,
        "hosts": network.interfaces,
        "pairs": network.pairs,
        "everywhere": network.everywhere,
        "mbPerSecond": network.mb_per_second,
        "speedMbit": network.speed_mbit,
    }


class PoolDoctor(ApiView):
    """What is known of the pairs; POST tests all pairs of ready hosts anew, which takes seconds for each."""

    admin_methods = frozenset({"POST"})
    statuses = {"POST": status.HTTP_202_ACCEPTED}
    answers = {"GET": PairsAnswer, "POST": PairsAnswer}

    def get(self, request: Request, name: str) -> Response:
        return Response(encode(pool_named(name)))

    def post(self, request: Request, name: str) -> Response:
        """A test under way is not begun again."""
        pool = pool_named(name)
        pair_checks.begin(pool, actor=actor(request))
        return Response(encode(pool), status=status.HTTP_202_ACCEPTED)
