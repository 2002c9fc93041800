"""What the end of a Slurm job means here: one table, of which a pool may override entries. Pure.

The reasons are codes of `jobs.states.Reason`, which also says which of them count as a restart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

#: states in which squeue and sacct show a job that has not ended
LIVE = frozenset(
    {
        "PENDING", "RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING", "STAGE_OUT",
        "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT",
    }
)  # fmt: skip


@dataclass(frozen=True)
class End:
    """`reason`: code of `jobs.states.Reason`; `sentence`: for the log and the timeline."""

    reason: str
    sentence: str


#: of a job that waits although it has had nodes, too
REQUEUED = "REQUEUED"
#: state of Slurm -> how the attempt ended, where its run folder has no exit.json that says more
ENDS: dict[str, End] = {
    "COMPLETED": End("completed", "The Slurm job ended with exit code 0."),
    "FAILED": End("rank_failed", "The Slurm job failed."),
    "OUT_OF_MEMORY": End("rank_failed", "The Slurm job used more memory than it had asked for."),
    "TIMEOUT": End("time_limit", "The Slurm job reached its time limit."),
    "DEADLINE": End("time_limit", "The Slurm job reached its deadline in Slurm."),
    "PREEMPTED": End("preempted", "Slurm preempted the job for another one."),
    "NODE_FAIL": End("host_lost", "A node of the Slurm job failed."),
    "BOOT_FAIL": End("launch_failed", "A node of the Slurm job did not boot."),
    "CANCELLED": End("killed_by_user", "The job was canceled in Slurm."),
    "REVOKED": End("preempted", "Slurm withdrew the job in favor of another cluster of its federation."),
    REQUEUED: End("preempted", "The job was requeued in Slurm."),
}
#: what a pool may say instead; of these, `jobs.states.NOT_THE_CODES_FAULT` start again without a restart
ALLOWED = (
    "rank_failed",
    "time_limit",
    "preempted",
    "host_lost",
    "host_fault",
    "launch_failed",
    "killed_by_user",
)


def has_ended(state: str) -> bool:
    return state not in LIVE


def says_how(state: str) -> bool:
    """Whether an attempt may be concluded from this state of its job; one that was requeued has ended, too."""
    return state in ENDS or (bool(state) and has_ended(state))


def end_of(state: str, overridden: Mapping[str, str] | None = None) -> End:
    """How an attempt ended whose Slurm job is in this state. sacct says who canceled it: CANCELLED by 1000."""
    word, _, uid = state.partition(" by ")
    known = ENDS.get(word, End("rank_failed", f"The Slurm job ended as {state}."))
    sentence = f"{known.sentence.rstrip('.')} by the account with uid {uid}." if uid else known.sentence
    return End((overridden or {}).get(word, known.reason), sentence)
