"""Whether a sweep has anything to look at besides hosts: one statement, so that an idle server stays idle."""

from __future__ import annotations

from datetime import timedelta

from django.db import connection

from experiments.states import CheckpointState, ExperimentState, TrialState
from jobs.states import AllocationState, MemberState

#: What has ended is looked at for so long: its last events are still to be written into its log.
JUST_ENDED = timedelta(minutes=2)

_ANY = """
SELECT EXISTS (SELECT FROM jobs_member WHERE state <> %(member_ended)s)
  OR EXISTS (SELECT FROM jobs_allocation WHERE state <> %(terminated)s)
  OR EXISTS (SELECT FROM jobs_allocation WHERE ended_at > clock_timestamp() - %(just)s * interval '1 second')
  OR EXISTS (SELECT FROM experiments_checkpoint WHERE state = %(partial)s)
  OR EXISTS (SELECT FROM experiments_experiment WHERE unmanaged AND state = %(experiment)s)
  OR EXISTS (SELECT FROM experiments_trial trial JOIN experiments_experiment experiment
      ON experiment.id = trial.experiment_id AND experiment.unmanaged WHERE trial.state = %(trial)s)
"""


def exists() -> bool:
    """Whether an attempt, an upload or a detached run is open, or an attempt has just ended."""
    with connection.cursor() as cursor:
        cursor.execute(
            _ANY,
            {
                "member_ended": MemberState.ENDED,
                "terminated": AllocationState.TERMINATED,
                "just": JUST_ENDED.total_seconds(),
                "partial": CheckpointState.PARTIAL,
                "experiment": ExperimentState.ACTIVE,
                "trial": TrialState.ACTIVE,
            },
        )
        return bool(cursor.fetchone()[0])
