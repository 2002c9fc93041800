"""Pausing, activating, canceling and killing jobs from the queue: one by one, and what came of it in one sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from accounts.models import User
from accounts.refusals import Refusal
from commands import transitions as command_transitions
from experiments.actions import ACTIONS, Action
from experiments.models import Experiment
from jobs.models import Job
from shown.queue.edit_rights import why_no_action

#: what can be asked for from the queue: what acts on runs
OF_JOBS = {name: action for name, action in ACTIONS.items() if action.on_runs}


@dataclass
class Result:
    """What came of an action on several jobs."""

    sentences: list[str]
    refused: str = ""


def question(name: str, jobs: Sequence[Job]) -> str:
    """What is asked before a cancel or kill, by the job's name."""
    verb = OF_JOBS[name].label.lower()
    if len(jobs) == 1:
        return f"Are you sure you want to {verb} job {jobs[0].name}?"
    return f"Are you sure you want to {verb} these {len(jobs)} jobs?"


def carry_out(name: str, jobs: Sequence[Job], user: User) -> Result:
    """Do it to each job that allows it; refusals are counted, with the first one's sentence."""
    action = OF_JOBS[name]
    refusals = [sentence for job in jobs if (sentence := _one(action, job, user))]
    made = len(jobs) - len(refusals)
    if len(jobs) == 1:
        return Result([] if refusals else [f"{jobs[0].name}: {action.done}."], *refusals[:1])
    counts = f"{made} {action.done}" + (f", {len(refusals)} refused: {refusals[0]}" if refusals else ".")
    return Result([counts] if made else [], "" if made else counts)


def _one(action: Action, job: Job, user: User) -> str:
    """Do it to one job; the sentence of a refusal, or nothing."""
    experiment = Experiment.objects.select_related("owner").filter(job=job).first()
    if reason := why_no_action(job, experiment, user):
        return reason
    if experiment is None:
        return _kill_command(action, job, user)
    try:
        action.run(experiment.pk, actor=f"user:{user.username}")
    except Refusal as refusal:
        return str(refusal)
    return ""


def _kill_command(action: Action, job: Job, user: User) -> str:
    if action.name != "kill":
        return f"{job.name} is a command: it cannot be {action.done}, only killed."
    command_transitions.kill(job.command.pk, actor=f"user:{user.username}")
    return ""
