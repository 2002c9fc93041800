"""The jobs that squeue lists of a pool's accounts, and which of them is whose."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

from accounts.refusals import Refusal
from dispatch.ssh import remote, slurm_login
from events.presence import Whole
from hosts.models import Host, ResourcePool
from hosts.slurm import ends, facts, scontrol, squeue, texts
from hosts.slurm.squeue import Job
from jobs import feeding
from jobs.fed_jobs import FedJob

log = logging.getLogger(__name__)

#: by id, and by user and comment
Jobs = dict[str | tuple[str, str], Job]

#: an account that is not found for so long is not waited for
_DELETED_SECONDS = 3600.0


def account_of(login: Host) -> str:
    """The Unix account of a login node, as Slurm names it."""
    return str((login.facts.get("account") or {}).get("name") or login.login_user)


def user_of(row: FedJob, login: Host) -> str:
    """Whose its job is in Slurm."""
    return row.unix_user or account_of(login)


def job_of(row: FedJob, jobs: Mapping[str | tuple[str, str], Job], login: Host) -> Job | None:
    """Its job. A new cluster counts from 1 again, so a job with the id and another comment is a different one.

    A job is looked for by its comment under its own account alone: anybody may give a job of theirs any comment.
    """
    job = jobs.get(row.job_id or (user_of(row, login), row.attempt))
    return job if job is not None and job.comment == row.attempt else None


class Listed(NamedTuple):
    """The jobs of the pool's accounts by id and, if they live, by user and comment; and the accounts that the login
    node could not find just now, as while a directory does not answer: of their jobs squeue lists none.
    """

    jobs: Jobs
    unknown: set[str]


def says_nothing(row: FedJob, login: Host, unknown: Collection[str], whole: Whole | None) -> bool:
    """Whether that its job is not listed means nothing. An account that is not found for very long was deleted."""
    if user_of(row, login) not in unknown:
        return False
    last = row.seen_at or row.sent_at or row.made_at
    return whole is None or (whole.now - max(whole.since, last)).total_seconds() < _DELETED_SECONDS


def hides_jobs(login: Host, rows: Iterable[FedJob], jobs: Jobs) -> bool:
    """Whether Slurm may by now hide the jobs of people from the login node; asked where one of theirs is not listed."""
    sent = [row for row in rows if row.unix_user and (row.job_id or row.sent_at)]
    if all(job_of(row, jobs, login) for row in sent):
        return False
    try:
        config = scontrol.config(texts.clean(slurm_login.ask(login, scontrol.CONFIG)[0]))
        facts.refuse_hidden_jobs(config, account_of(login))
    except (remote.RemoteError, Refusal) as error:
        log.warning("jobs that are not listed on %s are not taken as over: %s", login.name, error)
        return True
    return False


def ask(pool: ResourcePool, login: Host, asked: datetime) -> Listed | None:
    """What squeue lists; None: Slurm has not said. `asked`: the present time, by the database."""
    mark, own = f"#{secrets.token_hex(8)}#", account_of(login)
    users = {own, *filter(None, feeding.accounts_of(pool.pk, asked))}
    try:
        said, warned = slurm_login.ask(login, squeue.command(mark, user=",".join(sorted(users))))
    except remote.RemoteError as error:
        log.info("squeue of pool %s: %s", pool.name, error)
        return None
    found = squeue.jobs(said, mark)
    if len(users) == 1:  # however Slurm writes its name
        found = [job._replace(user=own) for job in found]
    living = [job for job in found if job.comment and not ends.has_ended(job.state)]
    by_comment: Jobs = {(job.user, job.comment): job for job in living}
    return Listed(by_comment | {job.id: job for job in found}, squeue.unknown_users(warned))
