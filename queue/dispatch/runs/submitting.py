"""Hands to Slurm what `jobs.feeding` has chosen: one sbatch for each, and what each asks of the cluster."""

from __future__ import annotations

import logging
import random
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path

from django.conf import settings
from django.db.models import Q

from dispatch.engines import slurm_jobs, slurm_sections
from dispatch.going_on import going_on
from dispatch.ssh import remote, slurm_login
from dispatch.ssh.server_route import server_address
from dispatch.ssh.slurm_login import SlurmRefused
from events import presence
from hosts import slurm_nodes
from hosts.models import Host, ResourcePool, Slot
from hosts.slurm.settings import JobSettings, SlurmSettings
from jobs import feeding
from jobs.fed_jobs import FedJob
from jobs.time_limits import time_used
from trainmaster.paths import Workdir

log = logging.getLogger(__name__)

#: after a job that Slurm refused or ended before its run began; doubled each time, up to the second
_AGAIN_SECONDS = (30.0, 600.0)
#: after a login node that was not asked at all
_UNASKED_SECONDS = 15.0
#: Slurm counts time limits in minutes; asked for beyond our own limit, which so comes first
_SPARE_MINUTES = 10
#: what jobs printed that began no run is kept for so long
_KEPT_DAYS = 14


def pause(row: FedJob) -> float:
    """Seconds until a job is handed over again that Slurm refused or ended; longer after each time."""
    first, most = _AGAIN_SECONDS
    return min(most, first * 2.0 ** min(row.sends, 10)) * random.uniform(0.8, 1.2)


def avoided(nodes: Mapping[str, Host], row: FedJob) -> set[str]:
    """Names in Slurm of the nodes from which a person or the job's config keeps its work.

    Where Slurm itself starts nothing, it knows. A slot that a person took out of use takes its node: Slurm would choose
    the GPU itself.
    """
    only, off = row.task.only_hosts, Q(enabled=False) | Q(draining=True)
    ids = [host.pk for host in nodes.values()]
    partly = set(Slot.objects.filter(off, host__in=ids, missing=False).values_list("host_id", flat=True))
    return {
        name
        for name, host in nodes.items()
        if not host.enabled
        or (host.draining and host.drain_cause != Host.Drain.SLURM)
        or host.pk in partly
        or host.name in row.task.avoid_hosts
        or (only and host.name not in only)
    }


