"""Looks after what a pool has in a Slurm cluster: takes back, begins what got nodes, settles what ended there.

One squeue tells of all jobs of the pool. That the login node or Slurm does not answer settles nothing (law 3), and a
job that Slurm does not know any more is looked for in its run folder before its end is concluded.
"""

from __future__ import annotations

import logging
import random
import uuid
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Q

from dispatch.engines import slurm_jobs
from dispatch.engines.contract import STATUS_TIMEOUT_SECONDS
from dispatch.going_on import going_on
from dispatch.runs import reconcile, settle, slurm_ended, slurm_listed, stop, submitting, uploads
from dispatch.runs.slurm_listed import Jobs
from dispatch.ssh import remote, slurm_login, slurm_node
from events import presence
from events.announce import wake
from events.leases import alone
from experiments import runs
from hosts import slurm_nodes
from hosts.models import Host, ResourcePool, Slot
from hosts.slurm import ends, texts
from hosts.slurm.settings import SlurmSettings
from hosts.slurm.squeue import Job
from jobs import feeding, leaving, transitions
from jobs.fed_jobs import FedJob
from jobs.models import Allocation, Member
from jobs.states import AllocationState, MemberState, StopKind

log = logging.getLogger(__name__)

#: states in which a job has its nodes or is about to; in the others that live it waits
_WAITS = frozenset(
    {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"}
)
#: of these, what comes after it had nodes only if it was requeued
_REQUEUED = _WAITS - {"CONFIGURING"}
#: in which it gets nodes for a run; one that is COMPLETING has had them
_HAS_NODES = "RUNNING"
#: of the time that the nodes of a job wait for its run, the part in which they have to become free in our rows
_NODES_PART = 0.5
#: beyond the grace of a stop, until Slurm is asked to end the job
_STOP_SLACK_SECONDS = 60.0


def due() -> list[int]:
    """The pools that have something in a cluster, or something that is left to do there."""
    fed = FedJob.objects.filter(ended_at=None).values("pool_id")
    awaited = uploads.awaited().filter(host__transport=Host.Transport.SLURM).values("host__pool_id")
    pools = ResourcePool.objects.filter(Q(pk__in=fed) | Q(pk__in=awaited))
    return list(pools.exclude(slurm={}).values_list("pk", flat=True))


def tend(pool_id: int, *, told: bool = False) -> None:
    """Submit and take back what is due, and look at the cluster if that is due. `told`: a job there says that it has
    begun, so it is due soon. One that was told while another look was on its way tells again.
    """
    pool = ResourcePool.objects.filter(pk=pool_id).exclude(slurm={}).first()
    if pool is None:
        return
    try:
        cluster = Cluster(pool, slurm_nodes.login_of(pool))
    except Host.DoesNotExist:
        return
    with alone(f"feed pool {pool_id}") as mine:
        if mine is not None:
            submitting.Submissions(pool, cluster.login).send_due()
    every = settings.SLURM_LOOK_SECONDS if cluster.is_busy() else settings.SLURM_QUIET_LOOK_SECONDS
    if told:
        every = min(every, settings.SLURM_TOLD_LOOK_SECONDS)
    with alone(f"look at pool {pool_id}", every=every) as mine:
        if mine is not None:
            with mine.kept():
                cluster.look()


class Cluster:
    """One pool's cluster, asked by its login node."""

    def __init__(self, pool: ResourcePool, login: Host) -> None:
        self.pool = pool
        self.login = login
        self.settings = SlurmSettings.of(pool.slurm)
        #: attempts whose members still have to be told of a stop
        self._stops: set[str] = set()

    def rows(self) -> list[FedJob]:
        return list(feeding.open_jobs(self.pool.pk).select_related("task", "allocation").order_by("pk"))

    def is_busy(self) -> bool:
        """Whether something may change any moment that nobody else would tell."""
        quiet = Q(allocation__state=AllocationState.RUNNING, allocation__stop_kind="", over_at=None)
        return feeding.open_jobs(self.pool.pk).exclude(quiet).exists()

    # --- looking ----------------------------------------------------------------------------------

    def look(self) -> None:
        """Ask Slurm for all jobs and the login node for all run folders, and settle what differs."""
        rows, asked = self.rows(), presence.database_now()
        listed = slurm_listed.ask(self.pool, self.login, asked) if rows else None
        jobs, unknown = listed or (slurm_listed.Jobs(), set[str]())
        whole = presence.whole() if unknown else None
        hides = listed is not None and slurm_listed.hides_jobs(self.login, rows, jobs)
        over: dict[str, FedJob] = {}
        for row in rows if listed else ():
            with going_on(f"the Slurm job of {row.attempt}"):
                job = slurm_listed.job_of(row, jobs, self.login)
                is_hidden = hides and row.unix_user
                if job is None and (is_hidden or slurm_listed.says_nothing(row, self.login, unknown, whole)):
                    continue
                if self._is_over(row, job, asked):
                    over[row.attempt] = row
        slurm_ended.ask(self.pool, self.login, over.values())
        for row in over.values():
            with going_on(f"the end of the Slurm job of {row.attempt}"):
                self._over_unbegun(row)
        self._stops = set()
        self._look_at_runs(feeding.of_allocations(self.pool.pk), over)
        self._forget(over)
        if jobs:
            self._take_out(jobs, over)
        for attempt in sorted(self._stops):  # at last: nodes that do not answer take their time
            with going_on(f"the stop of {attempt}"):
                stop.stop(attempt)

    def _is_over(self, row: FedJob, job: Job | None, now: datetime) -> bool:
        """Whether its job is over, as two answers have said; else what it does is noted, and it begins if it can."""
        if not row.job_id:
            self._in_doubt(row, job, now)
            return False
        if job is None or ends.has_ended(job.state):
            return feeding.over(row, job.state if job else "", now)
        if row.allocation_id is not None and job.state in _REQUEUED:  # its attempt is not begun a second time
            return feeding.over(row, ends.REQUEUED, now)
        has_nodes = job.state == _HAS_NODES and bool(job.nodelist)
        feeding.seen(row, state=job.state, has_nodes=has_nodes, reason=job.reason, starts_at=job.starts_at)
        if row.allocation_id is None and row.back_at is None and has_nodes:
            self._begin(row, job, now)
        return False

    def _over_unbegun(self, row: FedJob) -> None:
        if row.allocation_id is not None:
            return
        if row.back_at is not None:
            feeding.ended(row)
            return
        sentence = f"Slurm does not know job {row.job_id} any more."
        if ends.says_how(row.state):
            sentence = f"Slurm job {row.job_id} ended as {row.state} before its run began"
            if self.settings.folder_is_shared:
                printer = slurm_listed.user_of(row, self.login) if self.settings.has_own_accounts else ""
                printed = slurm_jobs.output(self.login.workdir, row.attempt, printer)
                sentence += f"; what it printed, if anything, is in {printed} on the cluster"
            sentence += "."
        log.warning("%s: %s", row.attempt, sentence)
        feeding.turned_down(row, sentence, submitting.pause(row))

    def _in_doubt(self, row: FedJob, job: Job | None, now: datetime) -> None:
        """Whether an sbatch without an answer made a job. One that comes later still is taken out (`_take_out`)."""
        if job is not None:
            feeding.submitted(row, job.id)
        elif row.sent_at is not None and (row.send_after is None or row.send_after <= now):
            if not feeding.over(row, "", now):
                return
            if row.back_at is not None:
                feeding.ended(row)
            else:
                feeding.not_submitted(row, row.error, 0.0, in_doubt=False)

    def _begin(self, row: FedJob, job: Job, now: datetime) -> None:
        """The nodes in Slurm's order, which is that of the members. A node that is not known yet is waited for."""
        known = slurm_nodes.of_pool(self.pool)
        names = texts.nodes(job.nodelist)
        if len(names) != row.nodes or not all(name in known for name in names):
            log.warning("job %s runs on %s, which are not all known", row.job_id, job.nodelist)
            slurm_nodes.read_soon(self.pool)
            return
        hosts = [known[name] for name in names]
        if avoided := sorted(host.name for host in hosts if host.address in submitting.avoided(known, row)):
            feeding.take_back(row, f"Slurm gave it {', '.join(avoided)}, where its work may not run")
            return
        try:
            with transaction.atomic():
                each = row.task.slots // len(hosts)
                placement = [(host.pk, _free_slots(host.pk, each)) for host in hosts]
                made = feeding.begin(row, placement)
                if made is not None:
                    runs.begin_all([made])
                    wake("dispatch.tasks.merge_logs", (made.task_id,))
        except feeding.NotYet:
            if feeding.waits_for_nodes(row, now).total_seconds() > settings.SLURM_START_SECONDS * _NODES_PART:
                feeding.take_back(row, f"its nodes {job.nodelist} did not become free here")
            return
        if made is None:  # paused, ended or moved since
            feeding.take_back(row, "it may not start any more")

    # --- runs -------------------------------------------------------------------------------------

    def _look_at_runs(self, jobs: Mapping[str, FedJob], over: Collection[str]) -> None:
        """`jobs`: the open ones by attempt; `over`: attempts of those that are over. What Slurm may still run, and that
        of which a runner was heard just now, is looked at by its folder alone.
        """
        members = list(
            Member.objects.filter(host__pool=self.pool, host__transport=Host.Transport.SLURM)
            .exclude(state=MemberState.ENDED)
            .select_related("host", "allocation__task__job__owner", "allocation__pool")
        )
        uploading = list(
            uploads.awaited()
            .filter(host__pool=self.pool, host__transport=Host.Transport.SLURM)
            .select_related("allocation__task__job__owner", "allocation__pool")
        )
        if not members and not uploading:
            return
        both, whole = [*members, *uploading], presence.whole()
        keys = [member.run_key for member in both]
        gone = {m.allocation_id for m in both if m.allocation_id in over or m.allocation_id not in jobs}
        ended = [m.run_key for m in both if m.allocation_id in gone and not slurm_ended.is_heard(m, whole)]
        living = sorted(set(keys) - set(ended))
        try:
            found = self._folders(both, living, ended)
        except remote.RemoteError as error:
            log.info("runs of pool %s: %s", self.pool.name, error)
            return
        for member in members:
            job, run = jobs.get(member.allocation_id), found.get(member.run_key)
            if job is None or job.over_at is None or member.allocation_id in gone:
                with going_on(f"the run {member.run_key}"):
                    self._settle(member, run or {"state": "absent"}, job, whole)
        for member in uploading:
            with going_on(f"the uploads of {member.run_key}"):
                uploads.settle(member, found.get(member.run_key) or {"state": "absent"})

    def _folders(
        self, members: Sequence[Member], living: Sequence[str], over: Sequence[str]
    ) -> dict[str, dict[str, Any]]:
        """What the folders of the runs say, by run key. Raises RemoteError.

        Nobody asks nodes that have their own: their runners tell what happens there, until Slurm's job is over.
        """
        if not self.settings.folder_is_shared:
            begun = {m.run_key for m in members if m.state != MemberState.ASSIGNED}
            return {key: {"state": "prepared"} for key in living if key in begun}
        accounts = {m.run_key: m.allocation.account for m in members}
        request = {"runs": list(accounts), "accounts": accounts, "elsewhere": living, "over": over}
        answer = remote.verb(self.login, "status", request, timeout_seconds=STATUS_TIMEOUT_SECONDS)
        runs: dict[str, dict[str, Any]] = answer["runs"]
        return runs

    def _settle(
        self, member: Member, run: dict[str, Any], job: FedJob | None, whole: presence.Whole | None
    ) -> None:
        state = run.get("state")
        if state is None:
            log.warning("%s: %s", member.run_key, run.get("message"))
            if whole and job and job.over_at and slurm_ended.is_long_over(member, job.over_at, whole):
                slurm_ended.settle_over(member, job, {}, self.settings.ends, whole)
        elif run.get("exit") is not None:
            if not settle.ended_by_slurm(member, stopped=bool(run["exit"].get("stopped"))):
                reconcile.settle_ended(member, run, "")
            elif whole is not None and job is not None and job.over_at is not None:
                slurm_ended.settle_over(member, job, run, self.settings.ends, whole)
        elif job is None or job.over_at is not None:
            if whole and job and job.over_at and not slurm_ended.may_live(member, job.over_at, whole):
                slurm_ended.settle_over(member, job, run, self.settings.ends, whole)
        elif state in {"running", "prepared"}:
            if member.state == MemberState.ASSIGNED:
                transitions.member_launched(member.pk, boot_id="")
            if state == "running":
                transitions.member_running(member.pk)
            if run.get("preempt"):
                leaving.asked_by_slurm(member.allocation_id)
            if member.allocation.stop_kind:
                self._stops.add(member.allocation_id)

    # --- taking out -------------------------------------------------------------------------------

    def _forget(self, over: Collection[str]) -> None:
        """What is over on both sides."""
        for row in self.rows():
            ended = row.allocation is not None and row.allocation.state == AllocationState.TERMINATED
            if ended and row.attempt in over:
                feeding.ended(row)

    def _take_out(self, jobs: Jobs, over: Collection[str]) -> None:
        """Cancel what is to leave Slurm, as far as it is ours: by id and comment, as Slurm has just told them."""
        now = presence.database_now()
        living: Jobs = {job.id: job for job in jobs.values() if not ends.has_ended(job.state)}
        bringing = set(uploads.awaited().filter(host__pool=self.pool).values_list("allocation_id", flat=True))
        marks = {job.id: (job.comment, job.user) for job in living.values() if job.comment not in bringing}
        login = slurm_listed.account_of(self.login)
        out: dict[str, FedJob | None] = dict.fromkeys(feeding.strays(self.pool.pk, marks, login))
        for row in self.rows():
            job = slurm_listed.job_of(row, living, self.login) if row.job_id else None
            is_waste = row.attempt in over or _should_have_ended(row.allocation, now)
            leaves = row.back_at is not None or is_waste
            if job is not None and leaves and row.allocation_id not in bringing:
                out[job.id] = row
        is_root = (self.login.facts.get("account") or {}).get("switch") == "root"
        by_user: dict[str, list[str]] = {}
        for job in self._without_unknown_runs({living[id_]: row for id_, row in out.items()}):
            its = out[job.id]
            user = slurm_listed.user_of(its, self.login) if its else job.user
            by_user.setdefault(login if is_root else user, []).append(job.id)
        # in no order, so that a silent one is not before the same others each time
        for user in sorted(by_user, key=lambda each: (each != login, random.random())):
            person = None if user == login else slurm_login.Person(user)
            try:
                slurm_login.ask(self.login, ["scancel", *by_user[user]], person=person)
            except remote.RemoteError as error:
                log.info("scancel in pool %s: %s", self.pool.name, error)
                for row in filter(None, map(out.get, by_user[user])):
                    feeding.not_taken_out(row, str(error))
                if error.delivered or error.may_pass:  # it is silent: the others are for the next look
                    return

    def _without_unknown_runs(self, out: dict[Job, FedJob | None]) -> list[Job]:
        """The jobs that may be canceled. One that has nodes and no attempt here may have a run all the same,
        which is newer than the backup that the server was restored from: a job with a run folder is left alone.
        """
        asked = {
            job: [f"{job.comment}.{node}" for node in range(max(1, job.nodes))]
            for job, row in out.items()
            if job.state not in _WAITS and (row is None or row.allocation_id is None)
        }
        for job, keys in list(asked.items()):
            try:
                answer = self._runs_in(job, keys)
            except remote.RemoteError as error:
                log.info("runs of job %s in pool %s: %s", job.id, self.pool.name, error)
                continue
            if all(answer.get(key, {}).get("state") == "absent" for key in keys):
                del asked[job]
            elif (row := out[job]) is not None:
                feeding.take_back(
                    row, f"job {job.id} has a run that this server does not know; it is left to end"
                )
        return [job for job in out if job not in asked]

    def _runs_in(self, job: Job, keys: Sequence[str]) -> dict[str, dict[str, Any]]:
        """What there is of these runs where the job has its nodes; of some it may not be known. Raises RemoteError.

        `keys`: in Slurm's order of the nodes.
        """
        request: dict[str, Any] = {"runs": keys}
        if self.settings.folder_is_shared:
            user = None if job.user == slurm_listed.account_of(self.login) else job.user
            request |= {"elsewhere": keys, "accounts": dict.fromkeys(keys, user)}
            answer = remote.verb(self.login, "status", request, timeout_seconds=STATUS_TIMEOUT_SECONDS)
        else:
            known, names = slurm_nodes.of_pool(self.pool), texts.nodes(job.nodelist)
            if len(names) != len(keys) or not known.keys() >= set(names):
                raise remote.RemoteError(f"Its nodes {job.nodelist} are not all known.")
            nodes = [known[name] for name in names]
            own = {name: {key: None} for name, key in zip(names, keys, strict=True)}
            answer = slurm_node.verb(self.login, job.id, nodes, "status", {"of_node": own})
        runs: dict[str, dict[str, Any]] = answer["runs"]
        return runs


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
