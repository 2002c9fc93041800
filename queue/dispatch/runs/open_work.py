"""Whether a sweep has anything to look at besides hosts: one statement, so that an idle server stays idle."""

from __future__ import annotations

from datetime import timedelta
from functools import cache
from typing import Any

from django.db import connection
from django.db.models import Exists, Q
from django.db.models.functions import Now

from dispatch.runs import uploads
from events.models import Presence
from experiments.models import Checkpoint, Experiment, Trial
from experiments.states import CheckpointState, ExperimentState, TrialState
from hosts.models import Host
from jobs import cleaning
from jobs.models import Allocation, FedJob, Member
from jobs.states import AllocationState, MemberState

#: What has ended is looked at for so long: its last events are still to be written into its log.
JUST_ENDED = timedelta(minutes=2)


def exists() -> bool:
    """Whether an attempt, its cleanup, an upload or a detached run is open, or an attempt has just ended.

    Of a control plane that has stamped its presence, as each sweep does first.
    """
    with connection.cursor() as cursor:
        cursor.execute(*_statement())
        return cursor.fetchone() is not None


@cache
def _statement() -> tuple[str, tuple[Any, ...]]:
    """Its SQL and parameters, none of which is a time: Django writes for ten times as long as PostgreSQL answers."""
    recent = Q(settled_at__gt=Now() - JUST_ENDED)
    gone = Q(host__admission__in=uploads.GONE)  # nobody is asked there
    unmanaged = Trial.objects.filter(experiment__unmanaged=True, state=TrialState.ACTIVE)
    is_open = (
        Exists(Member.objects.exclude(state=MemberState.ENDED))
        | Exists(Allocation.objects.filter(~Q(state=AllocationState.TERMINATED) | recent))
        | Exists(FedJob.objects.filter(ended_at=None))
        | Exists(uploads.awaited().exclude(gone))
        | Exists(Checkpoint.objects.filter(state=CheckpointState.PARTIAL))
        | Exists(cleaning.under_way().exclude(gone))
        | Exists(Host.objects.filter(drain_cause=Host.Drain.CLEANUP).exclude(admission__in=uploads.GONE))
        | Exists(Experiment.objects.filter(unmanaged=True, state=ExperimentState.ACTIVE))
        | Exists(unmanaged)
    )
    return Presence.objects.filter(is_open).values("part")[:1].query.sql_with_params()
