"""Reverse tunnels: a port on the loopback of a host that cannot reach the server leads to it through SSH.

That of a cluster's login node is for the nodes, too, if its pool says at which address they reach it: a relay there
passes the same port on (dispatch.ssh.relay). The runs that know a tunnel are then those on the nodes.

A lease row says which worker keeps a host's tunnel. The holder renews it from a thread of its own; when it
dies, the next sweep of any worker takes the lease over, with the same remote port if that is free, so that
runs notice nothing.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
import time
import uuid
from collections import defaultdict
from datetime import timedelta
from urllib.parse import urlsplit

from django.conf import settings
from django.db import DatabaseError, connection
from django.db.models import F, Q, QuerySet
from django.db.models.expressions import CombinedExpression
from django.db.models.functions import Now

from dispatch.ssh import connections, remote, slurm_node
from dispatch.ssh.contact_errors import ForwardRefused
from dispatch.ssh.dialling import endpoint_of
from dispatch.ssh.relay import Relay
from dispatch.ssh.server_route import local_url, server_address
from dispatch.ssh.ssh_session import LOOPBACK, Forward
from dispatch.ssh.threads import PerProcess, ask_all
from events.announce import announce, wake
from events.leases import alone
from hosts.models import Host, TunnelLease
from hosts.slurm.settings import SlurmSettings
from hosts.slurm_pool import tunnel_address
from jobs.models import Member

log = logging.getLogger(__name__)

ROUTE = "tunnel"
#: at least between two tries to tell the runs of a host, of which one may not answer, where the server is
_TELL_AGAIN_SECONDS = 60.0


class Tunnels:
    """The tunnels that this process keeps. A host that hangs holds up nobody but itself."""

    def __init__(self) -> None:
        self.holder = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self._open: dict[uuid.UUID, Forward] = {}
        self._locks: defaultdict[uuid.UUID, threading.Lock] = defaultdict(threading.Lock)
        self._keeper: threading.Thread | None = None
        self._starting = threading.Lock()

    def ensure(self, host: Host) -> str | None:
        """Keep this host's tunnel open from here. The URL; None if another worker, or thread, is at it.

        Raises RemoteError if the host does not let us.
        """
        lock = self._locks[host.pk]
        if not lock.acquire(blocking=False):
            return None
        try:
            forward = self._open.get(host.pk)
            address = tunnel_address(host) or LOOPBACK
            opens = forward is None or not forward.alive or forward.address != address
            if forward is None or opens:
                if not self._take(host.pk):
                    return None
                self._drop(host.pk)
                forward = self._open[host.pk] = self._forward(host)
                self._note(host, forward)
            self._start_keeper()
        finally:
            lock.release()
        if opens:  # what fails now is for the sweeps
            tell_untold(host.pk)
        return _url(forward.address, forward.remote_port)

    def _take(self, host_id: uuid.UUID) -> bool:
        """Get the lease if it is free, run out, or ours already."""
        until = _end_of_lease()
        rows = TunnelLease.objects.filter(host_id=host_id)
        if rows.filter(Q(holder=self.holder) | Q(expires_at__lt=Now())).update(
            holder=self.holder, expires_at=until
        ):
            return True
        mine = {"holder": self.holder, "expires_at": until}
        return TunnelLease.objects.get_or_create(host_id=host_id, defaults=mine)[1]

    def _forward(self, host: Host) -> Forward:
        """Open the port that runs know already, or another one if that is taken."""
        lease = TunnelLease.objects.get(host_id=host.pk)
        here = urlsplit(local_url())
        address, port = str(here.hostname), int(here.port or 80)
        endpoint, relay = endpoint_of(host), _relay(host)
        if lease.remote_port:
            try:
                return connections.open_forward(endpoint, lease.remote_port, address, port, relay)
            except ForwardRefused as error:
                log.info("tunnel of %s: %s Asking for another port.", host.name, error)
        return connections.open_forward(endpoint, 0, address, port, relay)

    def _note(self, host: Host, forward: Forward) -> None:
        """Store the port; runs that know another one have to be told."""
        TunnelLease.objects.filter(host_id=host.pk).update(remote_port=forward.remote_port)
        url = _url(forward.address, forward.remote_port)
        if Host.objects.filter(pk=host.pk, server_route=ROUTE).exclude(server_url=url).update(server_url=url):
            announce("hosts")
            host.server_url = url

    # --- keeping -----------------------------------------------------------------------------------

    def _start_keeper(self) -> None:
        with self._starting:
            if self._keeper is None or not self._keeper.is_alive():
                self._keeper = threading.Thread(target=self._keep, name="tunnels", daemon=True)
                self._keeper.start()

    def _keep(self) -> None:
        """Look after the tunnels of ours, three times in a lease, until there is none left."""
        pause = threading.Event()
        while not pause.wait(settings.TUNNEL_LEASE_SECONDS / 3) and self._open:
            try:
                self.renew()
            except (remote.RemoteError, DatabaseError) as error:
                log.warning("tunnels: %s", error)
            connection.close()

    def renew(self) -> None:
        """Renew the leases of living tunnels at once; let go of those that are dead, or no longer ours to keep.

        A dead one is opened again by a task of its own, here or in another worker.
        """
        mine = TunnelLease.objects.filter(holder=self.holder, host__server_route=ROUTE).exclude(
            host__admission__in=[Host.Admission.REMOVED, Host.Admission.LOST]
        )
        alive = [host_id for host_id, forward in list(self._open.items()) if forward.alive]
        mine.filter(host_id__in=alive).update(expires_at=_end_of_lease())
        kept = set(mine.filter(host_id__in=alive).values_list("host_id", flat=True))
        gone = self._open.keys() - kept
        for host_id in gone:
            self.close(host_id)
        if gone:
            wake("dispatch.host_tasks.keep_tunnels")

    def close(self, host_id: uuid.UUID) -> None:
        """Close this tunnel and let go of its lease."""
        self._drop(host_id)
        TunnelLease.objects.filter(host_id=host_id, holder=self.holder).update(expires_at=Now())

    def _drop(self, host_id: uuid.UUID) -> None:
        forward = self._open.pop(host_id, None)
        if forward and forward.listens:
            connections.close_forward(forward)

    def close_all(self) -> None:
        for host_id in list(self._open):
            try:
                self.close(host_id)
            except (remote.RemoteError, DatabaseError) as error:
                log.info("the tunnel of host %s stays open until its lease expires: %s", host_id, error)


def _end_of_lease() -> CombinedExpression:
    """By the database's clock, which all workers share."""
    return Now() + timedelta(seconds=settings.TUNNEL_LEASE_SECONDS)


