"""Resource pools with all the fields that the published client insists on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Annotated, Any, ClassVar

from django.conf import settings
from pydantic import Field
from pydantic.alias_generators import to_camel
from rest_framework import serializers
from rest_framework.request import Request

from accounts.refusals import Code, FieldRefusals
from accounts.rights import Right
from hosts import pool_edits
from hosts.models import ResourcePool
from hosts.pools import default_pool
from hosts.registry import NewHost
from shown import pools
from shown.clusters import Cluster
from shown.hosts import spares
from shown.pools import PoolRow
from webui.api import encoding
from webui.api.answers import Answer, Pagination, Time
from webui.api.errors import BadRequest
from webui.api.hosts import Jump, stored_jump
from webui.api.job_queue import QueueCounts, pool_named
from webui.api.permissions import actor
from webui.api.slots import device_type
from webui.api.views import ApiView, Json


class KubernetesPriority(Answer):
    """Of another resource manager: there is none here."""

    priority_class: str
    priority_value: int


class PrioritySchedulerRecord(Answer):
    preemption: bool
    default_priority: int
    k8_priorities: Annotated[list[KubernetesPriority], Field(alias="k8Priorities")] = []


class SchedulerDetails(Answer):
    priority_scheduler: PrioritySchedulerRecord | None = None
    aws: None = None
    gcp: None = None


class GroupShareRecord(Answer):
    """Slots that the group gets whenever it asks, at most so many, and its weight for what is left over."""

    guarantee: int | None = 0
    limit: int | None = None
    weight: float | None = 1.0


class OtherUserRecord(Answer):
    """A user whose jobs on the cluster are not this pool's: how many run and wait, and the slots that they hold."""

    user: str
    running: int
    waiting: int
    slots: int


class ClusterRecord(Answer):
    """What a Slurm cluster said last. Its nodes are the hosts of the pool."""

    login_host: str | None
    version: str
    cluster: str
    partition: str
    partition_state: str
    has_accounting: bool
    nodes: int
    usable_nodes: int
    node_states: dict[str, int]
    gpus: Annotated[dict[str, int], Field(description="by type, of all nodes")]
    others: list[OtherUserRecord]
    read_at: Time | None
    error: Annotated[
        str, Field(description="why the cluster is of no use now; empty if nothing is known to be wrong")
    ]


class SpareRecord(Answer):
    """A host that is kept. `runs`: what must end there first; until then `free` slots are for work whose host fails."""

    host: str
    free: int
    runs: list[str]


class PoolRecord(Answer):
    """Determined's pool record, extended by the rules that PATCH accepts. Cloud and container fields are empty."""

    name: str
    description: str
    type: str = "RESOURCE_POOL_TYPE_STATIC"
    num_agents: int
    min_agents: int = 0
    max_agents: int = 0
    slots_available: int
    slots_used: int
    slots_per_agent: int
    slot_type: str
    accelerator: str
    aux_container_capacity: int
    aux_container_capacity_per_agent: int
    aux_containers_running: int
    default_compute_pool: bool
    default_aux_pool: bool
    preemptible: Annotated[bool, Field(description="the machines', as with spot instances")] = False
    scheduler_type: str
    scheduler_fitting_policy: str
    max_idle_agent_period: float = 0.0
    max_agent_starting_period: float = 0.0
    details: SchedulerDetails
    resource_manager_metadata: Json = {}
    cluster_name: str
    stats: QueueCounts
    scheduler: str
    fitting: str
    preemption: bool
    allow_heterogeneous_fits: bool
    default_priority: int
    priority_floor: dict[str, int]
    strict: bool
    default_max_time_seconds: int | None
    longest_max_time_seconds: int | None
    unpreemptible_slots: int | None
    min_runtime_seconds: Annotated[
        dict[str, int],
        Field(description="priority -> seconds that work from it on runs before others may stop it"),
    ]
    patience_seconds: Annotated[
        int | None,
        Field(description="so long before its start hosts are reserved for a gang; null: from its turn on"),
    ]
    spare_hosts: Annotated[
        int, Field(description="how many hosts are kept for attempts whose own host fails")
    ]
    spares: Annotated[list[SpareRecord], Field(description="the hosts that the last pass kept")]
    open_to: Annotated[
        dict[str, list[str | int]],
        Field(description="names of `groups` and numbers of `workspaces` that may use it; empty: everyone"),
    ]
    group_shares: dict[str, GroupShareRecord]
    usage_half_life_seconds: int
    launch_error: bool
    aux_per_host: int
    host_lost_after_seconds: int | None
    hang_after_seconds: Annotated[
        int | None, Field(description="trainings without progress for so long are looked at; null: never")
    ]
    hang_do: Annotated[
        str, Field(description="what is done if they hang: tell, restart or restart_elsewhere")
    ]
    burn_in: Annotated[
        str,
        Field(description="when hosts are burnt in without being asked for: never, before_joining or weekly"),
    ]
    burn_in_do: Annotated[
        str, Field(description="what is done if a burn-in finds less than half: tell or quarantine")
    ]
    shared_account: bool
    allow_login_account: bool
    network_interface: str
    kind: Annotated[str, Field(description="ssh: hosts reached one by one; slurm: a cluster")]
    slurm: Annotated[Json, Field(description="settings of a Slurm pool; empty: hosts reached by SSH")]
    slurm_cluster: ClusterRecord | None
    default_compute: bool
    default_aux: bool
    location: str = ""
    image_id: str = ""
    instance_type: str = ""
    master_url: str = ""
    master_cert_name: str = ""
    startup_script: str = ""
    container_startup_script: str = ""
    agent_docker_network: str = ""
    agent_docker_runtime: str = ""
    agent_docker_image: str = ""
    agent_fluent_image: str = ""


