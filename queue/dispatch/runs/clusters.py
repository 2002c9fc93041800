"""Looks after what a pool has in a Slurm cluster: submits, takes back, begins what got nodes, settles what ended there.

One squeue tells of all jobs of the pool. That the login node or Slurm does not answer settles nothing (law 3), and a
job that Slurm does not know any more is looked for in its run folder before its end is concluded.
"""

from __future__ import annotations

import logging
import random
import secrets
import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Q

from dispatch.engines import slurm_jobs, slurm_sections
from dispatch.going_on import going_on
from dispatch.runs import reconcile, settle, stop, uploads
from dispatch.ssh import remote, slurm_login
from dispatch.ssh.slurm_login import SlurmRefused
from events import presence
from events.announce import wake
from events.leases import alone
from experiments import runs
from hosts import slurm_nodes
from hosts.models import Host, ResourcePool, Slot
from hosts.slurm import ends, squeue, texts
from hosts.slurm.settings import JobSettings, SlurmSettings
from hosts.slurm.squeue import Job
from jobs import feeding, leaving, transitions
from jobs.fed_jobs import FedJob
from jobs.models import Allocation, Member
from jobs.states import AllocationState, MemberState, Reason, StopKind
from jobs.time_limits import time_used

log = logging.getLogger(__name__)

#: states in which a job has its nodes or is about to; in the others that live it waits
_WAITS = frozenset({"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD"})
_AGAIN_SECONDS = 15.0
#: after a job that waited in Slurm was canceled there, or failed before its run began
_PUT_OFF_SECONDS = 60.0
#: from the end of a job until its end is concluded without an exit file: a network file system may be late
_LATE_FOLDER_SECONDS = 15.0
#: from the answer of squeue that a job is over until another one that confirms it: one may be wrong
_AGAIN_OVER_SECONDS = 3.0
#: beyond the grace of a stop, until Slurm is asked to end the job
_STOP_SLACK_SECONDS = 60.0
#: Slurm counts time limits in minutes; asked for beyond our own limit, which so comes first
_SPARE_MINUTES = 10


def due() -> list[int]:
    """The pools that have something in a cluster, or something that is left to do there."""
    fed = FedJob.objects.filter(ended_at=None).values("pool_id")
    awaited = uploads.awaited().filter(host__transport=Host.Transport.SLURM).values("host__pool_id")
    pools = ResourcePool.objects.filter(Q(pk__in=fed) | Q(pk__in=awaited))
    return list(pools.exclude(slurm={}).values_list("pk", flat=True))


def tend(pool_id: int) -> None:
    """Submit and take back what is due, and look at the cluster if that is due."""
    pool = ResourcePool.objects.filter(pk=pool_id).exclude(slurm={}).first()
    if pool is None:
        return
    try:
        cluster = Cluster(pool, slurm_nodes.login_of(pool))
    except Host.DoesNotExist:
        return
    with alone(f"feed pool {pool_id}") as mine:
        if mine is not None:
            cluster.submit_due()
    every = settings.SLURM_LOOK_SECONDS if cluster.is_busy() else settings.SLURM_QUIET_LOOK_SECONDS
    with alone(f"look at pool {pool_id}", every=every) as mine:
        if mine is not None:
            cluster.look()


