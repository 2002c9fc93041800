"""Reads what a cluster tells of itself over its login node, and tries at admission what the pool's jobs will need."""

from __future__ import annotations

import logging
import secrets
import shlex
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta

from django.conf import settings

from accounts.refusals import Refusal
from dispatch.ssh import slurm_login
from dispatch.ssh.remote import RemoteError
from dispatch.ssh.slurm_login import SlurmRefused
from events import presence
from hosts import admitting, login_accounts, slurm_nodes, slurm_pool
from hosts.models import Host, ResourcePool, SlurmFacts
from hosts.slurm import facts, scontrol, squeue, texts
from hosts.slurm.facts import ClusterFacts
from hosts.slurm.scontrol import Node
from hosts.slurm.settings import SlurmSettings
from hosts.slurm.squeue import Job
from jobs import feeding

log = logging.getLogger(__name__)

_FOLDER_SECONDS = 30.0
_CONFIG_SECONDS = 3600.0
_NOT_UNDERSTOOD = (
    "What the cluster answered could not be read, because of an internal error. See the server's log."
)


def read_pool(pool_id: int) -> None:
    """Read the cluster of a pool again and bring its nodes in line; a failure is kept beside what was known."""
    pool = ResourcePool.objects.filter(pk=pool_id).first()
    if pool is None or not pool.slurm:
        return
    next_at = presence.database_now() + timedelta(seconds=settings.SLURM_FACTS_SECONDS)
    try:
        login = slurm_nodes.login_of(pool)
        known = SlurmFacts.objects.filter(pool=pool).first()
        before = ClusterFacts.of(known.document) if known else None
        slurm_nodes.took_in(pool, login, read(pool, login, before))
    except Host.DoesNotExist:
        return
    except (RemoteError, Refusal) as error:
        log.warning("the cluster of pool %s: %s", pool.name, error)
        slurm_nodes.not_read(pool, str(error))
    except Exception:
        log.exception("the cluster of pool %s", pool.name)
        slurm_nodes.not_read(pool, _NOT_UNDERSTOOD)
    finally:
        slurm_nodes.read_over(pool_id, next_at)


def read(pool: ResourcePool, login: Host, before: ClusterFacts | None = None) -> ClusterFacts:
    """What the cluster says now. Raises RemoteError and Refusal.

    `before`: what it said before, whose version and configuration are taken for granted for an hour, or until its nodes
    have another version: Slurm is asked as seldom as possible.
    """
    rules = SlurmSettings.of(pool.slurm)
    partition = facts.chosen_partition(rules, scontrol.partitions(_asked(login, scontrol.PARTITION)))
    nodes = scontrol.nodes(_asked(login, scontrol.NODE))
    config, config_at = _config(login, before, nodes)
    name = (login.facts.get("account") or {}).get("name") or ""
    if not login_accounts.is_shared(pool):
        facts.refuse_hidden_jobs(config, name)
    mark = f"#{secrets.token_hex(8)}#"
    jobs = squeue.jobs(_asked(login, squeue.command(mark)), mark)
    ours = _marks(pool)

    def is_ours(job: Job) -> bool:
        return job.comment in ours and (not name or (ours[job.comment] or name) == job.user)

    return facts.of_cluster(rules, config, partition, nodes, jobs, is_ours, config_at)


def _config(login: Host, before: ClusterFacts | None, nodes: list[Node]) -> tuple[Mapping[str, str], float]:
    """(the cluster's configuration, when it was read). Raises RemoteError."""
    now = time.time()
    if (
        before is not None
        and 0 <= now - before.config_at < _CONFIG_SECONDS
        and before.node_versions == facts.versions(nodes)
    ):
        return before.config, before.config_at
    return scontrol.config(_asked(login, scontrol.CONFIG)), now


def _marks(pool: ResourcePool) -> dict[str, str]:
    """The comments of the Slurm jobs of this pool, each the id of the attempt that it is for, and their accounts."""
    return dict(feeding.open_jobs(pool.pk).values_list("attempt", "unix_user"))


def _asked(login: Host, words: Sequence[str], timeout_seconds: float = slurm_login.TIMEOUT_SECONDS) -> str:
    """What the command printed. An admission keeps its claim for it, since several commands may take longer than that.

    Raises RemoteError.
    """
    admitting.goes_on(login)
    return texts.clean(slurm_login.ask(login, words, timeout_seconds=timeout_seconds)[0])


def admit(login: Host) -> None:
    """Read the cluster of a login node that is being admitted, and try what jobs need.

    Raises RemoteError and Refusal.
    """
    pool = login.pool
    found = read(pool, login)
    if login_accounts.is_shared(pool):  # else the doctor has tried it for each person
        _try_submission(login, SlurmSettings.of(pool.slurm), found)
    _try_folder(login, slurm_pool.folder_of(pool))
    slurm_nodes.took_in(pool, login, found)
    feeding.try_again(pool.pk)


def submission(rules: SlurmSettings, partition: str) -> list[str]:
    """The options that every job of the pool has, by its settings. Of two options of one name sbatch takes the last."""
    named = {"partition": partition, "account": rules.account, "qos": rules.qos}
    return [*rules.sbatch_args, *(f"--{name}={text}" for name, text in named.items() if text)]


def trial(rules: SlurmSettings, partition: str) -> list[str]:
    """The words that ask whether an account may submit one slot's worth, without submitting it."""
    slot = f"--gres=gpu:{rules.gpu_type + ':' if rules.gpu_type else ''}1" if rules.is_gpu else "--ntasks=1"
    return ["sbatch", "--test-only", *submission(rules, partition), "--nodes=1", slot, "--wrap", "true"]


def _try_submission(login: Host, rules: SlurmSettings, found: ClusterFacts) -> None:
    try:
        _asked(login, trial(rules, found.partition))
    except SlurmRefused as error:
        raise Refusal(
            f"Slurm would not take a job from {login.login_user or 'this account'} for partition {found.partition!r}: "
            f"{in_a_line(error.said)}. Correct partition, account, qos or sbatch_args, or ask an administrator of "
            "the cluster."
        ) from error


def in_a_line(said: str) -> str:
    """What sbatch says, without the words that it puts before each line."""
    lines = [line.strip().removeprefix("sbatch: ").removeprefix("error: ") for line in said.splitlines()]
    return "; ".join(filter(None, lines))[:300].rstrip(".") or "it gave no reason"


def _try_folder(login: Host, path: str) -> None:
    """Whether runs can keep their files there. A folder of each node by itself is not seen from here.

    A file is left by which `launch` and `status` see that the folder is mounted (`Workdir.shared`).
    """
    if not path:
        return
    quoted = f'"$HOME"/{shlex.quote(path[2:])}' if path.startswith("~/") else shlex.quote(path)
    line = f"umask 022; mkdir -p {quoted} && cd {quoted} && [ -w . ] && : > .shared"
    try:
        _asked(login, ["sh", "-c", line], _FOLDER_SECONDS)
    except SlurmRefused as error:
        raise Refusal(
            f"The folder {path} cannot be written to on {login.name}: {in_a_line(error.said)}. "
            "Give another one with folder=PATH."
        ) from error