class PoolsAnswer(Answer):
    resource_pools: list[PoolRecord]
    pagination: Pagination


class PoolAnswer(Answer):
    resource_pool: PoolRecord


class ChangedPoolAnswer(Answer):
    resource_pool: PoolRecord
    changed: list[str]


def encode_cluster(cluster: Cluster) -> ClusterRecord:
    facts = cluster.facts
    return ClusterRecord(
        login_host=cluster.login.host.name if cluster.login else None,
        version=facts.version if facts else "",
        cluster=facts.cluster if facts else "",
        partition=facts.partition if facts else "",
        partition_state=facts.partition_state if facts else "",
        has_accounting=bool(facts and facts.has_accounting),
        nodes=len(facts.nodes) if facts else 0,
        usable_nodes=cluster.usable,
        node_states=dict(cluster.states),
        gpus=dict(cluster.gpus),
        others=[OtherUserRecord.of(user) for user in facts.others] if facts else [],
        read_at=cluster.read_at,
        error=cluster.why_not,
    )


def encode_pool(row: PoolRow) -> PoolRecord:
    pool = row.pool
    slots = [each.slot for host in row.hosts for each in host.slots]
    kinds = Counter(slot.kind for slot in slots)
    brands = Counter(slot.brand for slot in slots if slot.brand)
    priorities = PrioritySchedulerRecord.of(pool) if "priority" in pool.policy.knobs else None
    return PoolRecord.of(
        pool,
        num_agents=len(row.hosts),
        slots_available=row.slots,
        slots_used=row.held,
        shared_account=row.is_shared,
        slots_per_agent=max((len(host.slots) for host in row.hosts), default=0),
        slot_type=device_type(kinds.most_common(1)[0][0] if kinds else "unspecified"),
        accelerator=brands.most_common(1)[0][0] if brands else "",
        aux_container_capacity=pool.aux_per_host * len(row.hosts),
        aux_container_capacity_per_agent=pool.aux_per_host,
        aux_containers_running=row.aux_held,
        default_compute_pool=pool.default_compute,
        default_aux_pool=pool.default_aux,
        scheduler_type=pool.policy.dialect,
        scheduler_fitting_policy=f"FITTING_POLICY_{pool.fitting.upper()}",
        details=SchedulerDetails(priority_scheduler=priorities),
        cluster_name=settings.CLUSTER_NAME,
        spares=[SpareRecord.of(each) for each in spares.of_pool(pool).values()],
        slurm_cluster=encode_cluster(row.cluster) if row.cluster else None,
        stats=QueueCounts(queued_count=row.queued, scheduled_count=row.scheduled),
    )