def _url(address: str, remote_port: int) -> str:
    shown = f"[{address}]" if ":" in address else address
    return f"{urlsplit(local_url()).scheme}://{shown}:{remote_port}"


def _relay(host: Host) -> Relay | None:
    """What passes the tunnel of a login node on to the nodes, with the bundle that has it. Raises RemoteError."""
    address = tunnel_address(host)
    return Relay(address, remote.relay_command(host)) if address else None


def untold() -> QuerySet[Host]:
    """Return the hosts whose runs have not been told at which URL they reach the server now."""
    return Host.objects.filter(admission=Host.Admission.READY).exclude(server_url__in=["", F("told_url")])


def tell_untold(host_id: uuid.UUID) -> None:
    """Tell the runs of this host where the server is now, unless they know; the next sweep tries again what fails."""
    host = untold().filter(pk=host_id).first()
    if host is None:
        return
    try:
        _tell_runs(host)
    except remote.RemoteError as error:
        log.warning(
            "runs of %s could not be told that the server is at %s: %s", host.name, host.server_url, error
        )
    else:
        Host.objects.filter(pk=host_id, server_url=host.server_url).update(told_url=host.server_url)


def _tell_runs(host: Host) -> None:
    """Tell the runs that reach the server as this host does where it is now. Raises RemoteError."""
    at = Q(host=host)
    if host.transport == Host.Transport.LOGIN:
        at = Q(host__pool=host.pool_id, host__transport=Host.Transport.SLURM)
    members = Member.objects.filter(at, removed_at=None)
    address = {**server_address(host), "told_at": time.time()}
    if host.transport == Host.Transport.LOGIN and not SlurmSettings.of(host.pool.slurm).folder_is_shared:
        keys = dict.fromkeys(member.run_key for member in members)
        slurm_node.of_runs(host, "server", keys, {"server": address})
    elif runs := [member.run_key for member in members]:
        remote.verb(host, "server", {"runs": runs, "server": address})


#: the keeper of this process
of_this_process = PerProcess(Tunnels).get


def open_for(host: Host) -> str:
    """The URL at which this host reaches the server through a tunnel, whoever keeps it. Raises RemoteError."""
    # the row first: the keeper lets go of tunnels whose host does not want one
    Host.objects.filter(pk=host.pk).update(server_route=ROUTE)
    url = of_this_process().ensure(host)
    if url:
        return url
    lease = TunnelLease.objects.filter(host_id=host.pk).first()
    if lease is None or lease.remote_port is None:
        raise remote.Unreachable(
            f"Another worker is opening the tunnel of {host.name}. Try again in a moment."
        )
    return _url(tunnel_address(host) or LOOPBACK, lease.remote_port)


def wanted() -> QuerySet[Host]:
    """Return the hosts that reach this server by a tunnel only."""
    return Host.objects.filter(server_route=ROUTE, admission=Host.Admission.READY)


def ensure_tunnels() -> None:
    """Take over tunnels that nobody keeps, and tell runs of a new URL. What fails is left for the next sweep."""
    kept = TunnelLease.objects.filter(expires_at__gt=Now()).values("host_id")
    mine = TunnelLease.objects.filter(holder=of_this_process().holder).values("host_id")
    hosts = list(wanted().filter(Q(pk__in=mine) | ~Q(pk__in=kept)))
    ask_all(_ensure, hosts, settings.HOST_PROBES_AT_ONCE)
    ask_all(_tell_again, list(untold().values_list("pk", flat=True)), settings.HOST_PROBES_AT_ONCE)


def _tell_again(host_id: uuid.UUID) -> None:
    with alone(f"tell {host_id}", every=_TELL_AGAIN_SECONDS) as mine:
        if mine is not None:
            tell_untold(host_id)


def is_needed() -> bool:
    """Whether `ensure_tunnels` may have something to do."""
    return wanted().exists() or untold().exists()


def _ensure(host: Host) -> None:
    try:
        of_this_process().ensure(host)
    except remote.RemoteError as error:
        log.warning("tunnel of %s: %s", host.name, error)
