"""Resource pools with all the fields that the published client insists on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, ClassVar, NotRequired

from django.conf import settings
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from typing_extensions import TypedDict

from accounts.refusals import Code, FieldRefusals
from hosts import pool_edits
from hosts.models import ResourcePool
from hosts.pools import default_pool
from jobs.models import Member
from jobs.states import MemberState
from webui.api import encoding
from webui.api.agents import hosts_shown
from webui.api.answers import Nothing, Pagination
from webui.api.errors import BadRequest
from webui.api.job_queue import QueueCounts, pool_named, queue_counts
from webui.api.permissions import actor
from webui.api.slots import Holds, device_type
from webui.api.views import ApiView, Json

#: What clouds and containers would say; there are none here.
_EMPTY = dict.fromkeys(
    [
        "location", "imageId", "instanceType", "masterUrl", "masterCertName", "startupScript", "containerStartupScript",
        "agentDockerNetwork", "agentDockerRuntime", "agentDockerImage", "agentFluentImage",
    ],
    "",
)  # fmt: skip


class PrioritySchedulerRecord(TypedDict):
    preemption: bool
    defaultPriority: int
    k8sPriorities: list[Json]


class SchedulerDetails(TypedDict):
    priorityScheduler: NotRequired[PrioritySchedulerRecord]


class PoolRecord(TypedDict):
    """Determined's pool, and beside it the rules that PATCH takes. What is of clouds and containers is empty."""

    name: str
    description: str
    type: str
    numAgents: int
    minAgents: int
    maxAgents: int
    slotsAvailable: int
    slotsUsed: int
    slotsPerAgent: int
    slotType: str
    accelerator: str
    auxContainerCapacity: int
    auxContainerCapacityPerAgent: int
    auxContainersRunning: int
    defaultComputePool: bool
    defaultAuxPool: bool
    preemptible: bool
    schedulerType: str
    schedulerFittingPolicy: str
    maxIdleAgentPeriod: float
    maxAgentStartingPeriod: float
    details: SchedulerDetails
    resourceManagerMetadata: Json
    clusterName: str
    stats: QueueCounts
    scheduler: str
    fitting: str
    preemption: bool
    allowHeterogeneousFits: bool
    defaultPriority: int
    priorityFloor: dict[str, int]
    strict: bool
    defaultMaxTimeSeconds: int | None
    longestMaxTimeSeconds: int | None
    unpreemptibleSlots: int | None
    auxPerHost: int
    hostLostAfterSeconds: int | None
    sharedAccount: bool
    networkInterface: str
    defaultCompute: bool
    defaultAux: bool
    location: str
    imageId: str
    instanceType: str
    masterUrl: str
    masterCertName: str
    startupScript: str
    containerStartupScript: str
    agentDockerNetwork: str
    agentDockerRuntime: str
    agentDockerImage: str
    agentFluentImage: str


class PoolsAnswer(TypedDict):
    resourcePools: list[PoolRecord]
    pagination: Pagination


class PoolAnswer(TypedDict):
    resourcePool: PoolRecord


class ChangedPoolAnswer(TypedDict):
    resourcePool: PoolRecord
    changed: list[str]


def encode_pool(pool: ResourcePool) -> Json:
    hosts = list(hosts_shown().filter(pool=pool))
    found = {host.pk: [slot for slot in host.slots.all() if not slot.missing] for host in hosts}
    slots = [slot for there in found.values() for slot in there]
    kinds = Counter(slot.kind for slot in slots)
    brands = Counter(slot.brand for slot in slots if slot.brand)
    sizes = [len(there) for there in found.values()]
    zero_slot = Member.objects.filter(host__in=hosts, slots=0).exclude(state=MemberState.ENDED).count()
    details: Json = {}
    if "priority" in pool.policy.knobs:
        details["priorityScheduler"] = {
            "preemption": pool.preemption,
            "defaultPriority": pool.default_priority,
            "k8sPriorities": [],
        }
    return {
        **_EMPTY,
        "name": pool.name,
        "description": pool.description,
        "type": "RESOURCE_POOL_TYPE_STATIC",
        "numAgents": len(hosts),
        "minAgents": 0,
        "maxAgents": 0,
        "slotsAvailable": len(slots),
        "slotsUsed": len(Holds.of(hosts).by_slot),
        "slotsPerAgent": max(sizes) if sizes else 0,
        "slotType": device_type(kinds.most_common(1)[0][0] if kinds else "unspecified"),
        "accelerator": brands.most_common(1)[0][0] if brands else "",
        "auxContainerCapacity": pool.aux_per_host * len(hosts),
        "auxContainerCapacityPerAgent": pool.aux_per_host,
        "auxContainersRunning": zero_slot,
        "defaultComputePool": pool.default_compute,
        "defaultAuxPool": pool.default_aux,
        "preemptible": False,  # of the machines, as with spot instances; not of the jobs
        "schedulerType": pool.policy.dialect,
        "schedulerFittingPolicy": f"FITTING_POLICY_{pool.fitting.upper()}",
        "maxIdleAgentPeriod": 0.0,
        "maxAgentStartingPeriod": 0.0,
        "details": details,
        "resourceManagerMetadata": {},
        "clusterName": settings.CLUSTER_NAME,
        "stats": queue_counts(pool),
        **rules(pool),
    }


