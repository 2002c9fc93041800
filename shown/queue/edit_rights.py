"""Who may do what with a job from the pages, as sentences: a control that is forbidden says why."""

from __future__ import annotations

from accounts import rights
from accounts.models import User
from accounts.refusals import Refusal
from experiments.models import Experiment
from jobs.models import Job
from jobs.queue_rules import refuse_strict, refuse_viewer, short
from jobs.states import JobState


def why_no_edit(job: Job, user: User) -> str:
    """Why this user may not change the job's place, priority, weight or pool; empty when he may."""
    actor = f"user:{user.username}"
    try:
        refuse_viewer(actor, user.role)
        refuse_strict(job, actor, user.role)
    except Refusal as refusal:
        return str(refusal)
    if job.state == JobState.ENDED:
        return f"Job {short(job.pk)} has ended; only jobs in the queue can be changed."
    return ""


def why_no_action(job: Job, experiment: Experiment | None, user: User) -> str:
    """Why this user may not pause, activate, cancel or kill it; empty when he may."""
    try:
        rights.require_owner(user, experiment or job, job.name)
    except Refusal as refusal:
        return str(refusal)
    return ""


def why_no_pool(job: Job) -> str:
    """Why the job's resource pool cannot be changed; empty when it can."""
    if job.kind == Job.Kind.EXPERIMENT:
        return ""
    return (
        f"The resource pool of a {job.get_kind_display().lower()} cannot be changed: "
        "cancel it and submit it again in the other pool."
    )


def why_no_bulk(user: User) -> str:
    """Why this user may not change any job at all; empty when he may change some."""
    return "" if user.may_edit else str(rights.viewer(user.username))
