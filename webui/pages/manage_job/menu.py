"""What can be done with one row of the queue: the same entries in the three-dot menu, by right click and as a page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from accounts.models import User
from experiments.actions import legal
from jobs.models import Job
from jobs.states import JobState
from shown.queue.edit_rights import why_no_action, why_no_edit
from shown.queue.job_facts import Facts, facts_of
from webui.pages.frame import page, user_of
from webui.pages.manage_job.answers import job_or_404, part, queue_of


@dataclass(frozen=True)
class Entry:
    """A link (`href`), or an edit (`do`). `reason`: why it cannot be chosen; `dialog`: it opens over the queue."""

    label: str
    href: str = ""
    do: str = ""
    key: str = ""
    reason: str = ""
    dialog: bool = False
    danger: bool = False


@page
def menu(request: HttpRequest, job_id: UUID) -> HttpResponse:
    facts = facts_of(job_or_404(job_id))
    entries = list(entries_of(facts, user_of(request)))
    context = {"job": facts.job, "entries": entries}
    return part(
        request, "manage_menu", context, title=f"Actions for {facts.job.name}", home=queue_of(facts.job)
    )


@page
def logs(request: HttpRequest, job_id: UUID) -> HttpResponse:
    """To the log of the job, for the key."""
    facts = facts_of(job_or_404(job_id))
    where = _logs(facts)
    if not where:
        messages.info(request, f"{facts.job.name} has not run yet, so it has no log.")
    return redirect(where or "/jobs")


def entries_of(facts: Facts, user: User) -> Iterator[Entry]:
    """In Determined's order (features.md 2.3), ours behind what they belong to."""
    job = facts.job
    no_edit = why_no_edit(job, user)
    yield Entry("Manage Job…", f"/jobs/manage/{job.pk}", key="m", dialog=True)
    if "position" in job.pool.policy.knobs and facts.ahead is not None:
        if facts.ahead > 0:
            yield Entry("Move to Top", do="top", key="t", reason=no_edit)
            yield Entry("Move Up", do="up", key="Alt+↑", reason=no_edit)
        if facts.ahead < facts.standing - 1:
            yield Entry("Move Down", do="down", key="Alt+↓", reason=no_edit)
    if logs := _logs(facts):
        yield Entry("View Logs", logs, key="l")
    if job.state == JobState.ACTIVE and facts.held < facts.needed:
        yield Entry("Why It Waits", f"/jobs/job/{job.pk}", key="w")
    yield from _actions(facts, user)


def _actions(facts: Facts, user: User) -> Iterator[Entry]:
    experiment = facts.experiment
    reason = why_no_action(facts.job, experiment, user)
    if experiment is None:
        if facts.job.state != JobState.ENDED:
            yield Entry("Kill…", do="kill", reason=reason, danger=True)
        return
    trials = experiment.trials.count()
    scope = f" experiment ({trials} trials)" if trials > 1 else ""
    for action in legal(experiment):
        if action.on_runs:
            key = "p" if action.name in {"pause", "activate"} else ""
            label = action.label + scope + ("…" if action.asks else "")
            yield Entry(label, do=action.name, key=key, reason=reason, danger=action.is_danger)


def _logs(facts: Facts) -> str:
    """Where its log is read: a command's own, or that of the newest trial that has run."""
    if facts.job.kind != Job.Kind.EXPERIMENT:
        return f"/commands/{facts.job.entity_id}/logs"
    trials = facts.experiment.trials.filter(task__run_count__gt=0) if facts.experiment else None
    trial = trials.order_by("-pk").first() if trials is not None else None
    return f"/trials/{trial.pk}/logs" if trial else ""
