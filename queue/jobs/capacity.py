"""What the hosts of a pool could run if they were empty: said of a submission, and refused where no waiting helps.

Work on one host that is larger than every host waits forever, so it is refused; unless the pool says that larger hosts
may come (`launch_error` off), or one is being added. A gang is not refused: more hosts of a kind come more easily, and
its submission is told why it waits. Work that can never run on the hosts that its config allows is refused, gangs too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from django.db.models import Count

from accounts.refusals import Refusal
from hosts.models import Host, ResourcePool
from jobs.models import Job, Task
from jobs.states import TaskState
from scheduling.fitting import Shape
from scheduling.prospects import Prospects
from scheduling.reasons import Reason, WaitCode, listed
from scheduling.world import HostView, PoolView, Request, SlotView, Snapshot
from trainmaster import dialect_words

_IN_SERVICE = [Host.Admission.READY, Host.Admission.SUSPENDED]


def never(
    pool: ResourcePool, slots: int, *, single_host: bool, only_hosts: Sequence[str] = ()
) -> Reason | None:
    """Why the pool can never run a task of this size as it stands, or None. Hosts that are off count, too.

    `only_hosts`: names of the hosts that its config allows; none of them: all.
    """
    known = Host.objects.filter(pool=pool).exclude(transport=Host.Transport.LOGIN)
    hosts = known.filter(admission__in=_IN_SERVICE).annotate(size=Count("slots"))
    allowed = hosts.filter(name__in=only_hosts) if only_hosts else hosts
    if allowed.filter(size__gte=slots).exists():  # the usual case, without a look at the whole pool
        return None
    unready = known.exclude(admission__in=[*_IN_SERVICE, Host.Admission.REMOVED])
    view = PoolView(
        name=pool.name,
        allow_heterogeneous_fits=pool.allow_heterogeneous_fits,
        unready=frozenset(unready.values_list("name", flat=True)),
        spare_hosts=pool.spare_hosts,
    )
    request = Request("", "", "", slots, single_host=single_host, only_hosts=frozenset(only_hosts))
    snapshot = Snapshot(now=0.0, pool=view, hosts=tuple(map(_view, hosts.order_by("name"))), requests=())
    prospects = Prospects(snapshot).of(request)
    shape = Shape.of(request, pool.allow_heterogeneous_fits)
    return prospects.never(shape, slots) or prospects.never_beside_spares(request)


def never_of(pool: ResourcePool, task: Task) -> Reason | None:
    """Why the pool can never run this task as it stands, or None."""
    return never(pool, task.slots, single_host=task.single_host, only_hosts=task.only_hosts)


def refuse_what_never_fits(
    pool: ResourcePool, slots: int, *, single_host: bool, only_hosts: Sequence[str] = ()
) -> None:
    """Also what names hosts that the pool does not have. Raises Refusal."""
    if only_hosts:
        _refuse_hosts_of_others(pool, only_hosts)
    if not slots or not (only_hosts or (single_host and pool.launch_error)):
        return
    reason = never(pool, slots, single_host=single_host, only_hosts=only_hosts)
    if reason is None or reason.code != WaitCode.NEVER_FITS:
        return
    theirs = dialect_words.NEVER_FITS
    sentence = f"{theirs}: resource pool {pool.name} can never run this: it {reason.sentence}."
    if only_hosts:
        raise Refusal(f"{sentence} Name more or larger hosts in resources.hosts.", field="hosts")
    if Host.objects.filter(pool=pool, admission=Host.Admission.ADMITTING).exists():
        return
    raise Refusal(
        f"{sentence} If larger hosts will be added, an admin can let it wait: "
        f"trainmaster pool edit {pool.name} --no-launch-error",
        field="slots",
    )


def refuse_uneven(pool: ResourcePool, slots: int, slurm: object) -> None:
    """Also what a node's part in a Slurm pool does not divide, by the section `slurm` of its config. Raises Refusal."""
    size = slurm.get("slots_per_node") if pool.slurm and isinstance(slurm, Mapping) else None
    if isinstance(size, int) and 0 < size < slots and slots % size:
        parts = [str(part) for part in range(1, slots + 1) if slots % part == 0]
        raise Refusal(
            f"slurm.slots_per_node: found {size}, which does not divide the {slots} slots of this job; "
            f"allowed: {', '.join(parts)}.",
            field="slurm",
        )


def _refuse_hosts_of_others(pool: ResourcePool, names: Sequence[str]) -> None:
    known = Host.objects.exclude(admission=Host.Admission.REMOVED).exclude(transport=Host.Transport.LOGIN)
    pools = dict(known.filter(name__in=names).values_list("name", "pool__name"))
    for name in names:
        if pools.get(name) != pool.name:
            where = (
                f"is in resource pool {pools[name]}, not in {pool.name}"
                if name in pools
                else "does not exist"
            )
            own = listed(known.filter(pool=pool).values_list("name", flat=True)) or "none"
            raise Refusal(
                f"resources.hosts names host {name}, which {where}; the hosts of resource pool {pool.name} are: {own}.",
                field="hosts",
            )


def refuse_job_that_never_fits(job: Job, pool: ResourcePool) -> None:
    """Before the job is moved into the pool. Raises Refusal."""
    tasks = job.tasks.exclude(state=TaskState.ENDED).exclude(single_host=False, only_hosts=[])
    asked = {(task.slots, task.single_host, tuple(task.only_hosts)) for task in tasks}
    for slots, single_host, only_hosts in asked:
        refuse_what_never_fits(pool, slots, single_host=single_host, only_hosts=only_hosts)


def _view(host: Host) -> HostView:
    return HostView(
        id=str(host.pk),
        name=host.name,
        slots=tuple(SlotView(index, index) for index in range(host.size)),  # type: ignore[attr-defined]  # annotated
        enabled=host.enabled,
        draining=host.draining,
        silent=host.contact != Host.Contact.REACHABLE,
        suspended=host.admission == Host.Admission.SUSPENDED,
        failed_starts=host.drain_cause == Host.Drain.FAILED_STARTS,
    )
