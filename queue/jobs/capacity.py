"""What the hosts of a pool could run if they were empty: said of a submission, and refused where no waiting helps.

Work on one host that is larger than every host waits forever, so it is refused; unless the pool says that larger hosts
may come (`launch_error` off), or one is being added. A gang is not refused: more hosts of a kind come more easily, and
its submission is told why it waits.
"""

from __future__ import annotations

from django.db.models import Count

from accounts.refusals import Refusal
from hosts.models import Host, ResourcePool
from jobs.models import Job
from jobs.states import TaskState
from scheduling.fitting import Shape
from scheduling.prospects import Prospects
from scheduling.reasons import Reason, WaitCode
from scheduling.world import HostView, PoolView, Request, SlotView, Snapshot
from trainmaster import dialect_words

_IN_SERVICE = [Host.Admission.READY, Host.Admission.SUSPENDED]


def never(pool: ResourcePool, slots: int, *, single_host: bool) -> Reason | None:
    """Why the pool can never run a task of this size as it stands, or None. Hosts that are off count, too."""
    hosts = Host.objects.filter(pool=pool, admission__in=_IN_SERVICE).annotate(size=Count("slots"))
    if hosts.filter(size__gte=slots).exists():  # the usual case, without a look at the whole pool
        return None
    request = Request(task_id="", job_id="", label="", slots=slots, single_host=single_host)
    view = PoolView(name=pool.name, allow_heterogeneous_fits=pool.allow_heterogeneous_fits)
    snapshot = Snapshot(now=0.0, pool=view, hosts=tuple(map(_view, hosts.order_by("name"))), requests=())
    return Prospects(snapshot).never(Shape.of(request, pool.allow_heterogeneous_fits), slots)


def refuse_what_never_fits(pool: ResourcePool, slots: int, *, single_host: bool) -> None:
    """Raises Refusal."""
    if not single_host or not slots or not pool.launch_error:
        return
    reason = never(pool, slots, single_host=True)
    if reason is None or reason.code != WaitCode.NEVER_FITS:
        return
    if Host.objects.filter(pool=pool, admission=Host.Admission.ADMITTING).exists():
        return
    theirs = dialect_words.NEVER_FITS
    raise Refusal(
        f"{theirs}: resource pool {pool.name} can never run this: it {reason.sentence}. If larger hosts will be added, "
        f"an admin can let it wait: trainmaster pool edit {pool.name} --no-launch-error",
        field="slots",
    )


def refuse_job_that_never_fits(job: Job, pool: ResourcePool) -> None:
    """Before the job is moved into the pool. Raises Refusal."""
    tasks = job.tasks.filter(single_host=True).exclude(state=TaskState.ENDED)
    for slots in set(tasks.values_list("slots", flat=True)):
        refuse_what_never_fits(pool, slots, single_host=True)


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
