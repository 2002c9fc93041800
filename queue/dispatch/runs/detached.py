"""Detached runs: started, kept alive and ended by whoever runs them (docs/protocol.md, "Detached runs").

Their records come in as any run's; what differs is here. Silence ends an attempt, since there is no host to ask, and
the next sign of life opens it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Max, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Now
from django.utils import timezone

from accounts.refusals import Code, Refusal
from dispatch.going_on import going_on
from dispatch.runs import settle, uploads
from events import presence
from events.prepared import Prepared
from experiments import detached
from experiments.models import Experiment, Trial
from experiments.states import EXPERIMENT_END_STATES, ExperimentState, TrialState
from experiments.transitions import lock
from hosts.models import Host
from jobs import detached as attempts
from jobs import transitions
from jobs.models import Allocation, Member
from jobs.states import AllocationState, MemberState, Reason
from trainmaster.quantities import duration

#: Of an attempt that is over, uploads are awaited so long: nobody can be asked whether they still go on.
_UPLOADS_SECONDS = 7 * 24 * 3600.0
#: A sign of life is written down at most so often; a runner's own heartbeats come every few seconds anyway.
_SIGN_EVERY_SECONDS = 5.0


@transaction.atomic
def start(trial_id: int, machines: Sequence[str], *, resume: bool, actor: str) -> Allocation:
    """A new attempt of a detached trial, with a member on each of the machines ("" for one without a name).

    With `resume` an open attempt is ended as replaced. Raises Refusal.
    """
    experiment, trial = _locked(trial_id)
    detached.refuse_closed(experiment)
    open_one = _open_attempt(trial)
    if open_one is not None and not resume:
        raise Refusal(
            f"Trial {trial_id} is already running as run {open_one.number}: end that first, or start with resume, "
            "which replaces it.",
            Code.CONFLICT,
        )
    if open_one is not None:
        _end(open_one, Reason.REPLACED)
        trial = Trial.objects.get(pk=trial_id)
        trial.experiment = experiment
    allocation = detached.begin(experiment, trial, machines, actor=actor)
    assert allocation is not None, "the open attempt was just ended, under the experiment's lock"
    return allocation


@transaction.atomic
def set_running(trial_id: int) -> None:
    """The program says that it runs. Raises Refusal without an attempt."""
    _, trial = _locked(trial_id)
    allocation = _awake(trial)
    if allocation is None:
        raise Refusal(
            f"Trial {trial_id} has no open run: start one with POST /api/v1/trials/{trial_id}/start.",
            Code.CONFLICT,
        )
    for member in allocation.members.all():
        transitions.member_running(member.pk)


@transaction.atomic
def set_ended(trial_id: int, *, completed: bool) -> None:
    """The program says that it has ended. Said again it changes nothing; of no open attempt it raises Refusal."""
    _, trial = _locked(trial_id)
    wanted = TrialState.COMPLETED if completed else TrialState.ERROR
    allocation = _awake(trial)
    if allocation is not None:
        _end(allocation, Reason.COMPLETED if completed else Reason.REPORTED_FAILURE, 0 if completed else None)
    elif trial.state != wanted:
        raise Refusal(
            f"Trial {trial_id} is {trial.state} and has no open run, so it cannot become {wanted}.",
            Code.CONFLICT,
        )


def sign_of_life(trial: Trial) -> bool:
    """Something came from the program by REST: its attempt lives. Return whether it does so again."""
    return noted(_with_first_member.find(trial.pk))


def noted(trial: Any) -> bool:
    """As `sign_of_life`, for a row of `with_first_member`."""
    if trial is None or trial.first_member is None:
        return False
    if trial.first_member_state == MemberState.ENDED:
        return reopen(trial.first_member)
    heard = trial.first_member_heard
    if heard is None or abs(timezone.now() - heard) > timedelta(seconds=_SIGN_EVERY_SECONDS):
        note_sign(trial.first_member)
    return False


def with_first_member(rows: QuerySet[Trial]) -> QuerySet[Trial]:
    """Trials with the first member of their newest attempt, so that a sign of life needs no query of its own."""
    newest = Member.objects.filter(index=0, allocation__task=OuterRef("task")).order_by("-allocation__number")
    return rows.annotate(
        first_member=Subquery(newest.values("pk")[:1]),
        first_member_state=Subquery(newest.values("state")[:1]),
        first_member_heard=Subquery(newest.values("heartbeat_at")[:1]),
    )


_with_first_member = Prepared(lambda: with_first_member(Trial.objects.only("pk")))


def note_sign(member_id: int) -> None:
    """A batch came, or a report by REST."""
    recent = Q(heartbeat_at__gt=Now() - timedelta(seconds=_SIGN_EVERY_SECONDS), heartbeat_at__lte=Now())
    Member.objects.filter(pk=member_id).exclude(recent).update(heartbeat_at=Now())


@transaction.atomic
def reopen(member_id: int) -> bool:
    """Go on with an attempt that was given up in silence, now that this member is heard; False when it is over."""
    row = Member.objects.filter(pk=member_id, exit_reason=Reason.NO_SIGN_OF_LIFE).first()
    task_id = row and Allocation.objects.values_list("task_id", flat=True).get(pk=row.allocation_id)
    found = Trial.objects.filter(task_id=task_id, experiment__unmanaged=True).first() if task_id else None
    if row is None or found is None:
        return False
    experiment, trial = _locked(found.pk)
    transitions.lock_tasks([trial.task_id])
    allocation = transitions.lock_allocation(row.allocation_id)
    if allocation.state != AllocationState.TERMINATED:
        return Member.objects.exclude(state=MemberState.ENDED).filter(pk=member_id).exists()
    if allocation.number != allocation.task.run_count or not _may_go_on(experiment):
        return False
    attempts.heard_again(allocation)
    detached.goes_on(experiment, trial)
    return True


def _may_go_on(experiment: Experiment) -> bool:
    try:
        detached.refuse_closed(experiment)
    except Refusal:
        return False
    return True


def give_up_silent() -> None:
    """End what gave no sign of life for DETACHED_LOST_SECONDS: attempts, and what was made but never started.

    Only time in which somebody was here to hear it counts, by the database's clock.
    """
    whole = presence.whole()
    if whole is None or not whole.lasts(settings.DETACHED_LOST_SECONDS):
        return
    before = whole.now - timedelta(seconds=settings.DETACHED_LOST_SECONDS)
    silent = (
        Allocation.objects.exclude(state=AllocationState.TERMINATED)
        .filter(members__host__transport=Host.Transport.NONE)
        .annotate(heard=Max("members__heartbeat_at", filter=~Q(members__state=MemberState.ENDED)))
        .filter(heard__lt=before)
    )
    for allocation_id in list(silent.values_list("pk", flat=True)):
        with going_on(f"the end of {allocation_id}, which stopped reporting"):
            _give_up(allocation_id)
    never_started = Q(started_at__lt=before) & Q(experiment__unmanaged=True, state=TrialState.ACTIVE)
    for trial_id in list(Trial.objects.filter(never_started, run_id=0).values_list("pk", flat=True)):
        with going_on(f"the end of trial {trial_id}, which was never started"):
            _end_unstarted(trial_id)
    empty = Experiment.objects.filter(
        unmanaged=True, state=ExperimentState.ACTIVE, started_at__lt=before, trials=None
    )
    for experiment_id in list(empty.values_list("pk", flat=True)):
        with going_on(f"the end of experiment {experiment_id}, which has no trial"):
            _end_empty(experiment_id)
    give_up_uploads()


def give_up_uploads() -> None:
    """Checkpoints that nobody has brought in full long after their attempt was over are not waited for any more.

    An attempt that was given up in silence may still go on, and so may its uploads.
    """
    before = timezone.now() - timedelta(seconds=_UPLOADS_SECONDS)
    late = uploads.awaited().filter(host__transport=Host.Transport.NONE, ended_at__lt=before)
    late = late.exclude(exit_reason=Reason.NO_SIGN_OF_LIFE)
    for allocation_id in set(late.values_list("allocation_id", flat=True)):
        with going_on(f"the end of the uploads of {allocation_id}"):
            late.filter(allocation_id=allocation_id).update(finished_at=timezone.now())
            uploads.give_up(allocation_id)


@transaction.atomic
def _give_up(allocation_id: str) -> None:
    trial = Trial.objects.get(task__allocations=allocation_id)
    lock(trial.experiment_id)
    allocation = transitions.lock_allocation(allocation_id)
    limit = timedelta(seconds=settings.DETACHED_LOST_SECONDS)
    members = allocation.members.exclude(state=MemberState.ENDED)
    heard = members.aggregate(last=Max("heartbeat_at"))["last"]
    if heard is not None and presence.database_now() - heard > limit:
        _end(allocation, Reason.NO_SIGN_OF_LIFE)


@transaction.atomic
def _end_unstarted(trial_id: int) -> None:
    experiment, trial = _locked(trial_id)
    if trial.state == TrialState.ACTIVE and not trial.run_id:
        detached.end_trial(experiment, trial, Reason.NO_SIGN_OF_LIFE)


@transaction.atomic
def _end_empty(experiment_id: int) -> None:
    experiment = lock(experiment_id)
    if experiment.state not in EXPERIMENT_END_STATES and not experiment.trials.exists():
        detached.end_if_done(experiment, Reason.NO_SIGN_OF_LIFE)


def _locked(trial_id: int) -> tuple[Experiment, Trial]:
    """The trial with its experiment, which is locked. Raises Refusal for a trial of the queue."""
    experiment = lock(Trial.objects.values_list("experiment_id", flat=True).get(pk=trial_id))
    if not experiment.unmanaged:
        raise Refusal(
            f"Trial {trial_id} is run by the queue; only trials of unmanaged experiments can be run by their users.",
            Code.CONFLICT,
        )
    trial = Trial.objects.select_related("latest_checkpoint", "task").get(pk=trial_id)
    trial.experiment = experiment
    return experiment, trial


def _open_attempt(trial: Trial) -> Allocation | None:
    transitions.lock_tasks([trial.task_id])
    return Allocation.objects.filter(task_id=trial.task_id).exclude(state=AllocationState.TERMINATED).first()


def _awake(trial: Trial) -> Allocation | None:
    """The open attempt, heard again if it was silent."""
    sign_of_life(trial)
    return _open_attempt(trial)


def _end(allocation: Allocation, reason: Reason, code: int | None = None) -> None:
    """End every member that is left, all at once; the experiment is locked."""
    detail = None
    if reason == Reason.NO_SIGN_OF_LIFE:
        seconds = settings.DETACHED_LOST_SECONDS
        detail = {
            "rank": None,
            "silent_seconds": seconds,
            "sentence": f"no report for {duration(seconds)}",
        }
    elif reason == Reason.REPORTED_FAILURE:
        detail = {"rank": None}
    left = allocation.members.exclude(state=MemberState.ENDED).order_by("-index")
    ids = list(left.values_list("pk", flat=True))
    for member_id in ids[:-1]:  # without an order to stop for those that end with it
        transitions.member_ended(member_id, code=code, signal=None, reason=reason, detail=detail)
    if ids:
        settle.member_over(ids[-1], reason=reason, code=code, detail=detail)
    else:  # all have, and their worker was killed before it concluded
        settle.conclude(allocation.pk)
