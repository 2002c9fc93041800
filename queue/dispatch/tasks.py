"""The Celery tasks: thin adapters, short and idempotent. Each may be lost, late or doubled without harm."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import chain

from celery import shared_task, signals
from django.conf import settings
from django.contrib.sessions.backends.db import SessionStore
from django.utils import timezone

from commands import burn_in, burn_ins_due, group_burn_in, services
from dispatch import schedules
from dispatch.going_on import going_on
from dispatch.keeping import deletion, event_retention, goodput, log_retention, pool_history
from dispatch.passes import pace, pool_pass
from dispatch.runs import clusters, detached, open_work, reconcile
from dispatch.runs import launch as launching
from dispatch.runs import stop as stopping
from dispatch.ssh import tunnel
from dispatch.watching import (
    admission,
    hangs,
    idle_gpus,
    idle_services,
    pairs,
    probing,
    slurm_facts,
    stacks,
)
from dispatch.watching import doctor as host_doctor
from events import presence
from events.announce import waiting, wake, wake_all
from events.leases import alone, forget_workers
from events.presence import Part
from experiments import checkpoint_deletion, counts
from experiments.models import Experiment
from experiments.states import ExperimentState
from experiments.transitions import NoSuchExperiment
from hosts import admitting, pair_checks, slurm_nodes
from jobs import feeding, quarantine
from logs import merging
from metrics import sample_store, timing_store

#: Of work that the beat asks for once a minute, messages that come sooner than this one after another are one.
_MINUTELY = 30.0


@shared_task(name="dispatch.tasks.tick")
def tick(*pool_ids: int) -> None:
    """Bring the plans of these pools, or of every pool, up to date. One whose pass fails delays no other."""
    faults = []
    for pk in pool_ids or pool_pass.due_pools(timezone.now()):
        try:
            pool_pass.run(pk, pace.OWN)
        except Exception as fault:
            fault.add_note(f"In the pass of pool {pk}.")
            faults.append(fault)
    if faults:
        raise ExceptionGroup("Passes have failed.", faults)


@shared_task(name="dispatch.tasks.submit_scheduled")
def submit_scheduled() -> None:
    """Submit the schedules whose time has come."""
    schedules.submit_due(timezone.now())


@shared_task(name="dispatch.tasks.launch")
def launch(member_id: int) -> None:
    launching.launch(member_id)


@shared_task(name="dispatch.tasks.stop")
def stop(allocation_id: str) -> None:
    stopping.stop(allocation_id)


@shared_task(name="dispatch.tasks.merge_log")
def merge_log(*task_ids: str) -> None:
    """Write the newest events of tasks into their logs now, rather than with their next lines or the next sweep."""
    reconcile.merge_logs(task_ids)


@shared_task(name="dispatch.tasks.merge_logs")
def merge_logs(*started: list[str]) -> None:
    """The same for tasks that passes have started, a list for each pass."""
    merge_log(*chain.from_iterable(started))


@shared_task(name="dispatch.tasks.merge_cold_logs")
def merge_cold_logs() -> None:
    """Make small chunks of logs large once they are cold, a few seconds' worth of them."""
    with alone("merge_cold_logs", every=settings.LOG_MERGE_EVERY_SECONDS / 2) as mine:
        if mine is not None:
            merging.merge_cold(settings.LOG_MERGE_SECONDS)


@shared_task(name="dispatch.tasks.merge_samples")
def merge_samples() -> None:
    """Make chunks of samples and timings large, thin and remove old ones, a few seconds' worth of each."""
    with alone("merge_samples", every=settings.SAMPLE_MERGE_EVERY_SECONDS / 2) as mine:
        if mine is not None:
            for store in (sample_store, timing_store):
                store.merge_due(settings.SAMPLE_MERGE_SECONDS)
                store.remove_due(settings.SAMPLE_MERGE_SECONDS)


@shared_task(name="dispatch.tasks.ask_stacks")
def ask_stacks(task_id: str, ranks: list[int]) -> None:
    """Ask the hosts what these ranks are doing, for somebody who waits for it."""
    stacks.collect(task_id, ranks)


@shared_task(name=hangs.LOOK)
def look_at_hang(allocation_id: str) -> None:
    hangs.look(allocation_id)


