"""The Celery tasks about hosts: thin adapters, short and idempotent."""

from __future__ import annotations

import uuid

from celery import shared_task, signals

from dispatch.runs import reconcile
from dispatch.ssh import tunnel
from dispatch.watching import admission, pairs, probing
from dispatch.watching import doctor as host_doctor
from events import presence
from events.announce import wake_all
from events.presence import Part
from hosts import admitting, pair_checks


@shared_task(name="dispatch.host_tasks.admit")
def admit(host_id: str) -> None:
    admission.admit(uuid.UUID(host_id))


@shared_task(name="dispatch.host_tasks.doctor")
def doctor(host_id: str) -> None:
    host_doctor.run(uuid.UUID(host_id))


@shared_task(name="dispatch.host_tasks.examine_pairs")
def examine_pairs(pool_id: int) -> None:
    """Test the next pairs of the pool; the task asks for itself again until all are through."""
    pairs.go_on(pool_id)


@shared_task(name="dispatch.host_tasks.keep_tunnels")
def keep_tunnels() -> None:
    tunnel.ensure_tunnels()


@shared_task(name="dispatch.host_tasks.probe_all")
def probe_all() -> None:
    """Ask the hosts that nobody else asks, declare lost those that rules give up, and continue what a killed worker
    has left: admissions, tests of pairs."""
    presence.stamp(Part.WORKERS)
    wake_all("dispatch.host_tasks.admit", [(str(host_id),) for host_id in admitting.forgotten()])
    wake_all("dispatch.host_tasks.examine_pairs", [(pool_id,) for pool_id in pair_checks.forgotten()])
    probing.probe_due()
    reconcile.declare_lost_hosts()


@signals.worker_shutdown.connect
def _leave_tunnels(**_: object) -> None:
    """A worker that ends in order lets the next one take over at once."""
    tunnel.of_this_process().close_all()
