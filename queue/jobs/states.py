"""The states of jobs, tasks, allocations and members, the legal steps between them, and the reasons.

This module is the table; `jobs.transitions` is the only writer (law 2).
"""

from __future__ import annotations

from django.db import models


class JobState(models.TextChoices):
    ACTIVE = "ACTIVE"
    PAUSED = "PAUSED"
    ENDED = "ENDED"


class TaskState(models.TextChoices):
    WAITING = "WAITING"  # wants slots
    RUNNING = "RUNNING"  # has an open allocation
    PAUSED = "PAUSED"  # wants none for now
    ENDED = "ENDED"


class AllocationState(models.TextChoices):
    ASSIGNED = "ASSIGNED"  # slots are held, launching
    STARTING = "STARTING"  # every member is launched
    RUNNING = "RUNNING"  # an entrypoint has started
    TERMINATING = "TERMINATING"  # a stop was asked for, or a member has ended
    TERMINATED = "TERMINATED"


class MemberState(models.TextChoices):
    ASSIGNED = "ASSIGNED"
    LAUNCHED = "LAUNCHED"  # the run folder exists on the host
    RUNNING = "RUNNING"
    ENDED = "ENDED"  # the host said so, or was declared lost


class StopKind(models.TextChoices):
    NONE = ""
    PREEMPT = "PREEMPT"  # save and leave; becomes STOP after the preemption timeout
    STOP = "STOP"  # SIGTERM, grace, SIGKILL, sweep


class Reason(models.TextChoices):
    """Why a change happened. One code, one sentence; what may be retried is said by `counts_as_restart`."""

    SUBMITTED = "submitted", "submitted"
    SCHEDULED = "scheduled", "slots were found"
    BACKFILLED = "backfilled", "slots were found ahead of its turn (backfilled)"
    LAUNCHED = "launched", "launched on the host"
    STARTED = "started", "the entrypoint started"
    PAUSED_BY_USER = "paused_by_user", "paused"
    ACTIVATED_BY_USER = "activated_by_user", "activated"
    CANCELED_BY_USER = "canceled_by_user", "canceled"
    KILLED_BY_USER = "killed_by_user", "killed"
    PREEMPTED = "preempted", "stopped for a job ahead of it"
    POOL_CHANGED = "pool_changed", "moved to another resource pool"
    SEARCHER_STOPPED = "searcher_stopped", "stopped by the searcher"
    SEARCHER_PARKED = "searcher_parked", "parked at a rung of its search"
    SEARCHER_PROMOTED = "searcher_promoted", "promoted by the searcher"
    COMPLETED = "completed", "ended with exit code 0"
    RANK_FAILED = "rank_failed", "a rank failed"
    COMMAND_FAILED = "command_failed", "the command failed"
    COMMAND_NOT_FOUND = "command_not_found", "the entrypoint's command was not found"
    INVALID_HP = "invalid_hp", "the training code rejected its hyperparameters"
    LAUNCH_FAILED = "launch_failed", "could not be started"
    PORT_IN_USE = "port_in_use", "a leased port was already in use"
    STORAGE_FAILED = "storage_failed", "its checkpoint storage cannot be used"
    PEER_ENDED = "peer_ended", "another member of the gang ended"
    HOST_LOST = "host_lost", "its host was declared lost"
    HOST_RESTARTED = "host_restarted", "its host was restarted"
    HOST_DISABLED = "host_disabled", "its host was disabled"
    HOST_FAULT = "host_fault", "a fault of its host or GPU"
    HANG = "hang", "its ranks had stopped making progress"
    HANG_OF_HOST = "hang_of_host", "its host's kernel or a mount there held its ranks"
    RUN_VANISHED = "run_vanished", "the host has neither its process nor its exit record"
    STOP_TIMED_OUT = "stop_timed_out", "stopped, cleanup failed"
    CLEANING = "cleaning", "its slots are being cleaned up"
    CLEANED = "cleaned", "none of its processes is left on its host"
    RESTARTS_EXHAUSTED = "restarts_exhausted", "failed more often than max_restarts allows"
    UPLOAD_GIVEN_UP = "upload_given_up", "its checkpoint was never uploaded in full"
    WAITS_FOR_UPLOAD = "waits_for_upload", "waits for its checkpoint to be uploaded"
    TIME_NEARLY_UP = "time_nearly_up", "its time limit is near"
    TIME_LIMIT = "time_limit", "its time limit was reached"
    STARTED_BY_USER = "started_by_user", "started outside the queue"
    REPLACED = "replaced", "replaced by a new attempt"
    METRIC_MISSING = "metric_missing", "a validation lacks the metric that its search uses"
    REPORTED_FAILURE = "reported_failure", "its program reported an error"
    IDLE_TIMEOUT = "idle_timeout", "its idle timeout was reached"
    NO_SIGN_OF_LIFE = "no_sign_of_life", "it stopped reporting"
    HEARD_AGAIN = "heard_again", "it reported again"
    LOG_POLICY = "log_policy", "a line of its log matched one of its log policies"
    SAME_FAILURE = "same_failure", "failed again and again in the same way"
    RETRIES_CANCELED = "retries_canceled", "a log policy cancels its retries"
    MOVED = "moved", "moved in the queue"
    PRIORITY_SET = "priority_set", "priority changed"
    WEIGHT_SET = "weight_set", "weight changed"
    MAX_SLOTS_SET = "max_slots_set", "slot limit changed"
    DEADLINE_SET = "deadline_set", "deadline changed"
    DEADLINE_AHEAD = "deadline_ahead", "moved ahead for its deadline"
    DEADLINE_LATE = "deadline_late", "its deadline cannot be met"
    WINDOW = "window", "stopped for maintenance or a reservation"