@shared_task(name="dispatch.tasks.sweep")
def sweep() -> None:
    """Look at everything that is open, one short task per host, so that a slow host delays nobody.

    One sweep at a time, however many beats ask for it: sweeps on top of each other would be all that workers do.
    What may have to wait for others (notebooks, hosts) has tasks of its own, asked for only when they are due.
    With three quarters of the time, those of two workers whose beats are apart are not two sweeps.
    """
    if services.unused().exists():
        wake("dispatch.tasks.stop_unused")
    if tunnel.is_needed():
        wake("dispatch.host_tasks.keep_tunnels")
    with alone("sweep", every=settings.SWEEP_SECONDS * 0.75) as mine:
        if mine is None:
            return
        presence.stamp(Part.WORKERS)
        is_work = open_work.exists()
        for step in (
            _ask_hosts,
            _tend_clusters,
            reconcile.note_silence,
            reconcile.finish_lost_hosts,
            reconcile.forgotten,
            detached.give_up_silent,
            reconcile.leave_disabled_hosts,
            _watch_time,
            _watch_hangs,
            reconcile.merge_event_lines,
        ):
            if not is_work and step is not reconcile.note_silence:  # all other steps look at attempts
                continue
            if not mine.holds():  # this process was stopped for a while, and another sweeps now
                return
            with going_on(step.__name__):
                step()


@shared_task(name="dispatch.tasks.stop_unused")
def stop_unused() -> None:
    """Apart from the sweep, since notebooks are asked, and may let us wait."""
    with alone("stop_unused") as mine:
        if mine is not None:
            idle_services.stop_unused()


def _ask_hosts() -> None:
    """Once most of the sweep before are asked: more would be the same questions, and all that workers do."""
    hosts = reconcile.hosts_to_ask()
    if waiting(settings.CELERY_TASK_ROUTES["dispatch.tasks.sweep_host"]["priority"]) <= len(hosts) // 4:
        wake_all("dispatch.tasks.sweep_host", [(str(host_id),) for host_id in hosts])


def _tend_clusters() -> None:
    wake_all(feeding.TEND, [(pool_id,) for pool_id in clusters.due()])


@shared_task(name=feeding.TEND)
def tend_cluster(pool_id: int, told: bool = False) -> None:
    """Submit, take back, begin and settle what a pool has in its Slurm cluster. `told`: by a job, that it has begun."""
    clusters.tend(pool_id, told=told)


def _watch_hangs() -> None:
    with alone("watch_hangs", every=settings.HANG_LOOK_SECONDS) as mine:
        if mine is not None:
            hangs.watch(presence.database_now())


def _watch_time() -> None:
    stopping.watch_limits(presence.database_now())


@shared_task(name="dispatch.tasks.sweep_host")
def sweep_host(host_id: str) -> None:
    reconcile.host(uuid.UUID(host_id))


@shared_task(name="dispatch.tasks.host_lost")
def host_lost(host_id: str) -> None:
    reconcile.host_lost(uuid.UUID(host_id))


@shared_task(name="dispatch.tasks.look_back")
def look_back() -> None:
    """Count the pools, look which GPUs stood idle, end probations; tell what slots were held for."""
    with alone("look_back", every=_MINUTELY) as mine:
        if mine is None:
            return
        now = timezone.now()
        for step in (pool_history.count, pool_history.thin, idle_gpus.look):
            with going_on(step.__name__):
                step(now)
        with going_on("faults of hosts"):
            quarantine.judge_again()
            quarantine.end_probation()
        with going_on("burn-ins"):
            judge_burn_ins()
            burn_ins_due.ask_due(now)
        with going_on("goodput"):
            goodput.tell_due(now)


@shared_task(name=log_retention.REMOVE)
def clean_logs() -> None:
    """Remove logs that have been kept long enough, for a while; what is left is taken up at once by another task."""
    with alone("clean_logs") as mine:
        more = mine is not None and log_retention.remove_due(settings.LOG_CLEANUP_ROUND_SECONDS).more
    if more:
        wake(log_retention.REMOVE)


@shared_task(name="dispatch.tasks.collect_garbage")
def collect_garbage() -> None:
    """Run folders that nobody needs any more, deletions that were interrupted, logins that have ended, old events."""
    with alone("collect_garbage", every=_MINUTELY) as mine:
        if mine is None:
            return
        SessionStore.clear_expired()
        forget_workers()
        for what, remove in _garbage():
            if not mine.holds():
                return
            with going_on(what):
                remove()
    remove_checkpoint_files()


