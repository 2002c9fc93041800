"""The nodes of a Slurm pool as hosts, brought in line with what the cluster told. The one writer of these rows.

So members, slots, ranks, charts and the planner need nothing new for them. Nobody dials them: they are reachable while
the login node answers and Slurm says that they respond. What jobs of others hold there is used from outside the queue.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import ProtectedError, Q
from django.db.models.functions import Now

from accounts.refusals import Code, Refusal
from events.announce import announce
from events.record import record_all
from hosts import slots
from hosts.models import Host, ResourcePool, Slot, SlurmFacts
from hosts.pools import mark_dirty
from hosts.slots import FoundSlot
from hosts.slurm.facts import ClusterFacts, Held, NodeFacts
from hosts.slurm.settings import SlurmSettings
from hosts.transitions import event_of, note, set_admission, set_contact
from trainmaster.runner import container_runtimes

_SLURM = Host.Transport.SLURM
#: what the login node's probe found that holds for the nodes as well
_SHARED_FACTS = ("account", "interpreters", "view", "containers")
_AS_LOGIN = ("python", "activate", "login_user", "workdir")
_DESCRIBED = ("facts", "gang_address", "contact_error", *_AS_LOGIN)
_DRAIN = ("draining", "drain_cause", "drain_reason")
#: a worker that dies while it reads a cluster holds its claim this long; four commands may take so long
_READING_SECONDS = 300.0
_AT_ONCE = 500
_BRAND_MOST = 128


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
    """Store what the cluster told, and make the pool's hosts and slots that; not if its settings are others by now."""
    values = {"document": facts.document, "read_at": Now(), "error": facts.remark}
    SlurmFacts.objects.update_or_create(pool=pool, defaults=values)
    if not ResourcePool.objects.filter(pk=pool.pk, slurm=pool.slurm).exists():
        transaction.set_rollback(True)
        return
    rows = {
        host.address: host
        for host in Host.objects.select_for_update(no_key=True)
        .filter(pool=pool, transport=_SLURM)
        .order_by("pk")
    }
    settings = SlurmSettings.of(pool.slurm)
    new = {node.name: _new(pool, login, node) for node in facts.nodes if rows.get(node.name) is None}
    changed = bool(new)
    _add(new, facts.nodes, settings)
    present, held = _slots_of(pool)
    touched, outside = [], []
    for node in facts.nodes:
        host = new.get(node.name) or rows.pop(node.name)
        if host.admission == Host.Admission.LOST:
            continue  # a person said so; `find_again` ends it
        changed |= _in_use(host)
        described = _describe(host, login, node)
        drained = _drain(host, _why_not(node))
        if described or drained:
            touched.append(host)
        changed |= drained
        changed |= _slots(host, node, settings, present)
        outside += _outside([slot for slot in present[host.pk] if slot.pk not in held], node.others)
    for host in rows.values():
        changed |= _gone(host)
    Host.objects.bulk_update(touched, [*_DESCRIBED, *_DRAIN], batch_size=_AT_ONCE)
    Slot.objects.bulk_update(outside, ["outside"], batch_size=_AT_ONCE)
    listed = Host.objects.filter(pool=pool, transport=_SLURM, contact=Host.Contact.REACHABLE)
    listed.filter(address__in=[node.name for node in facts.nodes]).update(last_seen_at=Now())
    announce("hosts", "pools")
    if changed or outside:
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
    """Ids of the pools whose cluster is to be read now; whoever gets one reads it, and nobody else does meanwhile.

    A login node whose new admission failed is read on: its nodes may have runs.
    """
    logins = Host.objects.filter(transport=Host.Transport.LOGIN)
    ready = Q(pool__in=logins.filter(admission=Host.Admission.READY).values("pool"))
    failed = Q(pool__in=logins.filter(admission=Host.Admission.FAILED).values("pool"), read_at__isnull=False)
    due = SlurmFacts.objects.filter(ready | failed)
    claimed_for = timedelta(seconds=max(pause_seconds, _READING_SECONDS))
    latest = Now() + 2 * claimed_for  # a later time is from before the clock was set back
    due = due.filter(Q(read_after=None) | Q(read_after__lt=Now()) | Q(read_after__gt=latest))
    claimed = []
    for pool_id in due.values_list("pool_id", flat=True):
        if due.filter(pool_id=pool_id).update(read_after=Now() + claimed_for):
            claimed.append(pool_id)
    return claimed


def read_over(pool_id: int, next_at: datetime) -> None:
    """The claim is over: the cluster is read again at this time, or soon if somebody has asked for it meanwhile."""
    SlurmFacts.objects.filter(pool_id=pool_id, read_after__isnull=False).update(read_after=next_at)


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


def _new(pool: ResourcePool, login: Host, node: NodeFacts) -> Host:
    host = Host(
        name=host_name(pool, node.name), pool=pool, transport=_SLURM, address=node.name, added_by="slurm",
        admission=Host.Admission.READY, contact=Host.Contact.REACHABLE,
    )  # fmt: skip
    _describe(host, login, node)
    return host


