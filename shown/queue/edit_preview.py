"""What an edit of the queue will do, as the pages say it before it is made: who is stopped, who moves, what starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property

from django.db.models import Q

from accounts.models import User
from dispatch.passes import preview
from hosts.models import ResourcePool
from jobs.models import Job, QueueEdit
from jobs.queue_edits import Update
from jobs.queue_order import listed
from scheduling.reasons import listed as several
from scheduling.reasons import slots
from shown.queue import times
from shown.queue.job_facts import AROUND, forecast_of, told
from trainmaster.quantities import duration

#: edited jobs whose surroundings are told, when many are edited at once
MOST_STARTS = 5
#: who is stopped after this part of the work is warned of
NEARLY_DONE = 0.9


@dataclass(frozen=True)
class Stop:
    """A job that is stopped, and in words what that costs it; `checkpoint`: the age of its last, empty without one."""

    name: str
    of: str
    owner: str
    slots: int
    progress: float | None
    checkpoint: str
    redone: str
    resumes: str
    why_then: str
    loses: bool

    @property
    def is_nearly_done(self) -> bool:
        return self.progress is not None and self.progress > NEARLY_DONE


@dataclass(frozen=True)
class NewPlace:
    """A row of the new order."""

    name: str
    place: int
    was: int | None
    edited: bool
    stops: bool
    start: str


@dataclass(frozen=True)
class EditPreview:
    """A preview of an edit of some jobs, seen at `now` by `user`; `where`: the pools in which they stand afterwards."""

    edited: Sequence[str]
    where: Q
    found: preview.Preview
    user: User
    now: datetime

    @property
    def seen(self) -> str:
        """What a form sends back to prove that its reader has seen who is stopped."""
        return ",".join(sorted(stop.job_id for stop in self.found.stops))

    def was_seen(self, seen: str) -> bool:
        """Nobody is stopped who was not in the preview that the reader saw."""
        return set(filter(None, self.seen.split(","))) <= set(seen.split(","))

    @cached_property
    def stops(self) -> list[Stop]:
        return [_stop(stop, self.now) for stop in self.found.stops]

    @property
    def stopped(self) -> str:
        """Who is stopped, in one sentence."""
        if len(self.stops) == 1:
            one = self.stops[0]
            then = f"; then it waits: {one.why_then}" if one.why_then else ""
            return f"Stops {one.name} {one.of}: {_cost(self.found.stops[0], self.now)}{then}"
        losing = sum(stop.loses for stop in self.stops)
        cost = (
            f"{losing} of them {'has' if losing == 1 else 'have'} never saved"
            if losing
            else "they save first"
        )
        return f"Stops {len(self.stops)} jobs ({slots(sum(stop.slots for stop in self.stops))}): {cost}"

    @property
    def nearly_done(self) -> str:
        """The warning of jobs that are stopped shortly before their end."""
        found = [
            f"{stop.name} ({100 * (stop.progress or 0):.0f} %)" for stop in self.stops if stop.is_nearly_done
        ]
        return f"Nearly done: {several(found)}" if found else ""

    @cached_property
    def changes(self) -> list[str]:
        """What the edit itself says, without the job's name where there is but one."""
        if len(self.edited) > 1:
            return told([change.by_name for change in self.found.changes])
        return told([f"{change.words[:1].upper()}{change.words[1:]}." for change in self.found.changes])

    @property
    def button(self) -> str:
        """`OK`, or what it costs: `OK: stop 2 jobs`."""
        count = len(self.found.stops)
        return f"OK: stop {count} job{'' if count == 1 else 's'}" if count else "OK"

    @cached_property
    def starts(self) -> str:
        """When the edited jobs start, in one sentence; the table has each of several."""
        found = self.found.starts
        if len(found) == 1:
            deadline = f" Forecast: {found[0].deadline}." if found[0].deadline else ""
            return f"This job {_when(found[0], self._instead(found[0]))}.{deadline}"
        soon = sum(start.now for start in found)
        return f"{soon} of {len(found)} waiting jobs start immediately." if found else ""

    def _instead(self, start: preview.Outlook) -> str:
        """What the last pass foresaw for it, without the edit; and whether that differs by more than the error."""
        was = forecast_of(start.job_id)
        if was is None or start.by or not (start.now or start.forecast):
            return ""
        then = f" instead of {_range(was)}"
        if start.forecast and start.forecast[1] > was[0] and was[1] > start.forecast[0]:
            return f"{then} (the ranges overlap, so the gain is within the error of the forecast)"
        return then

    @cached_property
    def places(self) -> list[NewPlace]:
        """The new order around the edited jobs: who changes place there, and who stays."""
        at = [entry.place for entry in self.found.order if entry.job_id in self.edited][:MOST_STARTS]
        wanted = {place for one in at for place in range(max(0, one - AROUND), one + AROUND + 1)}
        moved = {entry.place: entry for entry in self.found.order if entry.place in wanted}
        stay = self._staying(wanted - set(moved))
        return [self._place(entry) for _, entry in sorted({**stay, **moved}.items())]

    def _staying(self, places: set[int]) -> dict[int, preview.PlannedPlace]:
        """Who keeps one of these places: who has it now."""
        pools = list(ResourcePool.objects.filter(self.where)[:2])
        if not places or len(pools) != 1:
            return {}
        first, last = min(places), max(places)
        rows = listed(pools[0]).values_list("pk", "name")[first : last + 1]
        return {
            place: preview.PlannedPlace(str(pk), name, place, place)
            for place, (pk, name) in enumerate(rows, first)
            if place in places
        }

    def _place(self, entry: preview.PlannedPlace) -> NewPlace:
        start = next((start for start in self.found.starts if start.job_id == entry.job_id), None)
        return NewPlace(
            name=entry.name,
            place=entry.place,
            was=entry.was,
            edited=entry.job_id in self.edited,
            stops=any(stop.job_id == entry.job_id for stop in self.found.stops),
            start=_short_when(start),
        )

    @property
    def others(self) -> int:
        """How many more jobs change their place."""
        return max(0, self.found.moved - sum(row.was != row.place for row in self.places))