class Submissions:
    """Those of one pool, by its login node."""

    def __init__(self, pool: ResourcePool, login: Host) -> None:
        self.pool = pool
        self.login = login
        self.settings = SlurmSettings.of(pool.slurm)

    def send_due(self) -> None:
        """Hand to Slurm what is not there yet; forget what never was and is no longer wanted."""
        now, due = presence.database_now(), []
        for row in feeding.open_jobs(self.pool.pk).select_related("task").order_by("pk"):
            if row.job_id or row.allocation_id or row.sent_at is not None:
                continue
            if row.back_at is not None:
                feeding.ended(row)
            elif row.send_after is None or row.send_after <= now:
                due.append(row)
        if due and self._has_bundle() and self._has_folder(due):
            for row in due:
                with going_on(f"the submission of {row.attempt}"):
                    self._send(row)

    def _has_bundle(self) -> bool:
        """Whether the login node has the current bundle, a program of which each job runs."""
        try:
            remote.bring_bundle(self.login)
        except remote.RemoteError as error:
            log.info("the bundle could not be brought to %s: %s", self.login.name, error)
            return False
        return True

    def _has_folder(self, due: Iterable[FedJob]) -> bool:
        """Make the folder of what jobs print, without which Slurm fails them, and remove what is old there.

        No job may take nodes for a run that could not be laid into a folder that is not mounted, full or read-only.
        """
        if not self._shared_folder:
            return True
        folder = shlex.quote(slurm_jobs.output_folder(self._shared_folder))
        old = f"find {folder} -maxdepth 1 -type f -mtime +{_KEPT_DAYS} -exec rm -f {{}} +"
        root, mark = Path(self._shared_folder), Workdir(Path(self._shared_folder)).shared
        no_mark = f"{shlex.quote(str(root))} is not the folder that the cluster shares, or is not mounted"
        is_there = f"[ -e {shlex.quote(str(mark))} ] || {{ echo {no_mark} >&2; exit 1; }}"
        can_write = f"mkdir -p {folder} && echo > {folder}/.tried && rm -f {folder}/.tried"
        fails = f"{{ echo {folder} cannot be written to >&2; exit 1; }}"
        try:
            slurm_login.ask(self.login, ["sh", "-c", f"{is_there}; {can_write} || {fails}; {old} || :"])
        except remote.RemoteError as error:
            for row in due:
                feeding.not_submitted(row, str(error), _UNASKED_SECONDS, in_doubt=False)
            return False
        return True

    def _send(self, row: FedJob) -> None:
        """One sbatch. Without an answer the job is looked for by its comment before another is sent (`clusters`)."""
        own = slurm_sections.of_tasks([row.task_id]).get(row.task_id, JobSettings())
        words = slurm_jobs.command(self.settings.with_job(own), self._wish(row))
        script = self._script(row)
        if not feeding.claim_submission(row):
            return
        doubt = feeding.DOUBT_SECONDS
        try:
            said, _ = slurm_login.ask(self.login, words, script.encode())
        except SlurmRefused as error:
            if slurm_jobs.may_have_come(error.said):
                feeding.not_submitted(row, str(error), doubt, in_doubt=True)
            else:
                feeding.turned_down(row, str(error), pause(row))
            return
        except remote.NotAsked as error:
            feeding.not_submitted(row, str(error), _UNASKED_SECONDS, in_doubt=False)
            return
        except remote.RemoteError as error:
            feeding.not_submitted(row, str(error), doubt, in_doubt=True)
            return
        job_id = slurm_jobs.job_id_of(said)
        if job_id:
            feeding.submitted(row, job_id)
        else:
            feeding.not_submitted(row, f"sbatch answered {said.strip()!r}", doubt, in_doubt=True)

    @property
    def _shared_folder(self) -> str:
        """Of the runs, on the login node and all nodes; empty: each node has its own."""
        return self.login.workdir if self.settings.folder_is_shared else ""

    def _script(self, row: FedJob) -> str:
        seconds, python = settings.SLURM_START_SECONDS, remote.python_of(self.login)
        folder = self._shared_folder
        if folder:
            program = f"{folder}/bundle/{self.login.bundle_sha256}/trainmaster/runner"
            runner = (python, "-S", "-E", program)
            attend = slurm_jobs.attend(runner, folder, row.attempt, seconds)
            ask = slurm_jobs.ask_to_save(runner, folder, row.attempt, row.nodes)
            tell = slurm_jobs.tell_begun(runner, row.attempt)
        else:
            own = self.settings.folder
            attend = slurm_jobs.attend_apart(python, own, row.attempt, seconds)
            ask = slurm_jobs.ask_to_save_apart(python, own, row.attempt, row.nodes)
            tell = ("true",)  # the program that could is not there yet
        word = slurm_jobs.word_of(server_address(self.login), feeding.start_token(row.attempt))
        return slurm_jobs.script(attend, ask, tell, word, slurm_jobs.output(folder, row.attempt))

    def _wish(self, row: FedJob) -> slurm_jobs.Wish:
        nodes = slurm_nodes.of_pool(self.pool)
        slots = max((host.slots.filter(missing=False).count() for host in nodes.values()), default=1)
        cpus = min((int(host.facts.get("slurm", {}).get("cpus") or 0) for host in nodes.values()), default=0)
        limit = row.task.max_time_seconds
        minutes = None
        if limit is not None:
            left = max(0.0, limit - time_used([row.task_id]).get(row.task_id, 0.0))
            minutes = int((left + settings.TIME_LIMIT_SAVE_SECONDS) // 60) + _SPARE_MINUTES
        return slurm_jobs.Wish(
            attempt=row.attempt,
            nodes=row.nodes,
            slots=row.task.slots,
            folder=self._shared_folder,
            cpus_per_slot=cpus // max(1, slots),
            minutes=minutes,
            grace_seconds=int(settings.TIME_LIMIT_SAVE_SECONDS),
            exclude=avoided(nodes, row),
        )
