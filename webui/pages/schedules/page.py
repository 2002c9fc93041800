"""Schedules: all of them, one with its next and past times, and the form of a new one."""

from __future__ import annotations

from django import forms
from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from accounts import rights
from accounts.refusals import Refusal
from accounts.rights import Right
from dispatch import schedules
from jobs.labels import label_of
from shown import schedules as shown
from submissions.models import Schedule
from webui.forms import Chosen, Form
from webui.pages.frame import actor, form, or_404, page, posted, refusals_told, show, user_of
from webui.query import as_whole

ROOM = "Schedules"
PER_PAGE = 50
_OVERLAPS = [("skip", "Skip this time"), ("allow", "Submit another one")]


class ScheduleForm(Form):
    name = forms.CharField(label="Name", max_length=64, help_text="Letters, digits, '.', '_' and '-'.")
    cron = forms.CharField(
        label="Cron",
        help_text="Minute, hour, day of the month, month, day of the week: 0 3 * * 1-5 is 03:00 from Monday to Friday.",
    )
    timezone = forms.CharField(label="Time zone", initial="UTC", help_text="Such as UTC or Europe/Berlin.")
    overlap = Chosen("If the last one has not ended", _OVERLAPS)


def _find(name: str) -> Schedule:
    return or_404(shown.everyone().filter(name=name).first(), f"There is no schedule {name}.")


@page
def listing(request: HttpRequest) -> HttpResponse:
    current = Paginator(shown.everyone(), PER_PAGE).get_page(request.GET.get("page"))
    rows = list(current.object_list)
    last = shown.last_of(rows)
    listed = [{"schedule": each, "next": shown.next_of(each), "last": last.get(each.pk)} for each in rows]
    return show(request, "schedules", {"rows": listed, "page": current}, room=ROOM)


@page
def detail(request: HttpRequest, name: str) -> HttpResponse:
    """One schedule: when it is due next, and what became of the times before."""
    schedule, user = _find(name), user_of(request)
    context = {
        "schedule": schedule,
        "coming": shown.coming(schedule),
        "runs": shown.past(schedule),
        "may_act": user.may_edit and rights.may_change(user, schedule),
    }
    return show(request, "schedule", context, room=ROOM)


@form(Right.EDIT, shown_to=Right.EDIT)
def new(request: HttpRequest) -> HttpResponse:
    """The form of a schedule of `?experiment=12` or `?command=3f2a01bc`; POST creates it."""
    asked = {**request.GET.dict(), **request.POST.dict()}
    source = schedules.source_of(
        experiment_id=as_whole(str(asked.get("experiment", ""))), command_id=str(asked.get("command", ""))
    )
    user, label = user_of(request), label_of(source.job.kind, source.job.entity_id)
    rights.require_owner(user, source, label)
    filled = ScheduleForm.of(request, {"timezone": "UTC", "overlap": "skip"})
    if filled.is_valid():
        given = filled.cleaned_data
        try:
            made = schedules.create(
                given["name"], source, owner=user, expression=given["cron"], zone=given["timezone"],
                overlap=given["overlap"], actor=actor(request),
            )  # fmt: skip
        except Refusal as refusal:
            filled.add_error(refusal.field if refusal.field in filled.fields else None, str(refusal))
        else:
            messages.success(request, f"Schedule {made.name} created.")
            return redirect(f"/schedules/{made.name}")
    context = {"form": filled, "label": label}
    return show(request, "schedule_form", context, room=ROOM, status=400 if filled.errors else 200)


@posted(Right.EDIT)
def act(request: HttpRequest, name: str, action: str) -> HttpResponse:
    """Pause, resume, run now or delete."""
    schedule, to = _find(name), f"/schedules/{name}"
    with refusals_told(request):
        rights.require_owner(user_of(request), schedule, f"schedule {name}")
        if action == "run":
            job = schedules.run_now(schedule, actor=actor(request))
            messages.success(request, f"Submitted {label_of(job.kind, job.entity_id)}.")
        elif action == "delete":
            schedules.delete(schedule, actor=actor(request))
            messages.success(request, f"Schedule {name} deleted.")
            to = "/schedules"
        elif action in {"pause", "resume"}:
            schedules.set_paused(schedule, action == "pause", actor=actor(request))
        else:
            or_404(None, f"A schedule has no action {action}.")
    return redirect(to)
