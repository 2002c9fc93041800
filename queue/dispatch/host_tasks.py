"""The Celery tasks about hosts: thin adapters, short and idempotent."""

from __future__ import annotations

import uuid

from celery import shared_task, signals

from dispatch import admission, probing, tunnel
from dispatch import doctor as host_doctor
from hosts import admitting


@shared_task(name="dispatch.host_tasks.admit")
def admit(host_id: str) -> None:
    admission.admit(uuid.UUID(host_id))


@shared_task(name="dispatch.host_tasks.doctor")
def doctor(host_id: str) -> None:
    host_doctor.run(uuid.UUID(host_id))


@shared_task(name="dispatch.host_tasks.keep_tunnels")
def keep_tunnels() -> None:
    tunnel.ensure_tunnels()


@shared_task(name="dispatch.host_tasks.probe_all")
def probe_all() -> None:
    """Ask the hosts that nobody else asks, and go on with admissions that a killed worker has left."""
    for host_id in admitting.forgotten():
        admit.apply_async((str(host_id),), expires=30, retry=False)
    probing.probe_due()


@signals.worker_shutdown.connect
def _leave_tunnels(**_: object) -> None:
    """A worker that ends in order lets the next one take over at once."""
    tunnel.of_this_process().close_all()
