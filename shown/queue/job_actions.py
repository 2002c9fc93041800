"""What can be done with jobs of the queue: the entries of a menu, and their actions with what came of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from accounts.models import User
from accounts.refusals import Refusal
from commands import transitions as command_transitions
from experiments.actions import ACTIONS, Action, legal
from experiments.models import Experiment
from jobs.models import Job
from jobs.states import JobState
from shown.queue.edit_rights import why_no_action, why_no_edit
from shown.queue.job_facts import Facts
from shown.tasks import elements_at

#: what can be asked for from the queue: what acts on runs
OF_JOBS = {name: action for name, action in ACTIONS.items() if action.on_runs}


@dataclass(frozen=True)
class MenuEntry:
    """A link (`href`), or an edit (`do`). `reason`: why it cannot be chosen; `dialog`: it opens over the queue.

    `ends`: it ends the job for good; such entries are the last.
    """

    label: str
    href: str = ""
    do: str = ""
    key: str = ""
    reason: str = ""
    dialog: bool = False
    ends: bool = False


def entries_of(facts: Facts, user: User) -> Iterator[MenuEntry]:
    """In Determined's order (features.md 2.3), ours behind what they belong to."""
    job = facts.job
    no_edit = why_no_edit(job, user)
    yield MenuEntry("Manage Job…", f"/jobs/manage/{job.pk}", key="m", dialog=True)
    if "position" in job.pool.policy.knobs and facts.ahead is not None:
        if facts.ahead > 0:
            yield MenuEntry("Move to Top", do="top", key="t", reason=no_edit)
            yield MenuEntry("Move Up", do="up", key="Alt+↑", reason=no_edit)
        if facts.ahead < facts.standing - 1:
            yield MenuEntry("Move Down", do="down", key="Alt+↓", reason=no_edit)
    if logs := logs_at(facts):
        is_array = job.kind == Job.Kind.ARRAY  # each element has its own log
        yield MenuEntry("View Elements" if is_array else "View Logs", logs, key="l")
    if job.state == JobState.ACTIVE and facts.held < facts.needed:
        yield MenuEntry("Why It Waits", f"/jobs/job/{job.pk}", key="w")
    yield from _entries(facts, user)


def _entries(facts: Facts, user: User) -> Iterator[MenuEntry]:
    experiment = facts.experiment
    reason = why_no_action(facts.job, experiment, user)
    if experiment is None:
        if facts.job.state != JobState.ENDED:
            yield MenuEntry("Kill…", do="kill", reason=reason, ends=True)
        return
    trials = experiment.trials.count()
    scope = f" experiment ({trials} trials)" if trials > 1 else ""
    for action in legal(experiment):
        if action.on_runs:
            key = "p" if action.name in {"pause", "activate"} else ""
            label = action.label + scope + ("…" if action.asks else "")
            yield MenuEntry(label, do=action.name, key=key, reason=reason, ends=bool(action.asks))


def logs_at(facts: Facts) -> str:
    """Where its log is read: a command's own, or that of the newest trial that has run."""
    if facts.job.kind != Job.Kind.EXPERIMENT:
        if facts.job.kind == Job.Kind.ARRAY:
            return elements_at(facts.job.pk)
        return f"/commands/{facts.job.entity_id}/logs"
    trials = facts.experiment.trials.filter(task__run_count__gt=0) if facts.experiment else None
    trial = trials.order_by("-pk").first() if trials is not None else None
    return f"/trials/{trial.pk}/logs" if trial else ""


@dataclass
class ActionResult:
    """What came of an action on several jobs."""

    sentences: list[str]
    refused: str = ""


def question(name: str, jobs: Sequence[Job]) -> str:
    """What is asked before a cancel or kill, by the job's name."""
    verb = OF_JOBS[name].label.lower()
    if len(jobs) == 1:
        return f"Are you sure you want to {verb} job {jobs[0].name}?"
    return f"Are you sure you want to {verb} these {len(jobs)} jobs?"


def carry_out(name: str, jobs: Sequence[Job], user: User) -> ActionResult:
    """Do it to each job that allows it; refusals are counted, with the first one's sentence."""
    action = OF_JOBS[name]
    refusals = [sentence for job in jobs if (sentence := _one(action, job, user))]
    made = len(jobs) - len(refusals)
    if len(jobs) == 1:
        return ActionResult([] if refusals else [f"{jobs[0].name}: {action.done}."], *refusals[:1])
    counts = f"{made} {action.done}" + (f", {len(refusals)} refused: {refusals[0]}" if refusals else ".")
    return ActionResult([counts] if made else [], "" if made else counts)


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
    if job.kind == Job.Kind.ARRAY:
        command_transitions.kill_array(job.pk, actor=f"user:{user.username}")
    else:
        command_transitions.kill(job.commands.get().pk, actor=f"user:{user.username}")
    return ""
