"""Which engine runs the work of a pool, and reaches the runs on a host. Another kind of pool is named here."""

from __future__ import annotations

from dispatch.engines.contract import Engine
from dispatch.engines.slurm import Slurm
from dispatch.engines.ssh_hosts import SshHosts
from hosts.models import Host, ResourcePool

_SSH_HOSTS = SshHosts()
_SLURM = Slurm()
_OF_SLURM = {Host.Transport.LOGIN, Host.Transport.SLURM}


def of_pool(pool: ResourcePool) -> Engine:
    """The engine that places the work of the pool."""
    return _SLURM if pool.slurm else _SSH_HOSTS


def of_host(host: Host) -> Engine:
    """The engine that reaches the runs on the host. A run stays with it, whatever becomes of its pool."""
    return _SLURM if host.transport in _OF_SLURM else _SSH_HOSTS


def contact(host: Host) -> Host:
    """The host whose verbs reach the folders of the runs on this one."""
    return of_host(host).contact(host)
