"""Pausing, activating, cancelling and killing jobs from the queue: one by one, and what came of it in one sentence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from accounts.models import User
from accounts.refusals import Refusal
from commands import transitions as command_transitions
from experiments import transitions
from experiments.models import Experiment
from experiments.states import GOING_ON, ExperimentState
from jobs.models import Job
from webui.pages.manage_job.access import why_no_action


@dataclass(frozen=True)
class Action:
    """`past`: what was done, for the summary. `asks`: what is asked first, empty when it can be taken back."""

    label: str
    past: str
    run: Callable[..., Experiment]
    states: frozenset[str]
    asks: str = ""
    danger: bool = False


ACTIONS = {
    "pause": Action("Pause", "paused", transitions.pause, frozenset({ExperimentState.ACTIVE})),
    "activate": Action("Activate", "activated", transitions.activate, frozenset({ExperimentState.PAUSED})),
    "cancel": Action(
        "Cancel",
        "cancelled",
        transitions.cancel,
        frozenset(GOING_ON),
        "A run saves a checkpoint where its code does so, and ends. It cannot be activated again.",
    ),
    "kill": Action(
        "Kill",
        "killed",
        transitions.kill,
        frozenset(GOING_ON) | {ExperimentState.STOPPING_CANCELED},
        "Runs are stopped at once: what was not saved is lost. Checkpoints stay.",
        danger=True,
    ),
}


@dataclass
class Result:
    """What came of an action on several jobs."""

    sentences: list[str]
    refused: str = ""


def question(name: str, jobs: Sequence[Job]) -> str:
    """What is asked before a cancel or kill, by the job's name."""
    verb = ACTIONS[name].label.lower()
    if len(jobs) == 1:
        return f"Are you sure you want to {verb} job {jobs[0].name}?"
    return f"Are you sure you want to {verb} these {len(jobs)} jobs?"


def carry_out(name: str, jobs: Sequence[Job], user: User) -> Result:
    """Do it to each job that allows it; refusals are counted, with the first one's sentence."""
    action = ACTIONS[name]
    refusals = [sentence for job in jobs if (sentence := _one(action, job, user))]
    made = len(jobs) - len(refusals)
    if len(jobs) == 1:
        return Result([] if refusals else [f"{jobs[0].name}: {action.past}."], *refusals[:1])
    counts = f"{made} {action.past}" + (f", {len(refusals)} refused: {refusals[0]}" if refusals else ".")
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
    if action is not ACTIONS["kill"]:
        return f"{job.name} is a command: it cannot be {action.past}, only killed."
    command_transitions.kill(job.command.pk, actor=f"user:{user.username}")
    return ""