#: the API's name of each rule -> the pool's
_FIELDS = {to_camel(field): field for field in pool_edits.CHECKS}


class PoolRules(serializers.Serializer[Any]):
    """The rules of a pool; those that are not sent stay unchanged. Error messages say what is allowed."""

    def get_fields(self) -> dict[str, Any]:
        return {name: serializers.JSONField(required=False, allow_null=True) for name in _FIELDS}

    def to_internal_value(self, data: Any) -> Any:
        if not isinstance(data, dict):
            raise BadRequest("The body must be an object with the pool's fields.")
        if unknown := [name for name in data if name not in self.fields]:
            raise BadRequest(f"{', '.join(unknown)}: unknown pool field; allowed: {', '.join(self.fields)}.")
        return dict(data)


class LoginRoute(serializers.Serializer[Any]):
    """How the login node of a Slurm pool is reached; without it, the server's own SSH config says so."""

    address = serializers.CharField(max_length=255)
    port = serializers.IntegerField(required=False, default=22)
    user = serializers.CharField(required=False, allow_blank=True, default="", max_length=64)
    jumps = Jump(many=True, required=False, default=list)


class NewPool(PoolRules):
    """A name, and any rules that differ from the defaults. `loginRoute`: how a Slurm pool's login node is reached."""

    def get_fields(self) -> dict[str, Any]:
        own = {"name": serializers.CharField(max_length=64), "loginRoute": LoginRoute(required=False)}
        return {**own, **super().get_fields()}


class ResourcePools(ApiView):
    """List all resource pools; or create one (admins)."""

    rights = {"GET": Right.READ, "POST": Right.ADMIN}
    queries = {"GET": encoding.PageQuery}
    bodies: ClassVar = {"POST": NewPool}

    def get(self, request: Request) -> PoolsAnswer:
        default_pool()  # there is always one
        found = pools.of(ResourcePool.objects.all())
        return encoding.page(PoolsAnswer, found, self.query(request), encode_pool)

    def post(self, request: Request) -> PoolAnswer:
        body = self.body(request)
        name, route = str(body.pop("name", "")), _route(body.pop("loginRoute", None))
        pool = _granted(lambda: pool_edits.create(name, _values(body), actor=actor(request), route=route))
        return PoolAnswer(resource_pool=_encoded(pool))


class OneResourcePool(ApiView):
    """One resource pool. It cannot be removed while it has hosts or unfinished jobs."""

    rights = {"GET": Right.READ, "PATCH": Right.ADMIN, "DELETE": Right.ADMIN}
    bodies = {"PATCH": PoolRules}

    def get(self, request: Request, name: str) -> PoolAnswer:
        return PoolAnswer(resource_pool=_encoded(pool_named(name)))

    def patch(self, request: Request, name: str) -> ChangedPoolAnswer:
        """Returns the new rules and the names of the changed ones; the next pass uses them."""
        values = _values(self.body(request))
        pool_named(name)
        changed = _granted(lambda: pool_edits.edit(name, values, actor=actor(request)))
        names = [to_camel(field) for field in changed]
        return ChangedPoolAnswer(resource_pool=_encoded(pool_named(name)), changed=names)

    def delete(self, request: Request, name: str) -> None:
        pool_named(name)
        pool_edits.remove(name, actor=actor(request))


def _route(given: object) -> NewHost | None:
    """Raises ValidationError and BadRequest."""
    if given is None:
        return None
    found = LoginRoute(data=given)
    found.is_valid(raise_exception=True)
    sent = found.validated_data
    jumps = [stored_jump(jump) for jump in sent["jumps"]]
    return NewHost("", address=sent["address"], port=sent["port"], login_user=sent["user"], jumps=jumps)


def _encoded(pool: ResourcePool) -> PoolRecord:
    return encode_pool(*pools.of([pool]))


def _values(body: Json) -> Json:
    return {_FIELDS[name]: value for name, value in body.items()}


def _granted(step: Callable[[], Any]) -> Any:
    try:
        return step()
    except FieldRefusals as refusal:
        if refusal.code is Code.TAKEN:
            raise
        sentences = [f"{to_camel(field)}: {sentence}" for field, sentence in refusal.errors.items()]
        raise BadRequest("; ".join(sentences)) from refusal