def _add(new: dict[str, Host], nodes: Iterable[NodeFacts], settings: SlurmSettings) -> None:
    """All rows of new nodes at once: of a cluster's first reading there may be thousands."""
    hosts = Host.objects.bulk_create(new.values(), batch_size=_AT_ONCE)
    events_of_hosts = (
        event_of(host, "added", "server", {"name": host.name}, to_state=host.admission) for host in hosts
    )
    record_all(events_of_hosts)
    slots.add({new[node.name]: _found(node, settings) for node in nodes if node.name in new})


def _in_use(host: Host) -> bool:
    """Have a listed node in use, as far as no person said otherwise; whether it was not."""
    is_new = False
    if host.admission == Host.Admission.REMOVED:
        is_new = _admit(host, enabled=True)
    elif host.admission != Host.Admission.READY:
        is_new = _admit(host, enabled=host.enabled)
    if host.contact != Host.Contact.REACHABLE:
        is_new |= set_contact(host, Host.Contact.REACHABLE, silent_for=None)
    return is_new


def _admit(host: Host, *, enabled: bool) -> bool:
    set_admission(
        host, Host.Admission.ADMITTING, reason="admission_retried", actor="server", failed_contacts=0
    )
    return set_admission(host, Host.Admission.READY, reason="admitted", actor="server", enabled=enabled)


def _describe(host: Host, login: Host, node: NodeFacts) -> bool:
    """Accounts, interpreters and folders are as on the login node, or as the pool says: nobody asks a node by itself.

    Whether it is new.
    """
    facts = {name: login.facts[name] for name in _SHARED_FACTS if name in login.facts}
    if "containers" in facts:
        runtimes = container_runtimes.of_slurm(facts["containers"].get("runtimes") or [])
        facts["containers"] = {**facts["containers"], "runtimes": runtimes}
    rules = SlurmSettings.of(login.pool.slurm)
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
        **{name: getattr(login, name) for name in _AS_LOGIN},
        **({} if rules.folder_is_shared else {"workdir": rules.folder}),
    }
    changed = any(getattr(host, field) != value for field, value in values.items())
    for field, value in values.items():
        setattr(host, field, value)
    return changed


def _why_not(node: NodeFacts) -> str:
    if node.takes_jobs:
        return ""
    return f"Slurm starts nothing there: {node.state}{f' ({node.reason})' if node.reason else ''}."


def _drain(host: Host, why: str) -> bool:
    """Whether it was news that Slurm starts nothing there (`why`), or does again. What a person set stays so."""
    by_slurm = host.drain_cause == Host.Drain.SLURM
    if not why and by_slurm:
        host.draining, host.drain_cause, host.drain_reason = False, "", ""
    elif why and host.enabled and (by_slurm or not host.draining) and host.drain_reason != why:
        host.draining, host.drain_cause, host.drain_reason = True, Host.Drain.SLURM, why
    else:
        return False
    reason = "draining" if host.draining else "enabled"
    note(host, reason, "server", {"name": host.name, "sentence": host.drain_reason})
    return True


def _found(node: NodeFacts, settings: SlurmSettings) -> list[FoundSlot]:
    models = settings.gpu_type or ",".join(sorted(filter(None, node.gpus))) or "GPU"
    brand = models[:_BRAND_MOST] if settings.is_gpu else "CPU"
    return [FoundSlot(settings.slot_type, brand=brand)] * node.slots


def _slots(
    host: Host, node: NodeFacts, settings: SlurmSettings, present: dict[uuid.UUID, list[Slot]]
) -> bool:
    found = _found(node, settings)
    kinds = {(slot.kind, slot.brand) for slot in present[host.pk]}
    if len(present[host.pk]) == len(found) and kinds <= {(each.kind, each.brand) for each in found}:
        return False
    slots.register(host, found)
    present[host.pk] = list(host.slots.filter(missing=False).order_by("-index"))
    return True


def _outside(free: list[Slot], others: list[Held]) -> list[Slot]:
    """Those of the free slots of which it is new whether others use them. Nobody knows which ones others use, so the
    last ones are taken for it. It leaves no events, which would be as many as the cluster has jobs."""
    wanted = _users(others)
    changed = []
    for slot in free:
        outside = next(wanted, {})
        if slot.outside != outside:
            slot.outside = outside
            changed.append(slot)
    return changed


def _users(others: list[Held]) -> Iterator[dict[str, object]]:
    for held in others:
        for _ in range(held.slots):
            yield {"user": held.user, "pid": None, "command": f"Slurm job {held.job}"}


def _gone(host: Host) -> bool:
    """A node that the partition no longer has. Its row stays while runs are on it, a person has declared it lost, or
    history points at it."""
    if host.admission in {Host.Admission.REMOVED, Host.Admission.LOST}:
        return False
    if host.members.filter(ended_at=None).exists():
        drained = _drain(
            host, "Slurm no longer lists it in the partition. It is removed once its runs have ended."
        )
        host.save(update_fields=_DRAIN)
        return drained
    set_admission(host, Host.Admission.REMOVED, reason="removed", actor="server", enabled=False)
    with suppress(ProtectedError), transaction.atomic():
        host.delete()
    return True
