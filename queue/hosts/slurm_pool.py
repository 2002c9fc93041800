"""A Slurm pool and its login node, a host that runs no jobs and is added, changed and removed with the pool."""

from __future__ import annotations

from dataclasses import replace

from accounts.refusals import Code, FieldRefusals
from hosts import registry, slurm_silence
from hosts.models import Host, ResourcePool, SlurmFacts, TunnelLease
from hosts.registry import NewHost
from hosts.slurm.settings import SlurmSettings
from hosts.slurm_nodes import login_name, login_of, read_soon
from trainmaster.cli import ssh_config

#: settings that say where the runs of the pool are
_WHERE = {"login", "folder", "folder_is_shared"}
#: and those of submissions, which admission tries
_TRIED = {
    "partition", "account", "qos", "slot_type", "gpu_type", "slots_per_node", "folder", "folder_is_shared", "accounts",
    "tunnel", "sbatch_args",
}  # fmt: skip


def begin(pool: ResourcePool, route: NewHost | None, *, actor: str) -> None:
    """Add the login node of a new pool, which starts its admission. Raises Refusal."""
    settings = SlurmSettings.of(pool.slurm)
    SlurmFacts.objects.update_or_create(pool=pool, defaults={"document": {}, "read_at": None, "error": ""})
    target = ssh_config.parse_target(settings.login)
    known = route or NewHost(
        target.host, port=target.port or 0, login_user=target.user or "", address=_address(target.host)
    )
    new = replace(
        known,
        name=login_name(pool.name),
        transport=Host.Transport.LOGIN,
        workdir=folder_of(pool),
        wanted_slots=None,
    )
    registry.add(new, pool, actor=actor)


def folder_of(pool: ResourcePool) -> str:
    """The folder of the login node. /var/lib, where other hosts have theirs, is seldom the same on all nodes."""
    settings = SlurmSettings.of(pool.slurm)
    if not settings.folder_is_shared:
        return ""  # the nodes have theirs
    return settings.folder or f"~/.trainmaster/slurm/{pool.name}"


def tunnel_address(host: Host) -> str:
    """Where nodes reach a login node that carries their tunnel to the server; empty: the host carries none."""
    if host.transport != Host.Transport.LOGIN or not host.pool.slurm:
        return ""
    return SlurmSettings.of(host.pool.slurm).tunnel


def _address(name: str) -> str:
    """An IP address is dialled as it is; of a name, the server's SSH config is asked."""
    return name if name.replace(".", "").isdecimal() or ":" in name else ""


def changed(pool: ResourcePool, before: dict[str, object], *, actor: str) -> None:
    """Try the new settings: the login node is admitted again, or another one instead. Raises Refusal.

    What is only about how the cluster is read is as it should be after the next reading.
    """
    settings, former = SlurmSettings.of(pool.slurm), SlurmSettings.of(before)
    new = {name for name, value in vars(settings).items() if value != getattr(former, name)}
    if moved := sorted(_WHERE & new):
        _refuse_live(pool, moved)
    login = login_of(pool)
    if "login" in new:
        registry.take_out(login, actor=actor)
        begin(pool, None, actor=actor)
        slurm_silence.silence(
            pool.pk, f"The pool has another login node, {settings.login}, which was not asked yet."
        )
        return
    if "tunnel" in new:  # whoever keeps the one that is there lets go of it
        TunnelLease.objects.filter(host=login).delete()
    Host.objects.filter(pk=login.pk).update(workdir=folder_of(pool))
    if _TRIED & new or login.admission != Host.Admission.READY:
        registry.admit_again(login.pk, actor=actor)
    else:
        read_soon(pool)


def _refuse_live(pool: ResourcePool, moved: list[str]) -> None:
    """Raises Refusal while jobs wait in Slurm, or runs there have their folders, where these settings say."""
    if waiting := pool.fed_jobs.filter(ended_at=None).count():
        jobs = "a job is" if waiting == 1 else f"{waiting} jobs are"
        raise FieldRefusals(
            {
                "slurm": f"{' and '.join(moved)} cannot be changed while {jobs} in Slurm: the server would no longer "
                "find them. Wait until they have ended, or pause or cancel them."
            },
            Code.CONFLICT,
        )
    busy = Host.objects.filter(
        pool=pool, transport=Host.Transport.SLURM, members__isnull=False, members__ended_at=None
    )
    if names := list(busy.order_by("name").values_list("name", flat=True).distinct()):
        shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        raise FieldRefusals(
            {
                "slurm": f"{' and '.join(moved)} cannot be changed while runs are on {shown}: the server would no "
                "longer find them. Wait until they have ended, or pause or cancel them."
            },
            Code.CONFLICT,
        )


def wrong_kind(pool: ResourcePool) -> str:
    """Why a pool stays of the kind that it was created as."""
    if pool.slurm:
        return f"{pool.name} is a Slurm pool, and its login is required. For hosts reached by SSH, create another pool."
    return f"{pool.name} is a pool of hosts reached by SSH. For a Slurm cluster, create another pool."


def end(pool: ResourcePool, *, actor: str) -> None:
    """Take the nodes and the login node out with their pool. Raises Refusal while something runs there."""
    for host in registry.present().select_for_update().filter(pool=pool).order_by("pk"):
        registry.take_out(host, actor=actor)
    SlurmFacts.objects.filter(pool=pool).delete()
