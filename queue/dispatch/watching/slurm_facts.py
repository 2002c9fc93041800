"""Reads what a cluster tells of itself over its login node, and tries at admission what the pool's jobs will need."""

from __future__ import annotations

import logging
import secrets
import shlex

from dispatch.ssh import slurm_login
from dispatch.ssh.remote import RemoteError
from dispatch.ssh.slurm_login import SlurmRefused
from hosts import slurm_nodes
from hosts.models import Host, ResourcePool, SlurmFacts
from hosts.slurm import facts, scontrol, squeue
from hosts.slurm.facts import ClusterFacts, NotUsable
from hosts.slurm.settings import SlurmSettings
from jobs import feeding

log = logging.getLogger(__name__)

_FOLDER_SECONDS = 30.0


def read_pool(pool_id: int) -> None:
    """Read the cluster of a pool again and bring its nodes in line; a failure is kept beside what was known."""
    pool = ResourcePool.objects.filter(pk=pool_id).first()
    if pool is None or not pool.slurm:
        return
    try:
        login = slurm_nodes.login_of(pool)
        known = SlurmFacts.objects.filter(pool=pool).exclude(document={}).first()
        before = ClusterFacts.of(known.document) if known else None
        slurm_nodes.took_in(pool, login, read(pool, login, before))
    except Host.DoesNotExist:
        return
    except (RemoteError, NotUsable) as error:
        log.warning("the cluster of pool %s: %s", pool.name, error)
        slurm_nodes.not_read(pool, str(error))


def read(pool: ResourcePool, login: Host, before: ClusterFacts | None = None) -> ClusterFacts:
    """What the cluster says now. Raises RemoteError and NotUsable.

    `before`: what it said before, whose version and configuration are taken for granted: Slurm is asked as seldom as
    possible.
    """
    settings = SlurmSettings.of(pool.slurm)
    config = before.config if before else scontrol.config(_asked(login, scontrol.CONFIG))
    partition = facts.chosen_partition(settings, scontrol.partitions(_asked(login, scontrol.PARTITION)))
    nodes = scontrol.nodes(_asked(login, scontrol.NODE))
    mark = f"#{secrets.token_hex(8)}#"
    jobs = squeue.jobs(_asked(login, squeue.command(mark)), mark)
    ours = _comments(pool)
    return facts.of_cluster(settings, config, partition, nodes, jobs, lambda job: job.comment in ours)


def _comments(pool: ResourcePool) -> frozenset[str]:
    """The comments of the Slurm jobs of this pool: each has the id of the attempt that it is for."""
    return frozenset(feeding.open_jobs(pool.pk).values_list("attempt", flat=True))


def _asked(login: Host, words: tuple[str, ...]) -> str:
    return slurm_login.ask(login, words)[0]


def admit(login: Host) -> None:
    """Read the cluster of a login node that is being admitted, and try what jobs need.

    Raises RemoteError and NotUsable.
    """
    pool = login.pool
    found = read(pool, login)
    _try_submission(login, SlurmSettings.of(pool.slurm), found)
    _try_folder(login, SlurmSettings.of(pool.slurm))
    slurm_nodes.took_in(pool, login, found)


def submission(settings: SlurmSettings, partition: str) -> list[str]:
    """The options that every job of the pool has, by its settings."""
    named = {"partition": partition, "account": settings.account, "qos": settings.qos}
    return [*(f"--{name}={text}" for name, text in named.items() if text), *settings.sbatch_args]


def _try_submission(login: Host, settings: SlurmSettings, found: ClusterFacts) -> None:
    """Whether the account may submit one slot's worth, without submitting it."""
    slot = (
        f"--gres=gpu:{settings.gpu_type + ':' if settings.gpu_type else ''}1"
        if settings.is_gpu
        else "--ntasks=1"
    )
    words = [
        "sbatch",
        "--test-only",
        *submission(settings, found.partition),
        "--nodes=1",
        slot,
        "--wrap",
        "true",
    ]
    try:
        slurm_login.ask(login, words)
    except SlurmRefused as error:
        raise NotUsable(
            f"Slurm would not take a job from {login.login_user or 'this account'} for partition {found.partition!r}: "
            f"{_in_a_line(error.said)}. Correct partition, account, qos or sbatch_args, or ask an administrator of "
            "the cluster."
        ) from error


def _in_a_line(said: str) -> str:
    """What sbatch says, without the words that it puts before each line."""
    lines = [line.strip().removeprefix("sbatch: ").removeprefix("error: ") for line in said.splitlines()]
    return "; ".join(filter(None, lines))[:300].rstrip(".") or "it gave no reason"


def _try_folder(login: Host, settings: SlurmSettings) -> None:
    """Whether runs can keep their files there. A folder of each node by itself is not seen from here.

    A file is left by which `launch` and `status` see that the folder is mounted (`Workdir.shared`).
    """
    if not settings.folder or not settings.folder_is_shared:
        return
    path = settings.folder
    quoted = f'"$HOME"/{shlex.quote(path[2:])}' if path.startswith("~/") else shlex.quote(path)
    line = f"umask 022; mkdir -p {quoted} && cd {quoted} && [ -w . ] && : > .shared"
    try:
        slurm_login.ask(login, ["sh", "-c", line], timeout_seconds=_FOLDER_SECONDS)
    except SlurmRefused as error:
        raise NotUsable(
            f"The folder {path} cannot be written to on {login.name}: {_in_a_line(error.said)}. "
            "Give another one with folder=PATH."
        ) from error
