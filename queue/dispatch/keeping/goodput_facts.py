"""The facts of attempts that `jobs.time_parts` makes parts of: all were recorded for something else."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
from django.db import InterfaceError, OperationalError
from django.db.models import Sum

from experiments.models import Checkpoint, Trial
from experiments.states import CheckpointState
from jobs import held_slots
from jobs.models import Allocation, SlotHold
from jobs.states import AllocationState
from jobs.step_facts import SECOND, Steps, steps_of
from jobs.time_parts import Attempt, Reached, Span
from metrics import step_times, stragglers, timings
from metrics.models import TimingChunk
from metrics.packing import Integers
from metrics.step_times import Heads, Reports, Size

log = logging.getLogger(__name__)

_CHECKPOINT_FIELDS = (
    "trial_id", "allocation_id", "steps_completed", "reported_at", "saved_at", "save_seconds", "state",
)  # fmt: skip
#: With more intervals of all ranks nobody looks for a slow one: it takes some seconds.
_MOST_FRAMES = 300_000


@dataclass(frozen=True)
class Facts:
    """An attempt, and of its members by index: when each began, and when slots of it stood idle.

    `paces`: by host, how many times as long as its peers it took for a step, where ranks time their steps.
    """

    attempt: Attempt
    started: Mapping[int, int | None]
    idle: Mapping[int, Sequence[Sequence[Span]]]
    paces: Mapping[str, float] = field(default_factory=dict)


class _Saved(NamedTuple):
    """A checkpoint. `arrived`: when the server heard of it. `usable`: a later attempt can start from it."""

    run: int
    step: int
    arrived: int
    at: int
    seconds: float
    usable: bool


@dataclass
class _TrialFacts:
    """What is known of a trial: attempts by number with their ends, checkpoints, reports by attempt."""

    pk: int
    ends: dict[int, str]
    saved: list[_Saved] = field(default_factory=list)
    reports: dict[int, Reports] = field(default_factory=dict)
    #: why its reports cannot be read
    broken: Exception | None = None
    is_left_out: bool = False

    def read(self, heads: Heads) -> None:
        try:
            self.reports = step_times.by_attempt(heads, max(self.ends, default=0))
        except Exception as error:  # told by each attempt of it
            self.broken = error

    def steps(self, run: int, skew: int) -> Reports:
        """By the server's clock. All attempts of a trial are compared by the same source: reports, else checkpoints."""
        if self.reports:
            found = self.reports.get(run, _NOTHING)
            return Reports(_shifted(found.times, skew), found.steps)
        own = [one for one in self.saved if one.run == run]
        return Reports(
            np.array([one.at for one in own], np.int64), np.array([one.step for one in own], np.int64)
        )

    def reached(self, run: int) -> int:
        steps = self.steps(run, 0).steps
        return int(steps.max()) if len(steps) else 0


_NOTHING = Reports(np.zeros(0, np.int64), np.zeros(0, np.int64))


def _shifted(times: Integers, skew: int) -> Integers:
    room = abs(skew)  # times come from training code
    limits = np.iinfo(np.int64)
    return np.clip(times, limits.min + room, limits.max - room) - skew


def microseconds(at: datetime) -> int:
    return round(at.timestamp() * SECOND)


def _known(at: datetime | None) -> int | None:
    return None if at is None else microseconds(at)


def of(allocation_ids: Collection[str], now: datetime, most_reports: int | None = None) -> dict[str, Facts]:
    """Allocation id -> its facts at this time.

    Those that were deleted or cannot be read are left out; with `most_reports` also those of the trials that come
    behind so many reports, the latest attempts first.
    """
    attempts = list(
        Allocation.objects.filter(pk__in=allocation_ids)
        .prefetch_related("members__host")
        .order_by("-assigned_at", "pk")
    )
    trials = _trials([each.task_id for each in attempts], most_reports)
    marked = _marked([member.pk for each in attempts for member in each.members.all()])
    found = {}
    for each in attempts:
        trial = trials.get(each.task_id)
        if trial is not None and trial.is_left_out:
            continue
        try:
            found[each.pk] = _facts(each, trial, marked, now)
        except (OperationalError, InterfaceError):
            raise
        except Exception as error:
            log.warning("what attempt %s went to cannot be told: %r", each.pk, error)
    return found


def _trials(task_ids: Sequence[str], most_reports: int | None) -> dict[str, _TrialFacts]:
    rows = Trial.objects.filter(task_id__in=task_ids).values_list("task_id", "pk")
    found = {task_id: _TrialFacts(pk, {}) for task_id, pk in rows}
    if not found:
        return found
    ends = Allocation.objects.filter(task_id__in=found).order_by("number")
    for task_id, number, reason in ends.values_list("task_id", "number", "exit_reason"):
        found[task_id].ends[number] = reason
    by_pk = {found[task_id].pk: found[task_id] for task_id in task_ids if task_id in found}
    for pk, heads in step_times.heads(_affordable(by_pk, most_reports)):
        by_pk[pk].read(heads)
    for row in Checkpoint.objects.filter(trial_id__in=by_pk).values_list(*_CHECKPOINT_FIELDS):
        pk, allocation_id, step, arrived, at, seconds, state = row
        number = allocation_id.rpartition(".")[2]
        if number.isdecimal():
            usable = state != CheckpointState.ERROR
            times = microseconds(arrived), microseconds(at or arrived)
            by_pk[pk].saved.append(_Saved(int(number), step, *times, seconds or 0.0, usable))
    return found


