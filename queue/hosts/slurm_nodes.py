"""The nodes of a Slurm pool as hosts, brought in line with what the cluster told. The one writer of these rows.

So members, slots, ranks, charts and the planner need nothing new for them. Nobody dials them: they are reachable while
the login node answers and Slurm says that they respond. What jobs of others hold there is used from outside the queue.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta

from django.db import transaction
from django.db.models import ProtectedError, Q
from django.db.models.functions import Now

from accounts.refusals import Code, Refusal
from events.announce import announce
from hosts import slots
from hosts.models import Host, ResourcePool, Slot, SlurmFacts
from hosts.pools import mark_dirty
from hosts.slots import FoundSlot
from hosts.slurm.facts import ClusterFacts, Held, NodeFacts
from hosts.slurm.settings import SlurmSettings
from hosts.transitions import note, set_admission, set_contact

_SLURM = Host.Transport.SLURM
#: what the login node's probe found that holds for the nodes as well
_SHARED_FACTS = ("account", "interpreters", "view", "containers")


def host_name(pool: ResourcePool, node: str) -> str:
    """The name of a node among all hosts: two clusters may have a node of one name."""
    return f"{node}@{pool.name}"


def login_name(pool_name: str) -> str:
    return f"{pool_name}-login"


def login_of(pool: ResourcePool) -> Host:
    """The login node's row. Raises Host.DoesNotExist."""
    return Host.objects.exclude(admission=Host.Admission.REMOVED).get(
        pool=pool, transport=Host.Transport.LOGIN
    )


def of_pool(pool: ResourcePool) -> dict[str, Host]:
    """Name in Slurm -> the node's row."""
    present = Host.objects.filter(pool=pool, transport=_SLURM).exclude(admission=Host.Admission.REMOVED)
    return {host.address: host for host in present}


def refuse(host: Host, what: str, *, field: str = "") -> None:
    """Raises Refusal for the nodes and the login node of a Slurm pool, which belong to it as long as it exists."""
    if host.transport == Host.Transport.LOGIN:
        raise Refusal(
            f"{host.name} cannot be {what}: it is the login node of pool {host.pool.name}. "
            "Edit or delete the pool instead.",
            Code.CONFLICT,
            field,
        )
    if host.transport == Host.Transport.SLURM:
        raise Refusal(
            f"{host.name} cannot be {what}: Slurm lists it as a node of the partition of pool {host.pool.name}. "
            "Drain or disable it instead.",
            Code.CONFLICT,
            field,
        )


def refuse_into(pool: ResourcePool) -> None:
    """Raises Refusal if the pool takes no hosts but the nodes that Slurm lists."""
    if pool.slurm:
        raise Refusal(
            f"Pool {pool.name} is a Slurm cluster, whose hosts are the nodes that Slurm lists. Choose another pool.",
            field="pool",
        )


@transaction.atomic
def took_in(pool: ResourcePool, login: Host, facts: ClusterFacts) -> None:
    """Store what the cluster told, and make the pool's hosts and slots that."""
    values = {"document": facts.document, "read_at": Now(), "error": ""}
    SlurmFacts.objects.update_or_create(pool=pool, defaults=values)
    rows = {
        host.address: host
        for host in Host.objects.select_for_update(no_key=True)
        .filter(pool=pool, transport=_SLURM)
        .order_by("pk")
    }
    present, held = _slots_of(pool)
    changed = False
    for node in facts.nodes:
        host = rows.pop(node.name, None)
        changed |= _registered(pool, login, host, node, present, held)
    for host in rows.values():
        changed |= _gone(host)
    Host.objects.filter(pool=pool, transport=_SLURM, contact=Host.Contact.REACHABLE).update(
        last_seen_at=Now()
    )
    announce("hosts", "pools")
    if changed:
        mark_dirty(pool.pk)


def _slots_of(pool: ResourcePool) -> tuple[dict[uuid.UUID, list[Slot]], set[int]]:
    """(the slots of each node, the last first; those that runs of ours hold), read at once for all nodes."""
    slots_there = Slot.objects.filter(host__pool=pool, host__transport=_SLURM, missing=False)
    held = slots_there.filter(holds__released_at__isnull=True, holds__isnull=False)
    found: dict[uuid.UUID, list[Slot]] = defaultdict(list)
    for slot in slots_there.order_by("-index"):
        found[slot.host_id].append(slot)
    return found, set(held.values_list("pk", flat=True))


def claim_due(pause_seconds: float) -> list[int]:
    """Ids of the pools whose cluster is to be read now; whoever gets one reads it, and nobody else does meanwhile."""
    ready = Host.objects.filter(transport=Host.Transport.LOGIN, admission=Host.Admission.READY)
    due = SlurmFacts.objects.filter(pool__in=ready.values("pool"))
    latest = Now() + timedelta(
        seconds=2 * pause_seconds
    )  # a later time is from before the clock was set back
    due = due.filter(Q(read_after=None) | Q(read_after__lt=Now()) | Q(read_after__gt=latest))
    claimed = []
    for pool_id in due.values_list("pool_id", flat=True):
        if due.filter(pool_id=pool_id).update(read_after=Now() + timedelta(seconds=pause_seconds)):
            claimed.append(pool_id)
    return claimed


def read_soon(pool: ResourcePool) -> None:
    """Have the cluster read by the next look."""
    SlurmFacts.objects.filter(pool=pool).update(read_after=None)