def look(updates: Sequence[Update], user: User, now: datetime) -> EditPreview:
    """What the edits would do. Raises Refusal as the edits themselves would."""
    found = preview.of(list(updates), actor=f"user:{user.username}", role=user.role, now=now)
    edited = list(dict.fromkeys(update.job_id for update in updates))
    where = Q(pk__in=Job.objects.filter(pk__in=edited).values("pool"))
    if named := {update.pool for update in updates if update.pool}:
        where = Q(name__in=named)
    return EditPreview(edited, where, found, user, now)


def look_at_undo(last: QueueEdit, user: User, now: datetime) -> EditPreview:
    """What taking back the user's last edit would do. Raises Refusal as the undo itself would."""
    found = preview.of_undo(user, now=now)
    where = Q(pk__in=[state["pool"] for state in last.before])
    return EditPreview([state["job"] for state in last.before], where, found, user, now)


def _stop(stop: preview.Stop, now: datetime) -> Stop:
    saved, again = stop.last_saved_at, stop.resumes
    return Stop(
        name=stop.name,
        of="(yours)" if stop.mine else f"of {_whose(stop)}",
        owner="you" if stop.mine else _whose(stop),
        slots=stop.slots,
        progress=stop.progress,
        checkpoint=duration((now - saved).total_seconds()) if saved else "",
        redone=f"{stop.steps_again:,}" if stop.steps_again else "all" if stop.never_saved else "none",
        resumes="in its new pool" if again is None else _resumes(again),
        why_then=(again.unknown or again.reason or "").rstrip(".")
        if again and _resumes(again) == times.NOT_KNOWN
        else "",
        loses=stop.never_saved,
    )


def _whose(stop: preview.Stop) -> str:
    return f"{stop.username} (group {stop.group})" if stop.group else stop.username


def _resumes(start: preview.Outlook) -> str:
    return _short_when(start).removeprefix("starts ") if start.now or start.forecast else times.NOT_KNOWN


def _cost(stop: preview.Stop, now: datetime) -> str:
    if stop.never_saved:
        lost = duration((now - stop.started_at).total_seconds())
        return f"{'one of its runs' if stop.runs > 1 else 'it'} has never saved and loses {lost} of work"
    if stop.last_saved_at is None:
        return "it has no checkpoint yet and saves one first"
    return "it saves first"


def _when(start: preview.Outlook, instead: str = "") -> str:
    """`starts immediately`, `starts 12:43 to 12:46 UTC`, or what it waits for and why nobody knows how long."""
    if start.now:
        return f"starts immediately{instead}"
    reason = f": {start.reason.rstrip('.')}" if start.reason else ""
    if start.forecast is not None and start.by:
        at = times.clock(datetime.fromtimestamp(start.forecast[1], UTC))
        return f"starts at {at} UTC, as {start.by} expects{reason}"
    if start.forecast is not None:
        return f"starts {_range(start.forecast)} UTC{instead}{reason}"
    unknown = f"; its start is not known: {start.unknown.rstrip('.')}" if start.unknown else ""
    return f"waits{reason}{unknown}"


def _range(span: tuple[float, float]) -> str:
    earliest, latest = (datetime.fromtimestamp(moment, UTC) for moment in span)
    return times.between(earliest, latest)


def _short_when(start: preview.Outlook | None) -> str:
    """For a row: the range without the reason."""
    if start is None:
        return ""
    return _when(replace(start, reason=None, unknown=None)) if start.now or start.forecast else "waits"
