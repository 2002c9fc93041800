"""Builds spec.json of one member: what docs/protocol.md describes, from the rows of the allocation."""

from __future__ import annotations

from django.conf import settings

from accounts.models import Cluster
from dispatch.engines import chosen
from hosts.login_accounts import unix_ids
from hosts.models import Host, Slot
from hosts.runtimes import usable_runtimes
from jobs.models import Allocation, Member
from jobs.run import RunSpec
from jobs.transitions import run_token
from metrics import chunks
from trainmaster.protocol import PROTOCOL, Limits, Spec


def build(member: Member, members: list[Member], run: RunSpec) -> Spec:
    """The spec of `member`; `members` are all of the gang in order, with their hosts loaded."""
    allocation: Allocation = member.allocation
    host, pool, task = member.host, allocation.pool, allocation.task
    by_way = chosen.contact(host)
    cluster = Cluster.get()
    not_used = _image_not_used(run, members)
    in_image = run.container is not None and not_used is None
    slots = Slot.objects.filter(holds__member=member, holds__released_at=None).order_by("index")
    return {
        "protocol": PROTOCOL,
        "run_key": member.run_key,
        "allocation_id": allocation.pk,
        "member": member.index,
        "members": len(members),
        "task_id": task.pk,
        "task_type": task.kind,
        "job_id": str(task.job_id),
        "cluster": {
            "id": str(cluster.cluster_id),
            "name": settings.CLUSTER_NAME,
            "proof_key": cluster.proof_key(allocation.pk),
        },
        "host": {"id": str(host.pk), "name": host.name},
        "token": run_token(allocation),
        "unix_user": allocation.account,
        "unix_ids": unix_ids(task.job.owner, allocation.account),
        "user": run.user or None,
        "python": run.python or (None if in_image else host.python or by_way.python) or None,
        "activate": run.activate or (None if in_image else host.activate or by_way.activate) or None,
        "hooks": run.hooks,  # type: ignore[typeddict-item]  # checked with the config, plain JSON since
        "entrypoint": run.entrypoint,
        "environment": run.environment,
        "slots": [{"index": slot.index, "uuid": slot.uuid, "kind": slot.kind} for slot in slots],
        "gang": {
            "addresses": [gang_address(peer.host, run.interface, pool.network_interface) for peer in members],
            "slot_counts": [peer.slots for peer in members],
            "ports": allocation.ports,
            "interface": run.interface or pool.network_interface or None,
            "secret": allocation.gang_secret,
        },
        "trial": run.trial,  # type: ignore[typeddict-item]  # the job's room builds it as plain JSON
        "user_data": run.user_data,
        "checkpoint_storage": run.checkpoint_storage,
        "limits": limits(run.sample_seconds),
        "container": run.container if in_image else None,  # type: ignore[typeddict-item]  # checked with the config
        "mounts": None if in_image else list(run.mounts),  # type: ignore[arg-type]  # checked as well
        "remarks": [*run.remarks, *([] if not_used is None else [not_used])],
    }


def _image_not_used(run: RunSpec, members: list[Member]) -> str | None:
    """A sentence why the run's image is not used, for its log: a gang is in it on all of its hosts or on none."""
    if run.container is None:
        return None
    start = f"the attempt runs directly on its hosts, without the image {run.container['image']}:"
    if not settings.RUN_IMAGES:
        return f"{start} images are disabled on this server (TRAINMASTER_RUN_IMAGES is false)"
    hosts = {peer.host.name: peer.host.facts for peer in members}
    unable = [name for name, facts in hosts.items() if not usable_runtimes(facts)]
    if not unable:
        return None
    if members[0].host.transport == Host.Transport.SLURM:
        login = chosen.contact(members[0].host).name
        return f"{start} no usable apptainer or podman on {login} (see its doctor), as which the nodes are taken to be"
    return f"{start} no usable podman, docker or apptainer on {', '.join(unable)} (see its doctor)"


def limits(sample_seconds: float | None) -> Limits:
    """What a runner keeps to; `sample_seconds` as the job's config says, None where it does not."""
    return {
        "spool_bytes": settings.SPOOL_BYTES,
        "line_bytes": settings.LOG_LINE_BYTES,
        "flush_seconds": 0.05,
        "heartbeat_seconds": settings.HEARTBEAT_SECONDS,
        "grace_seconds": settings.STOP_GRACE_SECONDS,
        "batch_bytes": 1024 * 1024,
        "sample_seconds": _sample_seconds(sample_seconds),
        "sample_record_seconds": settings.SAMPLE_RECORD_SECONDS,
        "reports_per_record": chunks.FULL,
    }


def gang_address(host: Host, wanted: str, pools: str) -> str:
    """Where the gang reaches this host: on the interface that its config wants, if the host has that one."""
    return (wanted and host.address_on(wanted)) or host.peer_address(pools)


def _sample_seconds(wanted: float | None) -> float:
    """As the config says; 0, never, where the server takes no samples."""
    seconds = float(settings.SAMPLE_SECONDS)
    return seconds if seconds <= 0 or wanted is None else wanted