def _garbage() -> Iterator[tuple[str, Callable[[], object]]]:
    """What there is to remove or to bring up to date, a piece at a time: (what that is for the log, what does it)."""
    yield "the removal of old event rows", partial(event_retention.remove_old, timezone.now())
    yield "the folding of counts", counts.fold
    yield "the reports on accounts", host_doctor.judge_accounts
    for host_id in reconcile.hosts_with_folders():
        yield f"the removal of run folders of host {host_id}", partial(reconcile.remove_folders, host_id)
    for pk in Experiment.objects.filter(state=ExperimentState.DELETING).values_list("pk", flat=True):
        yield f"the deletion of experiment {pk}", partial(delete_experiment, pk)
    for pk in Experiment.objects.filter(collect_due=True).values_list("pk", flat=True):
        what = f"the removal of checkpoints of experiment {pk} by its retention policy"
        yield what, partial(collect_checkpoints, pk)


@shared_task(name="dispatch.tasks.collect_checkpoints")
def collect_checkpoints(experiment_id: int) -> None:
    """Mark the checkpoints of an experiment that its policy does not keep for deletion."""
    with suppress(NoSuchExperiment):
        checkpoint_deletion.collect(experiment_id)


@shared_task(name="dispatch.tasks.remove_checkpoint_files")
def remove_checkpoint_files() -> None:
    """Remove the files of checkpoints that were marked for deletion, for a while; then another task goes on."""
    with alone(deletion.REMOVAL) as mine:
        more = mine is not None and deletion.remove_due(settings.CHECKPOINT_REMOVAL_ROUND_SECONDS, mine.holds)
    if more:
        wake(checkpoint_deletion.REMOVE)


@shared_task(name="dispatch.tasks.delete_experiment")
def delete_experiment(experiment_id: int) -> None:
    """Remove an experiment that was marked for deletion: rows, logs, metrics, stored checkpoints."""
    deletion.delete(experiment_id)


# --- about hosts; workers of all versions know them by these names ------------------------------------


@shared_task(name="dispatch.host_tasks.admit")
def admit(host_id: str) -> None:
    admission.admit(uuid.UUID(host_id))


@shared_task(name="dispatch.host_tasks.doctor")
def doctor(host_id: str) -> None:
    host_doctor.run(uuid.UUID(host_id))


@shared_task(name="dispatch.host_tasks.judge_accounts")
def judge_accounts() -> None:
    host_doctor.judge_accounts()


@shared_task(name=burn_in.JUDGE)
def judge_burn_ins() -> None:
    burn_in.judge_due()
    group_burn_in.judge_due()


@shared_task(name="dispatch.host_tasks.examine_pairs")
def examine_pairs(pool_id: int) -> None:
    """Test the next pairs of the pool; the task asks for itself again until all are through."""
    pairs.go_on(pool_id)


@shared_task(name="dispatch.host_tasks.read_slurm")
def read_slurm(pool_id: int) -> None:
    slurm_facts.read_pool(pool_id)


@shared_task(name="dispatch.host_tasks.keep_tunnels")
def keep_tunnels() -> None:
    tunnel.ensure_tunnels()


@shared_task(name="dispatch.host_tasks.probe_all")
def probe_all() -> None:
    """Ask the hosts that nobody else asks, declare lost those that rules give up, and continue what a killed worker
    has left: admissions, tests of pairs."""
    presence.stamp(Part.WORKERS)
    wake_all("dispatch.host_tasks.admit", [(str(host_id),) for host_id in admitting.forgotten()])
    wake_all("dispatch.host_tasks.examine_pairs", [(pool_id,) for pool_id in pair_checks.forgotten()])
    wake_all(
        "dispatch.host_tasks.read_slurm",
        [(pool_id,) for pool_id in slurm_nodes.claim_due(settings.SLURM_FACTS_SECONDS)],
    )
    probing.probe_due()
    reconcile.declare_lost_hosts()


@signals.worker_shutdown.connect
def _leave_tunnels(**_: object) -> None:
    """A worker that ends in order lets the next one take over at once."""
    tunnel.of_this_process().close_all()