def camel(field: str) -> str:
    """`aux_per_host` as the API spells it: `auxPerHost`."""
    first, *rest = field.split("_")
    return first + "".join(word.capitalize() for word in rest)


#: the API's name of each rule -> the pool's
_FIELDS = {camel(field): field for field in pool_edits.CHECKS}


def rules(pool: ResourcePool) -> Json:
    """What an admin may change of the pool, under the names that POST and PATCH take."""
    return {name: getattr(pool, field) for name, field in _FIELDS.items()}


class PoolRules(serializers.Serializer[Any]):
    """The rules of a pool; those that are not sent stay as they are. What is allowed is said by a refusal."""

    def get_fields(self) -> dict[str, Any]:
        return {name: serializers.JSONField(required=False, allow_null=True) for name in _FIELDS}

    def to_internal_value(self, data: Any) -> Any:
        if not isinstance(data, dict):
            raise BadRequest("The body must be an object of the pool's fields.")
        if unknown := [name for name in data if name not in self.fields]:
            raise BadRequest(
                f"{', '.join(unknown)}: a pool has no such field. It has {', '.join(self.fields)}."
            )
        return dict(data)


class NewPool(PoolRules):
    """A name, and any rules that differ from the defaults."""

    def get_fields(self) -> dict[str, Any]:
        return {"name": serializers.CharField(max_length=64), **super().get_fields()}


class ResourcePools(ApiView):
    """All resource pools; admins make new ones."""

    admin_methods = frozenset({"POST"})
    queries = {"GET": encoding.PageQuery}
    bodies: ClassVar = {"POST": NewPool}
    answers = {"GET": PoolsAnswer, "POST": PoolAnswer}

    def get(self, request: Request) -> Response:
        default_pool()  # there is always one
        page = encoding.page(ResourcePool.objects.all(), self.query(request), "resourcePools", encode_pool)
        return Response(page)

    def post(self, request: Request) -> Response:
        body = self.body(request)
        name = str(body.pop("name", ""))
        pool = _granted(lambda: pool_edits.create(name, _values(body), actor=actor(request)))
        return Response({"resourcePool": encode_pool(pool)})


class OneResourcePool(ApiView):
    """One resource pool. Removing is refused while hosts or unfinished jobs are in it."""

    admin_methods = frozenset({"PATCH", "DELETE"})
    bodies = {"PATCH": PoolRules}
    answers = {"GET": PoolAnswer, "PATCH": ChangedPoolAnswer, "DELETE": Nothing}

    def get(self, request: Request, name: str) -> Response:
        return Response({"resourcePool": encode_pool(pool_named(name))})

    def patch(self, request: Request, name: str) -> Response:
        """The rules as they are then, and the names of those that have changed; the next pass follows them."""
        values = _values(self.body(request))
        pool_named(name)
        changed = _granted(lambda: pool_edits.edit(name, values, actor=actor(request)))
        names = [camel(field) for field in changed]
        return Response({"resourcePool": encode_pool(pool_named(name)), "changed": names})

    def delete(self, request: Request, name: str) -> Response:
        pool_named(name)
        pool_edits.remove(name, actor=actor(request))
        return Response({})


def _values(body: Json) -> Json:
    return {_FIELDS[name]: value for name, value in body.items()}


def _granted(step: Callable[[], Any]) -> Any:
    try:
        return step()
    except FieldRefusals as refusal:
        if refusal.code is Code.TAKEN:
            raise
        sentences = [f"{camel(field)}: {sentence}" for field, sentence in refusal.errors.items()]
        raise BadRequest("; ".join(sentences)) from refusal