def _affordable(by_pk: Mapping[int, _TrialFacts], most: int | None) -> dict[int, Size]:
    sizes = step_times.sizes(by_pk)
    found = {}
    count = 0
    for pk, trial in by_pk.items():
        if pk in sizes:
            count += sizes[pk].reports
            trial.is_left_out = most is not None and count > most
            if not trial.is_left_out:
                found[pk] = sizes[pk]
    return found


def _facts(
    allocation: Allocation,
    trial: _TrialFacts | None,
    marked: Mapping[int, Mapping[int, datetime]],
    now: datetime,
) -> Facts:
    members = list(allocation.members.all())
    started = {one.index: _known(one.started_at) for one in members}
    began = [at for at in started.values() if at is not None]
    ended = [one.ended_at or now for one in members] or [now]
    common: dict[str, Any] = {
        "gang_started_at": max(began) if members and len(began) == len(members) else None,
        "end": microseconds(max(ended)),
        "runs": allocation.state != AllocationState.TERMINATED,
        "stop_at": _known(allocation.stop_requested_at),
    }
    paces: dict[str, float] = {}
    if trial is not None and began:
        skew = members[0].host.clock_skew_seconds or 0.0
        common |= _of_trial(allocation, trial, Span(max(began), common["end"]), round(skew * SECOND))
        if not common["runs"]:
            common["slow_share"], paces = _slowness(allocation, common)
    idle = {one.index: _idle(one.idle, marked.get(one.pk, {}), now) for one in members}
    return Facts(Attempt(**common), started, idle, paces)


def _of_trial(allocation: Allocation, trial: _TrialFacts, span: Span, skew: int) -> dict[str, Any]:
    if trial.broken is not None:
        raise trial.broken
    number, assigned = allocation.number, microseconds(allocation.assigned_at)
    reached = [
        Reached(step, trial.ends[run])
        for run in sorted(trial.ends)
        if run < number and (step := trial.reached(run)) > 0
    ]
    # what had arrived is what it could start from
    earlier = [one for one in trial.saved if one.usable and one.run < number and one.arrived <= assigned]
    return {
        "steps": steps_of(*trial.steps(number, skew), *span, borders=[one.step for one in reached]),
        "saves": [
            Span(one.at - round(one.seconds * SECOND), one.at)
            for one in trial.saved
            if one.run == number and one.seconds
        ],
        "begun_step": max(((one.arrived, one.step) for one in earlier), default=(0, 0))[1],
        "reached": reached,
    }


def _slowness(allocation: Allocation, common: Mapping[str, Any]) -> tuple[float, dict[str, float]]:
    """What part of the time of its steps a gang lost to a slow rank, and the paces of its hosts.

    Of ranks that time no steps nothing is known.
    """
    steps: Steps = common["steps"]
    first, last = common["begun_step"] + 1, steps.facts[-1].step if steps.facts else 0
    timed = TimingChunk.objects.filter(task_id=allocation.task_id)
    if first > last or not timed.filter(rank=1).exists():  # its chief alone is no gang
        return 0.0, {}
    frames = timed.filter(last_step__gte=first).aggregate(count=Sum("frames"))["count"] or 0
    if frames > _MOST_FRAMES:
        return 0.0, {}
    names = {timings.WORK, timings.STEP}
    found = timings.read(allocation.task_id, names, first_step=first, last_step=last)
    work, straggler = stragglers.of_timings(found)
    if work is None or straggler is None:
        return 0.0, {}
    return straggler.lost_share if straggler.is_slow else 0.0, stragglers.of_hosts(work, found.hosts)


def _idle(spans: Iterable[Any], marked: Mapping[int, datetime], now: datetime) -> list[list[Span]]:
    """Of each slot of a member that stood idle, when; of one that still does, until now."""
    found: dict[int, list[Span]] = defaultdict(list)
    for slot, begin, end in spans:
        found[slot].append(Span(round(begin * SECOND), round(end * SECOND)))
    for slot, since in marked.items():
        found[slot].append(Span(microseconds(since), microseconds(now)))
    return list(found.values())


def _marked(member_ids: Collection[int]) -> dict[int, dict[int, datetime]]:
    """Member -> slots that it holds and that stand idle now -> since when."""
    rows = SlotHold.objects.filter(member_id__in=member_ids, released_at=None, slot__idle_since__isnull=False)
    found: dict[int, dict[int, datetime]] = defaultdict(dict)
    for member_id, slot, since, started in rows.values_list(
        "member_id", "slot_id", "slot__idle_since", "member__started_at"
    ):
        if since is not None and held_slots.is_idle(since, started):
            found[member_id][slot] = since
    return found