#: The code of such an attempt never ran, so it counts no restart; LAUNCH_ATTEMPTS of them in a row are the end.
NEVER_STARTED = frozenset({Reason.LAUNCH_FAILED, Reason.PORT_IN_USE, Reason.STORAGE_FAILED})
#: The attempt has lost its host, or had to leave it. If that is proved, its task recovers and may use spares.
HOST_TAKEN = frozenset(
    {Reason.HOST_LOST, Reason.HOST_RESTARTED, Reason.HOST_DISABLED, Reason.HOST_FAULT, Reason.HANG_OF_HOST}
)
#: Ends that are the platform's doing, not the training code's: tried again without counting a restart.
NOT_THE_CODES_FAULT = (
    NEVER_STARTED
    | HOST_TAKEN
    | {
        Reason.PREEMPTED, Reason.PAUSED_BY_USER, Reason.SEARCHER_PARKED, Reason.POOL_CHANGED, Reason.MAX_SLOTS_SET,
        Reason.WINDOW,
    }
)  # fmt: skip

TASK_STEPS: dict[TaskState, frozenset[TaskState]] = {
    TaskState.WAITING: frozenset({TaskState.RUNNING, TaskState.PAUSED, TaskState.ENDED}),
    TaskState.RUNNING: frozenset({TaskState.WAITING, TaskState.PAUSED, TaskState.ENDED}),
    TaskState.PAUSED: frozenset({TaskState.WAITING, TaskState.ENDED}),
    TaskState.ENDED: frozenset({TaskState.WAITING}),  # `experiment continue` revives a task
}

JOB_STEPS: dict[JobState, frozenset[JobState]] = {
    JobState.ACTIVE: frozenset({JobState.PAUSED, JobState.ENDED}),
    JobState.PAUSED: frozenset({JobState.ACTIVE, JobState.ENDED}),
    JobState.ENDED: frozenset({JobState.ACTIVE, JobState.PAUSED}),
}

_A = AllocationState
ALLOCATION_STEPS: dict[AllocationState, frozenset[AllocationState]] = {
    _A.ASSIGNED: frozenset({_A.STARTING, _A.RUNNING, _A.TERMINATING, _A.TERMINATED}),
    _A.STARTING: frozenset({_A.RUNNING, _A.TERMINATING, _A.TERMINATED}),
    _A.RUNNING: frozenset({_A.TERMINATING, _A.TERMINATED}),
    _A.TERMINATING: frozenset({_A.TERMINATED}),
    _A.TERMINATED: frozenset(),
}

_M = MemberState
MEMBER_STEPS: dict[MemberState, frozenset[MemberState]] = {
    _M.ASSIGNED: frozenset({_M.LAUNCHED, _M.RUNNING, _M.ENDED}),
    _M.LAUNCHED: frozenset({_M.RUNNING, _M.ENDED}),
    _M.RUNNING: frozenset({_M.ENDED}),
    _M.ENDED: frozenset(),
}

#: What a detached run may do besides (`jobs.detached`): its user starts it, whatever it did before, without waiting
#: for slots; and one that was given up in silence goes on when it is heard again.
DETACHED_TASK_STEPS = {
    TaskState.PAUSED: frozenset({TaskState.RUNNING}),
    TaskState.ENDED: frozenset({TaskState.RUNNING}),
}
DETACHED_ALLOCATION_STEPS = {_A.TERMINATED: frozenset({_A.RUNNING})}
DETACHED_MEMBER_STEPS = {_M.ENDED: frozenset({_M.RUNNING})}
