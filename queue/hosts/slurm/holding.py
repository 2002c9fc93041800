"""Which slots of a cluster's nodes jobs of others hold, by what `squeue` and `scontrol` say. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from accounts.refusals import Refusal
from hosts.slurm import ends, texts
from hosts.slurm.scontrol import Node
from hosts.slurm.settings import SlurmSettings
from hosts.slurm.squeue import Job

#: names of nodes in the lists of all running jobs together
_NAMES_MOST = 500_000
#: those with the most slots are kept
_USERS_MOST = 1_000


@dataclass(frozen=True)
class Held:
    """Slots of one node that a job of others holds."""

    user: str
    job: str
    slots: int


@dataclass(frozen=True)
class UserFacts:
    """What one user, whose jobs are not this pool's, has there. `slots` of jobs that run."""

    user: str
    running: int
    waiting: int
    slots: int


def others(
    settings: SlurmSettings,
    partition: str,
    nodes: list[Node],
    sizes: Mapping[str, int],
    jobs: Iterable[Job],
    is_ours: Callable[[Job], bool],
) -> tuple[dict[str, list[Held]], list[UserFacts]]:
    """(node -> jobs of others that hold slots there, the users of these and of the waiting ones, most slots first).

    Jobs that have ended, which squeue lists for some minutes, hold nothing. Raises Refusal.
    """
    known = {node.name: node for node in nodes}
    jobs = [job for job in jobs if not ends.has_ended(job.state)]
    running: dict[str, set[str]] = defaultdict(set)
    waiting: dict[str, int] = defaultdict(int)
    for job in jobs:
        if job.state == "PENDING" and partition in job.partition.split(",") and not is_ours(job):
            waiting[job.user] += job.elements
    held: dict[str, list[Held]] = {}
    slots: dict[str, int] = defaultdict(int)
    for name, here in _by_node(jobs, known).items():
        held[name] = _held(settings, known[name], sizes[name], here, is_ours)
        for job in here:
            if not is_ours(job):
                running[job.user].add(job.id)
        for each in held[name]:
            slots[each.user] += each.slots
    users = [
        UserFacts(user, len(running[user]), waiting[user], slots[user])
        for user in sorted({*running, *waiting} - {""})
    ]
    most_first = sorted(users, key=lambda user: (-user.slots, -user.running, -user.waiting))
    return held, most_first[:_USERS_MOST]


def _by_node(jobs: Iterable[Job], known: Mapping[str, Node]) -> dict[str, list[Job]]:
    """Node -> the jobs that run there."""
    found: dict[str, list[Job]] = defaultdict(list)
    lists: dict[str, list[str]] = {}
    names = 0
    for job in jobs:
        if job.state == "PENDING" or not job.nodelist:
            continue
        if job.nodelist not in lists:
            lists[job.nodelist] = texts.nodes(job.nodelist)
        names += len(lists[job.nodelist])
        if names > _NAMES_MOST:
            raise Refusal(f"The running jobs of the cluster name more than {_NAMES_MOST:,} nodes together.")
        for name in lists[job.nodelist]:
            if name in known:
                found[name].append(job)
    return found


def _held(
    settings: SlurmSettings, node: Node, size: int, jobs: list[Job], is_ours: Callable[[Job], bool]
) -> list[Held]:
    """The slots that jobs of others hold on one node, at most as many as it has.

    A job that asked for GPUs by job or by task lists none by node: the first of these gets what the node has in use
    beyond the others. GPUs of which the pool makes no slots are taken first. Where no CPU is left, none of the slots is
    of use: those that are left are held by the job of others with the most CPUs.
    """
    shares = {job: _share(settings, node, size, job) for job in jobs}
    theirs = [job for job in jobs if not is_ours(job)]
    if settings.is_gpu:
        rest = of_type(settings, node.gpus_used) - sum(shares.values())
        unknown = next((job for job in theirs if not shares[job]), None)
        if unknown is not None and rest > 0:
            shares[unknown] = rest
    ours = sum(share for job, share in shares.items() if is_ours(job))
    spare = max(0, of_type(settings, node.gpus) - size) if settings.is_gpu else 0
    left = max(0, size - ours)
    taken: dict[Job, int] = {}
    for job in theirs:
        aside = min(spare, shares[job])
        spare -= aside
        taken[job] = min(shares[job] - aside, left)
        left -= taken[job]
    if theirs and left and 0 < node.cpus <= node.cpus_used:
        taken[max(theirs, key=lambda job: job.cpus / max(1, job.nodes))] += left
    return [Held(job.user, job.id, count) for job, count in taken.items() if count > 0]


def of_type(settings: SlurmSettings, gpus: Mapping[str, int]) -> int:
    """GPUs of the pool's type; where Slurm names no type, all count."""
    if not settings.gpu_type or set(gpus) <= {""}:
        return sum(gpus.values())
    return gpus.get(settings.gpu_type, 0)


def _share(settings: SlurmSettings, node: Node, size: int, job: Job) -> int:
    """Slots of the node that the job asked for by node; for CPUs, a part of a slot counts as one."""
    if settings.is_gpu:
        asked = texts.gpus(job.gres)
        if settings.gpu_type and settings.gpu_type not in asked and set(asked) - {""}:
            return 0
        return sum(asked.values())
    return math.ceil(job.cpus / max(1, job.nodes) * size / max(1, node.cpus))
