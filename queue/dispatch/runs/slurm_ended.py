"""How runs have ended whose Slurm jobs are over: as Slurm says, where their folders say nothing that goes before."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from django.conf import settings

from dispatch.runs import reconcile, settle
from dispatch.runs.slurm_listed import user_of
from dispatch.ssh import remote, slurm_login
from events.presence import Whole
from hosts.models import Host, ResourcePool, SlurmFacts
from hosts.slurm import ends, sacct
from hosts.slurm.facts import ClusterFacts
from jobs import feeding
from jobs.failed_starts import Fault
from jobs.fed_jobs import FedJob
from jobs.models import Member
from jobs.states import Reason

log = logging.getLogger(__name__)

#: from the end of a job, or the last word of its runner, until its end is concluded without an exit file: a network
#: file system may be late
_LATE_SECONDS = 15.0
#: jobs of one sacct, whose ids and names are words of a command; and how long it may take, as others wait for the look
_ASKED_AT_ONCE = 500
_SACCT_SECONDS = 10.0


def ask(pool: ResourcePool, login: Host, over: Iterable[FedJob]) -> None:
    """Note how jobs ended of which squeue has not told it, by sacct, where the cluster has accounting.

    That it does not answer or knows nothing yet is as if there was none. While they are not settled, it is asked again.
    """
    asked = [row for row in over if row.job_id and row.back_at is None and not ends.says_how(row.state)]
    unknown = {row.job_id: row for row in asked}
    kept = SlurmFacts.objects.filter(pool=pool).first() if unknown else None
    facts = ClusterFacts.of(kept.document) if kept else None
    if facts is None or not facts.has_accounting:
        return
    for first in range(0, len(asked), _ASKED_AT_ONCE):
        some = asked[first : first + _ASKED_AT_ONCE]
        words = sacct.command([row.job_id for row in some], [row.attempt for row in some])
        try:
            said, _ = slurm_login.ask(login, words, timeout_seconds=_SACCT_SECONDS)
        except remote.RemoteError as error:
            log.info("sacct of pool %s: %s", pool.name, error)
            return
        for each in sacct.ended(said):
            row = unknown.get(each.id)
            # anybody may give a job of theirs any name
            is_its = row is not None and (each.name, each.user) == (row.attempt, user_of(row, login))
            if row is not None and is_its and ends.says_how(each.state):
                feeding.told(row, each.state, each.exit_code)


def _quiet_seconds(whole: Whole, *signs: datetime | None) -> float:
    """How long ago the last of these signs of life was; time in which nobody was here to hear one does not count."""
    return (whole.now - max([whole.since, *filter(None, signs)])).total_seconds()


def is_heard(member: Member, whole: Whole | None) -> bool:
    """Whether its runner was heard a moment ago, or could not be, so that none may be started beside it."""
    return whole is None or _quiet_seconds(whole, member.heartbeat_at) < _LATE_SECONDS


def may_live(member: Member, over_at: datetime, whole: Whole) -> bool:
    """Whether its exit file may come yet, or its runner was heard after Slurm said that the job is over."""
    return _quiet_seconds(whole, member.heartbeat_at, over_at) < _LATE_SECONDS


def is_long_over(member: Member, over_at: datetime, whole: Whole) -> bool:
    """Whether its folder, of which nobody can tell, is not waited for any more: its account is gone or silent."""
    return _quiet_seconds(whole, member.heartbeat_at, over_at) > settings.DRAIN_SECONDS


def settle_over(
    member: Member, row: FedJob, run: Mapping[str, Any], overridden: Mapping[str, str], whole: Whole
) -> None:
    """Slurm does not run its job any more, and says why. What a runner still brings is waited for first."""
    if run.get("runner_restarted") and reconcile.seen_seconds(member) < settings.DRAIN_SECONDS:
        return
    late = _quiet_seconds(whole, member.heartbeat_at, row.over_at) > settings.DRAIN_SECONDS
    may_end = (late or run.get("finished")) and reconcile.drained(member, dict(run))
    if "unshipped_bytes" in run and not may_end:
        return
    exit_file = run.get("exit") or {}
    reason, sentence = _why(member, row, run, overridden)
    said = row.exit_code if reason == Reason.RANK_FAILED else None
    settle.member_over(
        member.pk,
        reason=reason,
        code=exit_file.get("code", said),
        signal=exit_file.get("signal"),
        detail={"rank": None, "host": member.host.name, "member": member.index, "sentence": sentence},
        fault=Fault.RUN if member.launched_at else Fault.LINK,
    )


def _why(
    member: Member, row: FedJob, run: Mapping[str, Any], overridden: Mapping[str, str]
) -> tuple[Reason, str]:
    # one that Slurm has stopped and that ended well was started again, and has found that its run was begun before
    stopped = bool((run.get("exit") or {}).get("stopped"))
    state = ends.REQUEUED if stopped and row.state == "COMPLETED" else row.state
    end = ends.end_of(state, overridden)
    reason, sentence = Reason(end.reason), end.sentence
    if not ends.says_how(state) or reason == Reason.COMPLETED:
        reason, sentence = Reason.RUN_VANISHED, f"Slurm does not run job {row.job_id} any more."
    has_begun = bool(member.started_at or run.get("outbox_bytes"))
    attempt = member.allocation
    # asked by Slurm, and not heard by the code: its end is what Slurm says, such as TIMEOUT
    unheard = attempt.stop_actor == "slurm" and attempt.preempt_acked_at is None
    if attempt.stop_kind and not (unheard and reason != Reason.RUN_VANISHED):
        reason = Reason(attempt.stop_reason)
    elif not has_begun and reason in {Reason.RANK_FAILED, Reason.RUN_VANISHED}:
        reason, sentence = Reason.LAUNCH_FAILED, f"The Slurm job {row.job_id} ended before the run began."
        if member.last_error and not member.launched_at:  # as long as it had its nodes
            sentence = f"{sentence.rstrip('.')}: {member.last_error}"
    return reason, sentence
