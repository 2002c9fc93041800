"""Deletes experiments, and the files of checkpoints that are to go (experiments.checkpoint_deletion).

Of an experiment its files go first and its rows last, so that an interrupted deletion continues. What is to go is in
rows, and removing what is gone already is fine: a worker that dies in the middle, a storage that does not answer and a
host that is away cost time alone. Files that the server does not reach are deleted by a host that does.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Collection
from typing import Any

from django.db import transaction
from django.utils import timezone

from dispatch.going_on import going_on
from dispatch.keeping import goodput
from dispatch.ssh import remote
from experiments import checkpoint_deletion, event_files, media, s3_stores, stored_files
from experiments.models import Checkpoint, Experiment
from experiments.states import CheckpointState, ExperimentState
from experiments.stored_files import NotHere
from experiments.transitions import lock, set_experiment_state
from hosts import login_accounts
from hosts.models import Host, ResourcePool
from jobs import cleaning
from jobs.models import Allocation, Job, Task
from jobs.states import Reason
from metrics.models import Group
from scheduling.reasons import lacks_account
from submissions import contexts
from submissions.config.environment import variables

log = logging.getLogger(__name__)

#: The lease (events.leases) of these removals: one worker removes files at a time, and none while a backup copies them.
REMOVAL = "remove_checkpoint_files"

_TIMEOUT_SECONDS = 120.0
_OTHERS_MAX = 4


def delete(experiment_id: int) -> bool:
    """Remove the experiment marked DELETING; False when it is not (any more)."""
    experiment = Experiment.objects.filter(pk=experiment_id, state=ExperimentState.DELETING).first()
    if experiment is None:
        return False
    if cleaning.under_way().filter(allocation__task__trial__experiment=experiment).exists():
        log.info("experiment %s will be deleted when its hosts have removed everything of it", experiment_id)
        return False
    try:
        stored = Checkpoint.objects.filter(trial__experiment=experiment).exclude(
            state=CheckpointState.DELETED
        )
        for checkpoint in stored.select_related("trial__experiment__owner"):
            _remove_files(checkpoint, experiment)
        event_files.delete(experiment.pk)
        media.delete(experiment.pk)
    except OSError as error:
        log.error("experiment %s was not deleted: %s", experiment_id, error)
        _failed(experiment_id)
        return False
    goodput.tell_all_of(experiment.pk, timezone.now())
    _rows(experiment)
    return True


def _remove_files(checkpoint: Checkpoint, experiment: Experiment) -> None:
    """Its files. What a detached run has stored out of the server's reach is its user's, and stays there."""
    try:
        delete_files(checkpoint)
    except NotHere as error:
        if not experiment.unmanaged:
            raise
        log.info("files of checkpoint %s of a detached run are left in place: %s", checkpoint.pk, error)


@transaction.atomic
def _failed(experiment_id: int) -> None:
    set_experiment_state(
        lock(experiment_id), ExperimentState.DELETE_FAILED, reason=Reason.KILLED_BY_USER, actor="server"
    )


@transaction.atomic
def _rows(experiment: Experiment) -> None:
    trial_ids = list(experiment.trials.values_list("pk", flat=True))
    task_ids = list(experiment.trials.values_list("task_id", flat=True))
    job_id, context_id = experiment.job_id, experiment.context_id
    Group.objects.filter(trial_id__in=trial_ids).delete()
    experiment.delete()
    Task.objects.filter(pk__in=task_ids).delete()
    Job.objects.filter(pk=job_id).delete()
    contexts.forget(context_id)


def remove_due(seconds: float, may_continue: Callable[[], bool] = lambda: True) -> bool:
    """Remove files for about so long, of each checkpoint once; True when the time was up before all had been tried.

    What has failed before is tried again with the next beat, so it asks for no further round. Before each checkpoint
    `may_continue` is asked: a backup may have begun while this process was stopped.
    """
    until = time.monotonic() + seconds
    tried: set[uuid.UUID] = set()
    while may_continue() and (checkpoint := _next(tried)):
        if time.monotonic() > until:
            return not checkpoint.deletion_waits_for
        tried.add(checkpoint.pk)
        with going_on(f"the removal of files of checkpoint {checkpoint.pk}"):  # deleted meanwhile, perhaps
            _remove_marked(checkpoint)
    return False


def _next(tried: set[uuid.UUID]) -> Checkpoint | None:
    """One that nothing is known to stand against, else any: what one host keeps waiting delays no other."""
    left = checkpoint_deletion.to_remove().exclude(pk__in=tried)
    return left.filter(deletion_waits_for="").first() or left.order_by("?").first()


def _remove_marked(checkpoint: Checkpoint) -> None:
    paths = None if checkpoint.state == CheckpointState.DELETING else list(checkpoint.doomed or [])
    try:
        delete_files(checkpoint, paths)
    except OSError as error:  # a sentence of the storage: it does not answer, or is not the server's to reach
        log.warning("files of checkpoint %s could not be removed yet: %s", checkpoint.pk, error)
        checkpoint_deletion.waits(checkpoint, str(error))
        return
    checkpoint_deletion.gone(checkpoint, paths)


def delete_files(checkpoint: Checkpoint, paths: Collection[str] | None = None) -> None:
    """Remove these files, or all, from whatever storage. What is gone already is fine.

    Raises an OSError whose sentence says why they are still there. Never inside a transaction.
    """
    try:
        stored_files.store_of(checkpoint).delete(paths)
        return
    except NotHere as error:
        attempts = Allocation.objects.select_related("pool", "task__job__owner")
        allocation = attempts.filter(pk=checkpoint.allocation_id).first()
        hosts = _hosts(checkpoint, allocation) if allocation else []
        if allocation is None or not hosts:
            raise NotHere(f"{error} No host that can reach them is responding.") from error
        # the removal runs what the job's config names, in the job's environment
        account, pool = allocation.account, allocation.pool
        able = [host for host in hosts if login_accounts.may_run(pool, account, host.facts)]
        if not able or (checkpoint.storage.get("type") == "directory" and len(able) < len(hosts)):
            names = [host.name for host in hosts if host not in able]
            reason = lacks_account(names, pool.name, shared=login_accounts.is_shared(pool))
            raise NotHere(f"{error} It cannot be removed: {reason.sentence}.") from error
        hosts = able
    requests = _requests(checkpoint, allocation, paths)
    if checkpoint.storage.get("type") == "directory":  # each host has its own
        for host in hosts:
            _ask(host, allocation.pool, requests)
        return
    failure: OSError | None = None
    for host in hosts:
        try:
            _ask(host, allocation.pool, requests)
            return
        except OSError as error:
            failure = error
    raise failure or NotHere("No host was asked.")


def _hosts(checkpoint: Checkpoint, allocation: Allocation) -> list[Host]:
    """Who may have, or reach, its files: the hosts that made it first; of a shared storage any of its pool then.

    Nobody of a detached run: its machines are its user's. Of a Slurm cluster the login node, which reaches its storage.
    """
    members = allocation.members.exclude(host__transport__in=[Host.Transport.NONE, Host.Transport.SLURM])
    made = [member.host for member in members.select_related("host").order_by("index")]
    if checkpoint.storage.get("type") == "directory":
        return list({host.pk: host for host in made if host.admission != Host.Admission.REMOVED}.values())
    reachable = Host.objects.filter(contact=Host.Contact.REACHABLE, admission=Host.Admission.READY)
    others = (
        reachable.filter(pool_id=allocation.pool_id)
        .exclude(transport=Host.Transport.SLURM)
        .order_by("name")[:_OTHERS_MAX]
    )
    able = {host.pk: host for host in [*made, *others]}
    ready = set(reachable.filter(pk__in=able).values_list("pk", flat=True))
    return [host for pk, host in able.items() if pk in ready]


def _requests(
    checkpoint: Checkpoint, allocation: Allocation, paths: Collection[str] | None
) -> list[dict[str, Any]]:
    """What a host is asked: as the account that wrote the files, and where that is gone as its owner's present one.

    Programs of the config run only under an account that is its owner's now.
    """
    environment = checkpoint.trial.experiment.config.get("environment") or {}
    now = allocation.account_now
    programs = {
        "python": environment.get("python") or "",
        "activate": environment.get("activate") or "",
        "environment": variables(environment.get("environment_variables"), "cpu"),
    }
    return [
        {
            "storage": s3_stores.section_of(checkpoint),
            "uuid": str(checkpoint.pk),
            "paths": None if paths is None else sorted(paths),
            "unix_user": account,
            **(programs if account == now else {"python": "", "activate": "", "environment": {}}),
        }
        for account in dict.fromkeys([allocation.account, now])
    ]


def _ask(host: Host, pool: ResourcePool, requests: list[dict[str, Any]]) -> None:
    """Ask for the first, and for the next where the host lacks its account. Raises ConnectionError with a sentence."""
    failure: OSError | None = None
    for request in requests:
        if not login_accounts.may_run(pool, request["unix_user"], host.facts):
            continue
        own = {
            "host": host.name,
            "python": request["python"] or host.python or "",
            "activate": request["activate"] or host.activate or "",
        }
        try:
            remote.verb(host, "discard", {**request, **own}, timeout_seconds=_TIMEOUT_SECONDS)
            return
        except remote.RemoteError as error:
            failure = ConnectionError(f"{host.name}: {error}")
            if not isinstance(error, remote.VerbFailed) or error.code != "no_account":
                break
    raise failure or NotHere(f"{host.name} may not be asked.")
