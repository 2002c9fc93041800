"""Slurm's Reason of a waiting job in words, and what may be done: one table for pages, REST, CLI and docs. Pure.

The texts are those of 20.11 to 25.05. One that is not here is shown as it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Why:
    """Why Slurm has not started a job. `code`: Slurm's word; `to_do`: empty if waiting is all."""

    code: str
    sentence: str
    to_do: str = ""


_ADMIN = "Ask an administrator of the cluster"

#: Slurm's word -> (why it waits, what may be done)
SENTENCES: dict[str, tuple[str, str]] = {
    "Priority": ("Slurm starts other jobs of this partition first.", ""),
    "Resources": ("It is next in Slurm, and its nodes are not free yet.", ""),
    "WaitingForScheduling": ("Slurm has not looked at it yet.", ""),
    "BeginTime": ("Slurm starts it at a set time.", "Slurm sets one, too, after a job was requeued: wait."),
    "Cleaning": ("Slurm cleans up after its previous run.", ""),
    "Dependency": ("It waits for another Slurm job.", "Look for --dependency in the pool's sbatch_args."),
    "DependencyNeverSatisfied": (
        "It waits for a Slurm job that has ended in another way.",
        "Remove --dependency from the pool's sbatch_args, and cancel the job.",
    ),
    "JobArrayTaskLimit": ("Its array may not run more elements at once.", ""),
    "JobHeldAdmin": ("An administrator of the cluster holds it.", f"{_ADMIN} to release it."),
    "JobHeldUser": ("It is held in Slurm.", "Release it with `scontrol release`, or cancel it."),
    "JobHoldMaxRequeue": (
        "Slurm holds it after it was requeued too often.",
        "Cancel it, and look at its log.",
    ),
    "ReqNodeNotAvail": (
        "Nodes that it needs are down, drained or reserved.",
        f"{_ADMIN} when they return.",
    ),
    "NodesDown": (
        "The nodes that it needs are down, drained, or reserved for jobs in partitions of higher priority.",
        f"{_ADMIN} when they return.",
    ),
    "NodeDown": ("A node that it needs is down.", f"{_ADMIN} when it returns."),
    "FrontEndDown": ("The cluster has no front end node for it.", f"{_ADMIN}."),
    "PartitionDown": ("Its partition is down.", f"{_ADMIN}, or choose another partition for the pool."),
    "PartitionInactive": (
        "Its partition does not start jobs now.",
        f"{_ADMIN}, or choose another partition for the pool.",
    ),
    "PartitionNodeLimit": (
        "It asks for more nodes than its partition allows, or some of them are down.",
        "Use fewer slots, or choose another partition for the pool.",
    ),
    "PartitionTimeLimit": (
        "Its time limit is longer than its partition allows.",
        "Set resources.max_time to less, or choose another partition for the pool.",
    ),
    "BadConstraints": ("No node fits what it asks for.", "Look at sbatch_args and at the pool's GPU type."),
    "Reservation": ("Its reservation has not begun.", "Look for --reservation in the pool's sbatch_args."),
    "ReservationDeleted": (
        "Its reservation was deleted.",
        "Remove --reservation from the pool's sbatch_args, and cancel the job.",
    ),
    "Licenses": ("Licenses that it needs are in use.", ""),
    "BurstBufferResources": ("The burst buffer has no space for it now.", ""),
    "BurstBufferStageIn": ("Its files are being copied to the burst buffer.", ""),
    "Prolog": ("The cluster prepares it.", ""),
    "PowerNotAvail": ("The cluster may not use more power now.", ""),
    "InvalidAccount": ("Its Slurm account does not exist.", "Correct the pool's account."),
    "InvalidQOS": ("Its QOS does not exist.", "Correct the pool's qos."),
    "AccountNotAllowed": (
        "Its Slurm account may not use this partition.",
        "Choose another account or partition for the pool.",
    ),
    "QOSNotAllowed": ("Its QOS may not use this partition.", "Choose another qos or partition for the pool."),
    "QOSUsageThreshold": ("Its QOS has used too much.", f"{_ADMIN}."),
    "QOSJobLimit": ("Its QOS runs as many jobs as it may.", ""),
    "AssociationJobLimit": ("Its Slurm account runs as many jobs as it may.", ""),
    "MaxGRESPerAccount": ("Its Slurm account holds as many GPUs as it may.", ""),
    "MaxMemPerLimit": ("It asks for more memory than the cluster allows.", "Look at sbatch_args."),
    "JobLaunchFailure": ("Slurm could not start it.", f"{_ADMIN} to read the log of slurmd."),
    "SystemFailure": ("Slurm had a fault.", f"{_ADMIN}."),
    "NonZeroExitCode": ("It ended with an exit code other than 0.", ""),
    "TimeLimit": ("Its time limit was reached.", ""),
    "InactiveLimit": ("It did nothing for too long.", ""),
    "FedJobLock": ("Another cluster of the federation may start it.", ""),
    "None": ("Slurm has not looked at it yet.", ""),
}

