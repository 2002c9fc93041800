"""The facts of attempts that `jobs.time_parts` makes parts of: all were recorded for something else."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from experiments.models import Checkpoint, Trial
from experiments.states import CheckpointState
from jobs import held_slots
from jobs.models import Allocation, Member, SlotHold
from jobs.states import AllocationState
from jobs.time_parts import SECOND, Attempt, Fact, Reached, Span
from metrics import step_times, stragglers, timings
from metrics.models import TimingChunk
from metrics.step_times import Times

_CHECKPOINT_FIELDS = ("trial_id", "allocation_id", "steps_completed", "reported_at", "save_seconds", "state")


@dataclass(frozen=True)
class Facts:
    """An attempt, and of its members by index: when each began, and when slots of it stood idle."""

    attempt: Attempt
    started: Mapping[int, int | None]
    idle: Mapping[int, Sequence[Sequence[Span]]]


@dataclass
class _TrialFacts:
    """What is known of a trial: attempts by number with their ends, reports and checkpoints by attempt."""

    pk: int
    ends: dict[int, str]
    times: dict[int, Times] = field(default_factory=dict)
    #: (attempt, step, when, seconds, whether a later attempt can start from it)
    saved: list[tuple[int, int, int, float, bool]] = field(default_factory=list)


def microseconds(at: datetime) -> int:
    return round(at.timestamp() * SECOND)


def _known(at: datetime | None) -> int | None:
    return None if at is None else microseconds(at)


def of(allocation_ids: Collection[str], now: datetime) -> dict[str, Facts]:
    """Allocation id -> its facts at this time; those that were deleted are left out."""
    attempts = list(
        Allocation.objects.filter(pk__in=allocation_ids).prefetch_related("members__host").order_by("pk")
    )
    trials = _trials({each.task_id for each in attempts})
    idle = _idle(attempts, now)
    return {each.pk: _facts(each, trials.get(each.task_id), idle, now) for each in attempts}


def _trials(task_ids: Collection[str]) -> dict[str, _TrialFacts]:
    rows = Trial.objects.filter(task_id__in=task_ids).values_list("task_id", "pk")
    found = {task_id: _TrialFacts(pk, {}) for task_id, pk in rows}
    ends = Allocation.objects.filter(task_id__in=found).order_by("number")
    for task_id, number, reason in ends.values_list("task_id", "number", "exit_reason"):
        found[task_id].ends[number] = reason
    by_pk = {one.pk: one for one in found.values()}
    for (pk, run), times in step_times.by_attempt(
        {pk: max(one.ends, default=0) for pk, one in by_pk.items()}
    ).items():
        by_pk[pk].times[run] = times
    for row in Checkpoint.objects.filter(trial_id__in=by_pk).values_list(*_CHECKPOINT_FIELDS):
        pk, allocation_id, step, at, seconds, state = row
        number = allocation_id.rpartition(".")[2]
        if number.isdecimal():
            usable = state != CheckpointState.ERROR
            by_pk[pk].saved.append((int(number), step, microseconds(at), seconds or 0.0, usable))
    return found


def _facts(
    allocation: Allocation, trial: _TrialFacts | None, idle: Mapping[int, Any], now: datetime
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
    if trial is not None and began:
        skew = members[0].host.clock_skew_seconds or 0.0
        common |= _of_trial(allocation, trial, round(skew * SECOND))
        common["slow_share"] = 0.0 if common["runs"] else _slow_share(allocation, common)
    return Facts(Attempt(**common), started, {one.index: idle.get(one.pk, ()) for one in members})


def _of_trial(allocation: Allocation, trial: _TrialFacts, skew: int) -> dict[str, Any]:
    number, assigned = allocation.number, microseconds(allocation.assigned_at)
    own = [one for one in trial.saved if one[0] == number]
    facts = [Fact(at - skew, step) for at, step in trial.times.get(number, ())]
    facts += [Fact(at, step) for _, step, at, _, _ in own]
    begun = max(
        (
            (at, step)
            for run, step, at, _, usable in trial.saved
            if usable and run < number and at <= assigned
        ),
        default=(0, 0),
    )
    return {
        "facts": facts,
        "saves": [Span(at - round(seconds * SECOND), at) for _, _, at, seconds, _ in own if seconds],
        "begun_step": begun[1],
        "reached": [
            Reached(step, trial.ends[run])
            for run in sorted(trial.ends)
            if run < number and (step := _reached(trial, run)) > 0
        ],
    }


def _reached(trial: _TrialFacts, run: int) -> int:
    saved = (step for number, step, *_ in trial.saved if number == run)
    return max([*saved, *(step for _, step in trial.times.get(run, ()))], default=0)


def _slow_share(allocation: Allocation, common: Mapping[str, Any]) -> float:
    """What part of the time of its steps a gang lost to a slow rank; of ranks that time no steps nothing is known."""
    steps = [fact.step for fact in common["facts"]]
    timed = TimingChunk.objects.filter(task_id=allocation.task_id, rank=1)  # its chief alone is no gang
    if not steps or not timed.exists():
        return 0.0
    names = {timings.WORK, timings.STEP}
    first = common["begun_step"] + 1
    found = timings.read(allocation.task_id, names, first_step=first, last_step=max(steps))
    _, straggler = stragglers.of_timings(found)
    return straggler.lost_share if straggler is not None and straggler.is_slow else 0.0


def _idle(attempts: Iterable[Allocation], now: datetime) -> dict[int, list[list[Span]]]:
    """Member -> of each slot that stood idle, when; a slot that still does, until now."""
    members: list[Member] = [member for each in attempts for member in each.members.all()]
    found: dict[int, dict[int, list[Span]]] = defaultdict(lambda: defaultdict(list))
    for member in members:
        for slot, begin, end in member.idle:
            found[member.pk][slot].append(Span(round(begin * SECOND), round(end * SECOND)))
    for member_id, slot, since in _marked([member.pk for member in members]):
        found[member_id][slot].append(Span(microseconds(since), microseconds(now)))
    return {pk: list(of_slots.values()) for pk, of_slots in found.items()}


def _marked(member_ids: Collection[int]) -> Iterable[tuple[int, int, datetime]]:
    """(member, slot, since when) of slots that these members hold and that stand idle now."""
    rows = SlotHold.objects.filter(member_id__in=member_ids, released_at=None, slot__idle_since__isnull=False)
    return [
        (member_id, slot, since)
        for member_id, slot, since, started in rows.values_list(
            "member_id", "slot_id", "slot__idle_since", "member__started_at"
        )
        if since is not None and held_slots.is_idle(since, started)
    ]