class Cluster:
    """One pool's cluster, asked by its login node."""

    def __init__(self, pool: ResourcePool, login: Host) -> None:
        self.pool = pool
        self.login = login
        self.settings = SlurmSettings.of(pool.slurm)

    def rows(self) -> list[FedJob]:
        return list(feeding.open_jobs(self.pool.pk).select_related("task", "allocation").order_by("pk"))

    def is_busy(self) -> bool:
        """Whether something may change any moment that nobody else would tell."""
        quiet = Q(allocation__state=AllocationState.RUNNING, allocation__stop_kind="", over_at=None)
        return feeding.open_jobs(self.pool.pk).exclude(quiet).exists()

    # --- submitting -------------------------------------------------------------------------------

    def submit_due(self) -> None:
        """Hand to Slurm what is not there yet; forget what never was and is no longer wanted."""
        now, due = presence.database_now(), []
        for row in self.rows():
            if row.job_id or row.allocation_id or row.sent_at is not None:
                continue
            if row.back_at is not None:
                feeding.ended(row)
            elif row.send_after is None or row.send_after <= now:
                due.append(row)
        if due and self._has_bundle():
            for row in due:
                with going_on(f"the submission of {row.attempt}"):
                    self._submit(row)

    def _has_bundle(self) -> bool:
        """Whether the login node has the current bundle, a program of which each job runs."""
        if self.login.bundle_sha256 == remote.current_bundle().sha256:
            return True
        try:
            self.login.bundle_sha256 = remote.push(self.login)
        except remote.RemoteError as error:
            log.info("the bundle could not be brought to %s: %s", self.login.name, error)
            return False
        Host.objects.filter(pk=self.login.pk).update(bundle_sha256=self.login.bundle_sha256)
        return True

    def _submit(self, row: FedJob) -> None:
        """One sbatch. Without an answer the job is looked for by its comment before another is sent (`_in_doubt`)."""
        own = slurm_sections.of_tasks([row.task_id]).get(row.task_id, JobSettings())
        words = slurm_jobs.command(self.settings.with_job(own), self._wish(row))
        folder = self.login.workdir
        program = f"{folder}/bundle/{self.login.bundle_sha256}/trainmaster/runner"
        runner = (remote.python_of(self.login), "-S", "-E", program)
        script = slurm_jobs.script(
            slurm_jobs.attend(runner, folder, row.attempt, settings.SLURM_START_SECONDS),
            slurm_jobs.ask_to_save(runner, folder, row.attempt, row.nodes),
        )
        if not feeding.claim_submission(row):
            return
        try:
            said, _ = slurm_login.ask(self.login, words, script.encode())
        except SlurmRefused as error:
            refused = not slurm_jobs.may_have_come(error.said)
            feeding.not_submitted(row, str(error), self._pause(row), refused=refused)
            return
        except remote.RemoteError as error:
            feeding.not_submitted(row, str(error), feeding.DOUBT_SECONDS, refused=False)
            return
        job_id = slurm_jobs.job_id_of(said)
        if job_id:
            feeding.submitted(row, job_id)
        else:
            feeding.not_submitted(
                row, f"sbatch answered {said.strip()!r}", feeding.DOUBT_SECONDS, refused=False
            )

    def _pause(self, row: FedJob) -> float:
        return _AGAIN_SECONDS * min(row.sends + 1, 20) * random.uniform(0.8, 1.2)

    def _wish(self, row: FedJob) -> slurm_jobs.Wish:
        nodes = slurm_nodes.of_pool(self.pool)
        slots = max((host.slots.filter(missing=False).count() for host in nodes.values()), default=1)
        cpus = min((int(host.facts.get("slurm", {}).get("cpus") or 0) for host in nodes.values()), default=0)
        avoided = {name for name, host in nodes.items() if self._is_avoided(host, row)}
        limit = row.task.max_time_seconds
        minutes = None
        if limit is not None:
            left = max(0.0, limit - time_used([row.task_id]).get(row.task_id, 0.0))
            minutes = int((left + settings.TIME_LIMIT_SAVE_SECONDS) // 60) + _SPARE_MINUTES
        return slurm_jobs.Wish(
            attempt=row.attempt,
            nodes=row.nodes,
            slots=row.task.slots,
            cpus_per_slot=max(1, cpus // max(1, slots)),
            minutes=minutes,
            grace_seconds=int(settings.TIME_LIMIT_SAVE_SECONDS),
            exclude=avoided,
        )

    def _is_avoided(self, host: Host, row: FedJob) -> bool:
        """Whether a person or the job's config keeps work from the node; where Slurm itself starts nothing it knows."""
        by_person = not host.enabled or (host.draining and host.drain_cause != Host.Drain.SLURM)
        only = row.task.only_hosts
        return by_person or host.name in row.task.avoid_hosts or bool(only and host.name not in only)

    # --- looking ----------------------------------------------------------------------------------

    def look(self) -> None:
        """Ask Slurm for all jobs and the login node for all run folders, and settle what differs."""
        rows, asked = self.rows(), presence.database_now()
        jobs = self._jobs() if rows else {}
        for row in rows if jobs is not None else ():
            with going_on(f"the Slurm job of {row.attempt}"):
                self._compare(row, _of(row, jobs or {}), asked)
        self._look_at_runs(feeding.of_allocations(self.pool.pk), asked, answered=jobs is not None)
        living = {job.id: job.comment for job in (jobs or {}).values() if not ends.has_ended(job.state)}
        self._take_out(feeding.strays(self.pool.pk, living) if living else [])

    def _jobs(self) -> dict[str, Job] | None:
        """The jobs of the login's account by id and, if they live, by comment; None: Slurm has not said."""
        mark = f"#{secrets.token_hex(8)}#"
        account = (self.login.facts.get("account") or {}).get("name") or self.login.login_user
        try:
            said, _ = slurm_login.ask(self.login, squeue.command(mark, user=account))
        except remote.RemoteError as error:
            log.info("squeue of pool %s: %s", self.pool.name, error)
            return None
        found = squeue.jobs(said, mark)
        by_comment = {job.comment: job for job in found if job.comment and not ends.has_ended(job.state)}
        return by_comment | {job.id: job for job in found}

    def _compare(self, row: FedJob, job: Job | None, now: datetime) -> None:
        if not row.job_id:
            self._in_doubt(row, job, now)
        elif job is None or ends.has_ended(job.state):
            feeding.over(row, job.state if job else "")
            if row.allocation_id is None:
                (feeding.ended if row.back_at else self._put_off)(row)
        else:
            feeding.seen(row, state=job.state, reason=job.reason, starts_at=job.starts_at)
            if row.allocation_id is None and job.state not in _WAITS and job.nodelist:
                self._begin(row, job)

    def _put_off(self, row: FedJob) -> None:
        log.warning("the Slurm job %s of %s ended before it had nodes", row.job_id, row.attempt)
        feeding.put_off(row, _PUT_OFF_SECONDS)

    def _in_doubt(self, row: FedJob, job: Job | None, now: datetime) -> None:
        """Whether an sbatch without an answer made a job. One that comes later still is taken out (`_take_out`)."""
        if row.sent_at is None:
            return
        if job is not None:
            feeding.submitted(row, job.id)
        elif row.send_after is None or row.send_after <= now:
            if row.back_at is not None:
                feeding.ended(row)
            else:
                feeding.not_submitted(row, row.error, 0.0, refused=True)

    def _begin(self, row: FedJob, job: Job) -> None:
        """The nodes in Slurm's order, which is that of the members. A node that is not known yet is waited for."""
        known = slurm_nodes.of_pool(self.pool)
        names = texts.nodes(job.nodelist)
        if len(names) != row.nodes or not all(name in known for name in names):
            log.warning("job %s runs on %s, which are not all known", row.job_id, job.nodelist)
            return
        hosts = [known[name] for name in names]
        with transaction.atomic():
            each = row.task.slots // len(hosts)
            placement = [(host.pk, _free_slots(host.pk, each)) for host in hosts]
            made = feeding.begin(row, placement)
            if made is not None:
                runs.begin_all([made])
                wake("dispatch.tasks.merge_logs", (made.task_id,))
        if made is None:  # paused, ended or moved since, or a person has taken a slot out of use
            feeding.take_back(row)

    # --- runs -------------------------------------------------------------------------------------

    def _look_at_runs(self, jobs: dict[str, FedJob], asked: datetime, *, answered: bool) -> None:
        """`jobs`: the open ones by attempt. What Slurm may still run is looked at by its folder alone.

        That a job is over is believed when squeue says so again (`answered`) some seconds after the first time.
        """
        members = list(
            Member.objects.filter(host__pool=self.pool, host__transport=Host.Transport.SLURM)
            .exclude(state=MemberState.ENDED)
            .select_related("host", "allocation__task__job__owner", "allocation__pool")
        )
        uploading = list(uploads.awaited().filter(host__pool=self.pool, host__transport=Host.Transport.SLURM))
        if not members and not uploading:
            return
        both = [*members, *uploading]
        keys = [member.run_key for member in both]
        over = [m.run_key for m in both if _is_over(jobs.get(m.allocation_id), asked if answered else None)]
        living = sorted(set(keys) - set(over))
        try:
            answer = remote.verb(
                self.login, "status", {"runs": keys, "elsewhere": living, "over": over},
                timeout_seconds=reconcile.STATUS_TIMEOUT_SECONDS,
            )  # fmt: skip
        except remote.RemoteError as error:
            log.info("runs of pool %s: %s", self.pool.name, error)
            return
        for member in members:
            job, run = jobs.get(member.allocation_id), answer["runs"].get(member.run_key)
            if job is None or job.over_at is None or member.run_key in over:
                with going_on(f"the run {member.run_key}"):
                    self._settle(member, run or {"state": "absent"}, job, asked)
        for member in uploading:
            uploads.settle(member, answer["runs"].get(member.run_key) or {"state": "absent"})

    def _settle(self, member: Member, run: dict[str, Any], job: FedJob | None, asked: datetime) -> None:
        state = run.get("state")
        if state is None:
            log.warning("%s: %s", member.run_key, run.get("message"))
        elif run.get("exit") is not None:
            if not settle.ended_by_slurm(member, stopped=bool(run["exit"].get("stopped"))):
                reconcile.settle_ended(member, run, "")
            elif job is not None and job.over_at is not None:
                self._gone(member, job, run)
        elif job is None or job.over_at is not None:
            if job and job.over_at and not _may_live(member, job.over_at, asked):
                self._gone(member, job, run)
        elif state in {"running", "prepared"}:
            if member.state == MemberState.ASSIGNED:
                transitions.member_launched(member.pk, boot_id="")
            if state == "running":
                transitions.member_running(member.pk)
            if run.get("preempt"):
                leaving.asked_by_slurm(member.allocation_id)
            if member.allocation.stop_kind:
                stop.stop(member.allocation_id)

    def _gone(self, member: Member, row: FedJob, run: dict[str, Any]) -> None:
        """Slurm does not run its job any more, and says why. What a runner still brings is waited for first."""
        late = presence.database_now() - (row.over_at or row.made_at) > timedelta(
            seconds=settings.DRAIN_SECONDS
        )
        may_end = (late or run.get("finished")) and reconcile.drained(member, run)
        if "unshipped_bytes" in run and not may_end:
            return
        has_begun = bool(member.started_at or run.get("outbox_bytes"))
        exit_file = run.get("exit") or {}
        end = ends.end_of(row.state, self.settings.ends)
        reason, sentence = Reason(end.reason), end.sentence
        if not row.state or not ends.has_ended(row.state) or reason == Reason.COMPLETED:
            reason, sentence = Reason.RUN_VANISHED, f"Slurm does not run job {row.job_id} any more."
        if member.allocation.stop_kind:
            reason = Reason(member.allocation.stop_reason)
        elif not has_begun and reason in {Reason.RANK_FAILED, Reason.RUN_VANISHED}:
            reason, sentence = Reason.LAUNCH_FAILED, f"The Slurm job {row.job_id} ended before the run began."
        settle.member_over(
            member.pk,
            reason=reason,
            code=exit_file.get("code"),
            signal=exit_file.get("signal"),
            detail={"rank": None, "host": member.host.name, "member": member.index, "sentence": sentence},
        )

    # --- taking out -------------------------------------------------------------------------------

    def _take_out(self, out: list[str]) -> None:
        """Cancel what has no business in Slurm any more, `out` included; forget what is over on both sides."""
        now = presence.database_now()
        bringing = set(uploads.awaited().filter(host__pool=self.pool).values_list("allocation_id", flat=True))
        for row in self.rows():
            attempt = row.allocation
            has_ended = attempt is not None and attempt.state == AllocationState.TERMINATED
            if has_ended and row.over_at is not None:
                feeding.ended(row)
            elif not row.job_id or row.over_at is not None or row.allocation_id in bringing:
                continue
            elif row.back_at or _should_have_ended(attempt, now):
                out.append(row.job_id)
        if out:
            try:
                slurm_login.ask(self.login, ["scancel", *out])
            except remote.RemoteError as error:
                log.info("scancel in pool %s: %s", self.pool.name, error)


def _is_over(job: FedJob | None, asked: datetime | None) -> bool:
    """Whether Slurm has surely ended a job. `asked`: when the question was put that it has answered now."""
    if job is None or asked is None or job.over_at is None:
        return job is None
    return asked - job.over_at >= timedelta(seconds=_AGAIN_OVER_SECONDS)


def _may_live(member: Member, over_at: datetime, now: datetime) -> bool:
    """Whether its exit file may come yet, or its runner was heard after Slurm said that the job is over."""
    heard = max(filter(None, [over_at, member.heartbeat_at]))
    return now - heard < timedelta(seconds=_LATE_FOLDER_SECONDS)


def _of(row: FedJob, jobs: dict[str, Job]) -> Job | None:
    return jobs.get(row.job_id or row.attempt)


def _should_have_ended(attempt: Allocation | None, now: datetime) -> bool:
    """Whether the job of an attempt outlives it, or a stop that was to have ended it."""
    if attempt is None:
        return False
    slack = timedelta(seconds=_STOP_SLACK_SECONDS)
    if attempt.state == AllocationState.TERMINATED:
        return attempt.settled_at is None or now - attempt.settled_at > slack
    if attempt.stop_kind != StopKind.STOP or attempt.stop_requested_at is None:
        return False
    return now - attempt.stop_requested_at > slack + timedelta(seconds=attempt.stop_grace_seconds or 0.0)


def _free_slots(host_id: uuid.UUID, count: int) -> Sequence[int]:
    """Slots of a node for a run: those that nobody holds, first those that others do not seem to use either."""
    rows = Slot.objects.filter(host_id=host_id, enabled=True, draining=False, missing=False)
    held = rows.filter(holds__isnull=False, holds__released_at=None).values("pk")
    free = sorted(rows.exclude(pk__in=held), key=lambda slot: (bool(slot.outside), slot.index))
    return [slot.pk for slot in free[:count]]