_WHOSE = {"Assoc": "Its Slurm account", "Association": "Its Slurm account", "QOS": "Its QOS"}
_WHAT = {
    "GRES": "GPUs", "Gres": "GPUs", "GPU": "GPUs", "Cpu": "CPUs", "CPU": "CPUs", "Node": "nodes", "Mem": "memory",
    "Memory": "memory", "Job": "jobs", "Jobs": "jobs", "Submit": "submitted jobs", "Wall": "time",
    "Billing": "billing units", "License": "licenses", "Energy": "energy",
}  # fmt: skip
#: AssocGrpGRES, AssocGrpCpuLimit, QOSMaxJobsPerUserLimit, QOSGrpNodeLimit, AssocMaxWallDurationPerJobLimit …
_FAMILY = re.compile(
    r"(?P<whose>Assoc|Association|QOS)(?P<of>Grp|Max|Min)(?P<what>[A-Z][A-Za-z]*?)(?:Limit)?"
)
_DOWN = "Nodes required for job are DOWN"


def why(text: str) -> Why:
    """Of what squeue prints as the reason, such as `ReqNodeNotAvail, UnavailableNodes:g[1-3]` or `(Priority)`."""
    text = text.strip().strip("()").strip()
    if text.startswith(_DOWN):
        return Why("NodesDown", *SENTENCES["NodesDown"])
    code, _, more = text.partition(",")
    code = code.strip() or "None"
    if code.startswith("Reserved for maintenance"):
        code = "ReqNodeNotAvail"
    known = SENTENCES.get(code) or _of_family(code)
    if known is None:
        return Why(
            code, f"Slurm says {text}.", "https://slurm.schedmd.com/job_reason_codes.html explains it."
        )
    sentence, to_do = known
    _, colon, unavailable = more.partition("UnavailableNodes:")
    if colon and unavailable.strip():
        sentence = f"{sentence.rstrip('.')}: {unavailable.strip()}."
    return Why(code, sentence, to_do)


def _of_family(code: str) -> tuple[str, str] | None:
    """The limits of accounts and QOS, of which there are some hundred names."""
    found = _FAMILY.fullmatch(code)
    if found is None:
        return None
    whose, rest = _WHOSE[found["whose"]], found["what"]
    word = next((word for word in sorted(_WHAT, key=len, reverse=True) if rest.startswith(word)), "")
    what = _WHAT.get(word, "resources")
    after = rest[len(word) :]
    per_job = "PerJob" in after or "PerNode" in after or found["of"] == "Min"
    if found["of"] == "Min":
        return f"{whose} wants jobs to ask for more {what}.", "Use more slots, or another qos for the pool."
    if per_job:
        return (
            f"{whose} limits the {what} of one job, and it asks for more.",
            "Use fewer slots, or less time.",
        )
    if "Minutes" in after:
        return f"{whose} has used up its time on {what}.", f"{_ADMIN}."
    who = "you" if "PerUser" in after or after.endswith("PU") else "it"
    if who == "you":
        return f"{whose} does not let one user have more {what} at once.", ""
    return f"{whose} has as many {what} in use as it may.", ""
