"""What is done to the experiments that are ticked in the list: each by itself, with one sentence about all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from django.contrib import messages
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect

from accounts import rights
from accounts.refusals import Code, Refusal
from accounts.rights import Right
from experiments import edits, places, transitions
from experiments.actions import ACTIONS, Action
from experiments.models import Experiment
from experiments.states import EXPERIMENT_END_STATES
from webui.pages.experiments.edit import days_of, labels_of, project_of, what_goes
from webui.pages.frame import actor, back_to, posted, show, user_of
from webui.query import as_ids

MOST = 200
MOST_NAMED = 5


@dataclass(frozen=True)
class Edit:
    """A change that asks for a value on a page of its own first. `done`: as that of an Action."""

    label: str
    done: str


EDITS = {
    "move": Edit("Move", "moved"),
    "label": Edit("Add labels", "labeled"),
    "unlabel": Edit("Remove labels", "changed"),
    "keep-logs": Edit("Keep logs", "changed"),
}

Step = Callable[[Experiment], object]


@posted(Right.EDIT)
def act(request: HttpRequest, action: str) -> HttpResponseBase:
    """`experiment` (repeats): ids. Destructive and worded actions ask first; the answer has `sure`."""
    ids = as_ids(request.POST.getlist("experiment"))
    back = back_to(request, "/experiments")
    if action == "tensorboard":
        return redirect(f"/tasks/+new?type=tensorboard&experiments={','.join(map(str, ids))}")
    chosen = ACTIONS.get(action) or EDITS.get(action)
    if chosen is None:
        raise Http404(f"There is no action {action}.")
    if not ids or len(ids) > MOST:
        messages.error(request, f"Select 1 to {MOST} experiments; {len(ids)} were selected.")
        return redirect(back)
    if (isinstance(chosen, Edit) or chosen.asks) and "sure" not in request.POST:
        return _ask(request, action, ids, back)
    try:
        step = _step(request, action)
    except Refusal as error:
        return _ask(request, action, ids, back, str(error))
    _carry_out(request, chosen, ids, step)
    return redirect(back)


def _step(request: HttpRequest, action: str) -> Step:
    """What is done to each. Raises Refusal."""
    who = actor(request)
    if action == "move":
        project = project_of(request.POST.get("project", ""))
        return lambda each: edits.move(each.pk, project, actor=who)
    if action == "keep-logs":
        days = days_of(request.POST.get("days", ""))
        return lambda each: edits.keep_logs(each.pk, days, actor=who)
    if action in {"label", "unlabel"}:
        labels = labels_of(request.POST.get("labels", ""))
        if not labels:
            raise Refusal("Enter at least one label.")
        return partial(_label, labels=labels, adds=action == "label", who=who)
    return lambda each: ACTIONS[action].run(each.pk, actor=who)


@transaction.atomic
def _label(each: Experiment, *, labels: list[str], adds: bool, who: str) -> None:
    """Add or remove labels, starting from those it has now: others may have changed them since the list was shown."""
    kept = [label for label in transitions.lock(each.pk).labels if adds or label not in labels]
    edits.edit(each.pk, labels=[*kept, *labels] if adds else kept, actor=who)


def _carry_out(request: HttpRequest, chosen: Action | Edit, ids: list[int], step: Step) -> None:
    needs_runs = isinstance(chosen, Action) and chosen.on_runs
    found = Experiment.objects.select_related("owner").in_bulk(ids)
    done, ended, refused = 0, [], []
    for pk in ids:
        each = found.get(pk)
        if each is None:
            refused.append(f"experiment {pk} no longer exists.")
            continue
        try:
            rights.require_owner(user_of(request), each)
            step(each)
            done += 1
        except Refusal as refusal:
            is_theirs = refusal.code is Code.FORBIDDEN
            if needs_runs and each.state in EXPERIMENT_END_STATES and not is_theirs:
                ended.append(pk)
            else:
                refused.append(str(refusal))
    if done:
        messages.success(request, f"{done} experiment{'' if done == 1 else 's'} {chosen.done}.")
    if ended or refused:
        more = f" And {len(refused) - MOST_NAMED} more." if len(refused) > MOST_NAMED else ""
        sentences = " ".join([*_ended(ended), *refused[:MOST_NAMED]])
        messages.error(request, f"{len(ended) + len(refused)} not {chosen.done}: {sentences}{more}")


def _ended(ids: list[int]) -> list[str]:
    """One sentence about all that have: most of what is ticked in a list often has."""
    if not ids:
        return []
    named = ", ".join(map(str, ids[:MOST_NAMED])) + (" …" if len(ids) > MOST_NAMED else "")
    return [f"experiment {named} has ended." if len(ids) == 1 else f"experiments {named} have ended."]


def _ask(request: HttpRequest, action: str, ids: list[int], back: str, problem: str = "") -> HttpResponse:
    rows = Experiment.objects.filter(pk__in=ids).order_by("pk")
    chosen = ACTIONS.get(action) or EDITS[action]
    number = f"{len(rows)} experiment{'' if len(rows) == 1 else 's'}"
    is_edit = isinstance(chosen, Edit)
    context = {
        "action": action,
        "chosen": chosen,
        "title": f"{chosen.label}: {number}" if is_edit else f"{chosen.label} {number}",
        "button": chosen.label if is_edit else f"{chosen.label} {number}",
        "rows": rows,
        "back": back,
        "problem": problem,
        "goes": what_goes(ids) if action == "delete" else None,
        "projects": places.open_projects() if action == "move" else [],
        "labels": sorted({label for row in rows for label in row.labels}) if action == "unlabel" else [],
    }
    status = 400 if problem else 200
    return show(request, "experiments_chosen", context, room="Experiments", status=status)
