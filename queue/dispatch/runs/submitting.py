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
from dispatch.runs.slurm_listed import account_of
from dispatch.ssh import remote, slurm_login
from dispatch.ssh.server_route import server_address
from dispatch.ssh.slurm_login import Person, SlurmRefused
from events import presence
from hosts import login_accounts, slurm_nodes
from hosts.models import Host, ResourcePool, Slot
from hosts.slurm.settings import JobSettings, SlurmSettings
from jobs import feeding
from jobs.fed_jobs import FedJob
from jobs.time_limits import time_used
from trainmaster.host.launching import SHARED_MODE
from trainmaster.own_folders import SHELL
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


def _pause_unsent(row: FedJob) -> float:
    """The same of one whose account did not even get to its submission: as long as it has waited by now, so each time
    about twice as long.
    """
    waited = (presence.database_now() - row.made_at).total_seconds() * random.uniform(0.8, 1.2)
    return max(pause(row), min(_AGAIN_SECONDS[1], waited))


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
        for row in feeding.open_jobs(self.pool.pk).select_related("task__job__owner").order_by("pk"):
            if row.job_id or row.allocation_id or row.sent_at is not None:
                continue
            if row.back_at is not None:
                feeding.ended(row)
            elif row.send_after is None or row.send_after <= now:
                due.append(row)
        if due and self._has_bundle() and self._has_folder(due):
            for account, rows in self._by_account(due).items():
                self._send_all(account, rows)

    def _by_account(self, due: Iterable[FedJob]) -> dict[str, list[FedJob]]:
        """The rows by the account under which they are submitted; empty: that of the login node.

        Accounts with something that was tried before come last: anybody may hold up what runs under their own.
        """
        found: dict[str, list[FedJob]] = {}
        for row in due:
            account = login_accounts.unix_user(self.pool, row.task.job.owner.unix_user) or ""
            found.setdefault(account, []).append(row)
        slow = {account: any(row.sends or row.refused for row in rows) for account, rows in found.items()}
        return dict(sorted(found.items(), key=lambda each: slow[each[0]]))

    def _send_all(self, account: str, rows: list[FedJob]) -> None:
        """Those of one account, until one is not answered: what is wrong with it holds up nobody else's for long."""
        if self._printer(account) and not self._has_own_folder(account, rows):
            return
        for row in rows:
            with going_on(f"the submission of {row.attempt}"):
                if not self._send(row, account) and account:
                    return

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
        root, mark = Path(self._shared_folder), Workdir(Path(self._shared_folder)).shared
        no_mark = f"{shlex.quote(str(root))} is not the folder that the cluster shares, or is not mounted"
        is_there = f"[ -e {shlex.quote(str(mark))} ] || {{ echo {no_mark} >&2; exit 1; }}"
        if self.settings.has_own_accounts:  # sticky, so that each account makes its own there
            printed = shlex.quote(slurm_jobs.printed_folder(self._shared_folder))
            script = f"{is_there}; mkdir -p {printed} && chmod {SHARED_MODE:o} {printed}"
        else:
            folder = slurm_jobs.output_folder(self._shared_folder)
            script = f"{is_there}; {_kept_in(folder, f'mkdir -p {shlex.quote(folder)}')}"
        return self._asked(due, script)

    def _has_own_folder(self, account: str, rows: Iterable[FedJob]) -> bool:
        """The same of one account: it alone writes there, and removes what is old."""
        folder = slurm_jobs.output_folder(self._shared_folder, self._printer(account))
        place = shlex.quote(folder)
        make = f"{{ mkdir -m 700 {place} 2>/dev/null; {SHELL}; ours {place}; }}"
        return self._asked(rows, _kept_in(folder, make), account)

    def _asked(self, rows: Iterable[FedJob], script: str, account: str = "") -> bool:
        """Whether the script did well on the login node; else why not is kept, and nothing was submitted."""
        rows = list(rows)
        person = self._person(rows[0], account) if account else None
        try:
            slurm_login.ask(self.login, ["sh", "-c", script], person=person)
        except remote.RemoteError as error:
            of_account = account and isinstance(error, remote.VerbFailed | SlurmRefused)
            for row in rows:
                if of_account:  # it takes no place of others while it cannot be used
                    feeding.turned_down(row, str(error), _pause_unsent(row))
                else:
                    feeding.not_submitted(row, str(error), _UNASKED_SECONDS, in_doubt=False)
            return False
        return True

    def _person(self, row: FedJob, account: str) -> Person | None:
        """Under which account Slurm is asked for a job; None: that of the login node."""
        return Person(account, login_accounts.unix_ids(row.task.job.owner, account)) if account else None

    def _printer(self, account: str) -> str:
        """Whose folder has what a job prints; empty: the one that all share."""
        return (account or account_of(self.login)) if self.settings.has_own_accounts else ""

    def _send(self, row: FedJob, account: str) -> bool:
        """One sbatch: whether it was answered. If not, the job is looked for by its comment before another is sent
        (`clusters`).
        """
        own = slurm_sections.of_tasks([row.task_id]).get(row.task_id, JobSettings())
        words = slurm_jobs.command(self.settings.with_job(own), self._wish(row, account))
        script = self._script(row, account)
        if not feeding.claim_submission(row, account):
            return True
        doubt = feeding.DOUBT_SECONDS
        try:
            said, _ = slurm_login.ask(self.login, words, script.encode(), person=self._person(row, account))
        except SlurmRefused as error:
            if slurm_jobs.may_have_come(error.said):
                feeding.not_submitted(row, str(error), doubt, in_doubt=True)
            else:
                feeding.turned_down(row, str(error), pause(row))
            return True
        except remote.NotAsked as error:
            feeding.not_submitted(row, str(error), _UNASKED_SECONDS, in_doubt=False)
            return False
        except remote.RemoteError as error:
            account_said_no = isinstance(error, remote.VerbFailed) and not error.delivered
            if account_said_no:
                feeding.turned_down(row, str(error), pause(row))
            else:
                feeding.not_submitted(row, str(error), doubt, in_doubt=True)
            return False
        job_id = slurm_jobs.job_id_of(said)
        if job_id:
            feeding.submitted(row, job_id)
        else:
            feeding.not_submitted(row, f"sbatch answered {said.strip()[:200]!r}", doubt, in_doubt=True)
        return True

    @property
    def _shared_folder(self) -> str:
        """Of the runs, on the login node and all nodes; empty: each node has its own."""
        return self.login.workdir if self.settings.folder_is_shared else ""

    def _script(self, row: FedJob, account: str) -> str:
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
        printed = slurm_jobs.output(folder, row.attempt, self._printer(account))
        return slurm_jobs.script(attend, ask, tell, word, printed)

    def _wish(self, row: FedJob, account: str) -> slurm_jobs.Wish:
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
            printer=self._printer(account),
        )


def _kept_in(folder: str, make: str) -> str:
    """A script that makes the folder, tries to write there, and removes what is old."""
    place = shlex.quote(folder)
    can_write = f"{make} && echo > {place}/.tried && rm -f {place}/.tried"
    fails = f"{{ echo {place} cannot be written to >&2; exit 1; }}"
    return f"{can_write} || {fails}; find {place} -maxdepth 1 -type f -mtime +{_KEPT_DAYS} -exec rm -f {{}} + || :"
