"""Resource pools with all the fields that the published client insists on."""

from __future__ import annotations

from collections import Counter

from django.conf import settings
from rest_framework.request import Request
from rest_framework.response import Response

from hosts.models import ResourcePool
from hosts.pools import default_pool
from jobs.models import Member
from jobs.states import MemberState
from webui.api import encoding
from webui.api.agents import hosts_shown
from webui.api.job_queue import queue_counts
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


def encode_pool(pool: ResourcePool) -> Json:
    hosts = list(hosts_shown().filter(pool=pool))
    found = {host.pk: [slot for slot in host.slots.all() if not slot.missing] for host in hosts}
    slots = [slot for there in found.values() for slot in there]
    kinds = Counter(slot.kind for slot in slots)
    brands = Counter(slot.brand for slot in slots if slot.brand)
    sizes = [len(there) for there in found.values()]
    zero_slot = Member.objects.filter(host__in=hosts, slots=0).exclude(state=MemberState.ENDED).count()
    priority = pool.scheduler == ResourcePool.Scheduler.PRIORITY
    details: Json = {}
    if priority:
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
        "schedulerType": f"SCHEDULER_TYPE_{pool.scheduler.upper()}",
        "schedulerFittingPolicy": f"FITTING_POLICY_{pool.fitting.upper()}",
        "maxIdleAgentPeriod": 0.0,
        "maxAgentStartingPeriod": 0.0,
        "details": details,
        "resourceManagerMetadata": {},
        "clusterName": settings.CLUSTER_NAME,
        "stats": queue_counts(pool),
        # ours
        "preemption": pool.preemption,
        "hostLostAfterSeconds": pool.host_lost_after_seconds,
        "sharedAccount": pool.shared_account,
    }


class ResourcePools(ApiView):
    """All resource pools."""

    queries = {"GET": encoding.PageQuery}

    def get(self, request: Request) -> Response:
        default_pool()  # there is always one
        page = encoding.page(ResourcePool.objects.all(), self.query(request), "resourcePools", encode_pool)
        return Response(page)
