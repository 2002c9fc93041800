"""Which engine runs the work of a pool, and reaches the runs on a host. Another kind of pool is named here."""

from __future__ import annotations

from dispatch.engines.contract import Engine
from dispatch.engines.ssh_hosts import SshHosts
from hosts.models import Host, ResourcePool

_SSH_HOSTS = SshHosts()


def of_pool(pool: ResourcePool) -> Engine:
    """The engine that places the work of the pool."""
    return _SSH_HOSTS


def of_host(host: Host) -> Engine:
    """The engine that reaches the runs on the host. A run stays with it, whatever becomes of its pool."""
    return _SSH_HOSTS