def find_again(node: Host, *, actor: str) -> None:
    """Have the cluster read soon, for a locked node: one that was declared lost is in use again if Slurm lists it."""
    if node.admission == Host.Admission.LOST:
        set_admission(
            node, Host.Admission.ADMITTING, reason="admission_retried", actor=actor, failed_contacts=0
        )
    read_soon(node.pool)


def not_read(pool: ResourcePool, sentence: str) -> None:
    """The cluster was asked and did not answer as it should: what was known stays, with its age."""
    SlurmFacts.objects.update_or_create(pool=pool, defaults={"error": sentence})
    announce("pools")


def _registered(
    pool: ResourcePool,
    login: Host,
    host: Host | None,
    node: NodeFacts,
    present: dict[uuid.UUID, list[Slot]],
    held: set[int],
) -> bool:
    """Whether something that a pass sees is new."""
    is_new = host is None
    if host is None:
        host = Host(
            name=host_name(pool, node.name), pool=pool, transport=_SLURM, address=node.name, added_by="slurm",
            admission=Host.Admission.READY, contact=Host.Contact.REACHABLE,
        )  # fmt: skip
        host.save()
        note(host, "added", "server", {"name": host.name}, to_state=host.admission)
    elif host.admission == Host.Admission.LOST:
        return False  # a person said so; `find_again` ends it
    elif host.admission != Host.Admission.READY:
        set_admission(
            host, Host.Admission.ADMITTING, reason="admission_retried", actor="server", failed_contacts=0
        )
        is_new = set_admission(host, Host.Admission.READY, reason="admitted", actor="server", enabled=True)
    if host.contact != Host.Contact.REACHABLE:
        is_new |= set_contact(host, Host.Contact.REACHABLE, silent_for=None)
    settings = SlurmSettings.of(pool.slurm)
    _described(host, login, node, settings)
    changed = _drained(host, node)
    changed |= _slots(host, node, settings, present)
    changed |= _held([slot for slot in present[host.pk] if slot.pk not in held], node.others)
    return is_new or changed


def _described(host: Host, login: Host, node: NodeFacts, settings: SlurmSettings) -> None:
    """Accounts, interpreters and folders are as on the login node: nobody asks a node by itself."""
    facts = {name: login.facts[name] for name in _SHARED_FACTS if name in login.facts}
    facts["slurm"] = {
        "state": node.state,
        "reason": node.reason,
        "cpus": node.cpus,
        "memory_mb": node.memory_mb,
    }
    values = {
        "facts": facts,
        "gang_address": node.address,
        "contact_error": "",
        "python": login.python,
        "activate": login.activate,
        "login_user": login.login_user,
        "workdir": login.workdir,
    }
    if any(getattr(host, field) != value for field, value in values.items()):
        for field, value in values.items():
            setattr(host, field, value)
        host.save(update_fields=list(values))


def _drained(host: Host, node: NodeFacts) -> bool:
    """A person's drain stays, whatever Slurm says."""
    by_slurm = host.drain_cause == Host.Drain.SLURM
    if node.takes_jobs and by_slurm:
        host.draining, host.drain_cause, host.drain_reason = False, "", ""
    elif not node.takes_jobs and (by_slurm or not host.draining):
        reason = f"Slurm starts nothing there: {node.state}{f' ({node.reason})' if node.reason else ''}."
        if host.drain_reason == reason:
            return False
        host.draining, host.drain_cause, host.drain_reason = True, Host.Drain.SLURM, reason
    else:
        return False
    host.save(update_fields=["draining", "drain_cause", "drain_reason"])
    reason = "draining" if host.draining else "enabled"
    note(host, reason, "server", {"name": host.name, "sentence": host.drain_reason})
    return True


def _slots(
    host: Host, node: NodeFacts, settings: SlurmSettings, present: dict[uuid.UUID, list[Slot]]
) -> bool:
    brand = (
        settings.gpu_type or ",".join(sorted(filter(None, node.gpus))) or "GPU" if settings.is_gpu else "CPU"
    )
    kinds = {(slot.kind, slot.brand) for slot in present[host.pk]}
    if len(present[host.pk]) == node.slots and kinds <= {(settings.slot_type, brand)}:
        return False
    slots.register(host, [FoundSlot(settings.slot_type, brand=brand)] * node.slots)
    present[host.pk] = list(host.slots.filter(missing=False).order_by("-index"))
    return True


def _held(free: list[Slot], others: list[Held]) -> bool:
    """Which slots they are nobody knows: the last ones, but for those that runs of ours hold."""
    wanted = _users(others)
    changed = []
    for slot in free:
        outside = next(wanted, {})
        if slot.outside != outside:
            slot.outside = outside
            changed.append(slot)
    if changed:
        Slot.objects.bulk_update(changed, ["outside"])
    return bool(changed)


def _users(others: list[Held]) -> Iterator[dict[str, object]]:
    for held in others:
        for _ in range(held.slots):
            yield {"user": held.user, "pid": None, "command": f"Slurm job {held.job}"}


def _gone(host: Host) -> bool:
    """A node that the partition no longer has. Its row stays while runs are on it, or history points at it."""
    if host.admission == Host.Admission.REMOVED or host.members.filter(ended_at=None).exists():
        return False
    set_admission(host, Host.Admission.REMOVED, reason="removed", actor="server", enabled=False)
    with suppress(ProtectedError), transaction.atomic():
        host.delete()
    return True
