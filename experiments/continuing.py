"""An experiment that has ended goes on: the same trials, from their latest checkpoints (features.md 4.4)."""

from __future__ import annotations

from typing import Any, NamedTuple

from django.db import transaction
from django.db.models import F
from django.utils import timezone

import searching
from accounts.refusals import Code, Refusal, Together
from experiments import search
from experiments.config import check, restored
from experiments.config.merging import override
from experiments.models import Experiment
from experiments.states import EXPERIMENT_END_STATES, ExperimentState
from experiments.transitions import lock, set_experiment_state
from hosts.models import ResourcePool
from jobs import deadlines, dependencies
from jobs import transitions as jobs
from jobs.accepting import refuse_unknown_pool, settle
from jobs.dependencies import Wanted
from jobs.models import Job
from jobs.states import Reason
from jobs.time_limits import time_used
from trainmaster.quantities import duration

SEARCHERS = ("single", "random", "grid")
_REASON = Reason.ACTIVATED_BY_USER


class Continued(NamedTuple):
    """`anew`: ids of the trials that run again and have no checkpoint of their own to go on from."""

    experiment: Experiment
    anew: list[int]


def can_continue(experiment: Experiment) -> bool:
    """Whether it has ended, and its searcher is one that can be continued."""
    ended = experiment.state in EXPERIMENT_END_STATES and not experiment.archived
    return ended and experiment.searcher.get("name") in SEARCHERS


@transaction.atomic
def go_on(experiment_id: int, changes: dict[str, Any], *, actor: str, role: str) -> Continued:
    """Continue it with `changes` laid over its config. Restarts count anew; its job stands last of its priority.

    A single search runs its trial again, also one that completed; a random or grid search those that did not, as
    many at once as it may have.
    Raises Refusal for one that cannot go on, Refusal and ConfigError for changes that cannot be.
    """
    experiment = lock(experiment_id)
    _check_state(experiment)
    config, pool, depends_on = checked(experiment, changes, role=role)
    unsaved = _without_checkpoint(experiment)
    state, operations = searching.revive(
        experiment.search, config["searcher"], config.get("hyperparameters") or {}, set(unsaved)
    )
    again = [each.request_id for each in operations if isinstance(each, searching.Again)]
    if not again and not any(isinstance(each, searching.Create) for each in operations):
        raise Refusal(
            f"experiment {experiment_id} has been completed, cannot continue this experiment; fork it instead.",
            Code.CONFLICT,
        )
    jobs.lock_tasks(list(experiment.trials.filter(request_id__in=again).values_list("task_id", flat=True)))
    Experiment.objects.filter(pk=experiment_id).update(config=config, progress=None)
    experiment.config = config
    set_experiment_state(experiment, ExperimentState.ACTIVE, reason=_REASON, actor=actor)
    jobs.revive_job(
        experiment.job_id,
        pool=pool,
        actor=actor,
        depends_on=depends_on,
        deadline_at=deadlines.of(config["resources"], timezone.now()),
        **_of_the_job(changes),
    )
    experiment.job = Job.objects.get(pk=experiment.job_id)
    search.carry_on(experiment, state, operations, actor=actor)
    return Continued(experiment, [unsaved[name] for name in again if name in unsaved])


def checked(
    experiment: Experiment, changes: dict[str, Any], *, role: str
) -> tuple[dict[str, Any], ResourcePool, list[Wanted] | None]:
    """The config, the pool and the jobs to wait for from now on, None for those that it has waited for already.

    Raises Refusal, and ConfigError for changes that cannot be.
    """
    _check_changes(experiment, changes)
    config = _config(experiment, changes)
    resources = config["resources"]
    asks, workspace = resources["slots_per_trial"], experiment.project.workspace_id
    pool = settle(
        resources,
        asks,
        owner=experiment.owner,
        role=role,
        workspace=workspace,
        slurm=config.get("slurm"),
    )
    is_same = config["depends_on"] == experiment.config.get("depends_on", [])
    return config, pool, None if is_same else dependencies.found(config["depends_on"])


def _without_checkpoint(experiment: Experiment) -> dict[str, int]:
    """Request id -> id of those of its trials that would begin anew: theirs was deleted, or never made."""
    trials = experiment.trials.exclude(latest_checkpoint__trial=F("pk")).order_by("pk")
    return {str(request_id): pk for request_id, pk in trials.values_list("request_id", "pk")}


def _check_state(experiment: Experiment) -> None:
    if experiment.unmanaged:
        raise Refusal(
            f"experiment {experiment.pk} is unmanaged: continue its program where you started it.",
            Code.CONFLICT,
        )
    if experiment.state not in EXPERIMENT_END_STATES:
        first = (
            "activate it instead"
            if experiment.state == ExperimentState.PAUSED
            else "wait until it ends, or cancel it"
        )
        raise Refusal(
            f"experiment in non terminal state '{experiment.state}': only an ended one can be continued; {first}.",
            Code.CONFLICT,
        )
    if experiment.archived:
        raise Refusal(
            f"experiment {experiment.pk} is archived; unarchive it before continuing it.", Code.CONFLICT
        )
    name = experiment.searcher.get("name")
    if name not in SEARCHERS:
        raise Refusal(
            f"Unsupported searcher type provided: '{name}'; only single, random and grid searches can be continued. "
            f"Fork it instead: trainmaster experiment fork {experiment.pk}",
            Code.CONFLICT,
        )


def _check_changes(experiment: Experiment, changes: dict[str, Any]) -> None:
    searcher = experiment.config["searcher"]["name"]
    if changes and searcher != "single":
        raise Refusal(f"a {searcher} search continues unchanged: its config cannot be changed.")
    if _section(changes, "searcher").get("name", "single") != "single":
        raise Refusal("searcher.name: cannot be changed when a single search is continued.")
    for field in ("workspace", "project"):
        if changes.get(field):
            raise Refusal(f"{field}: a continued experiment stays in its project; move it afterward.")


def _config(experiment: Experiment, changes: dict[str, Any]) -> dict[str, Any]:
    """The config from now on. Raises Refusal or ConfigError."""
    of_job = {"resource_pool": experiment.job.pool.name, "deadline": _deadline_to_keep(experiment)}
    changes = restored(changes, experiment.config)  # which may come from a config that was shown
    values = override(override(experiment.config, {"resources": of_job}), changes)
    with Together() as faults:
        with faults.step():
            refuse_unknown_pool(values)
        config = check(values).effective()
    resources, before = config["resources"], experiment.config["checkpoint_storage"]
    moved = [name for name, value in before.items() if config["checkpoint_storage"].get(name) != value]
    if not all(name.startswith("save_") for name in moved):
        raise Refusal("checkpoint_storage: a continued experiment keeps its storage; fork it to use another.")
    limit = resources.get("max_time")
    used = time_used(list(experiment.trials.values_list("task_id", flat=True)))
    if limit is not None and any(seconds >= limit for seconds in used.values()):
        raise Refusal(
            f"resources.max_time: the limit of {duration(limit)} is used up; continue with a longer one, such as "
            f"resources.max_time={2 * limit}."
        )
    return config


def _deadline_to_keep(experiment: Experiment) -> str | None:
    """The deadline of its job, as its users left it; None once it has passed, or where it would have no effect."""
    job, slots = experiment.job, experiment.config["resources"]["slots_per_trial"]
    if job.deadline_at is None or job.deadline_at <= timezone.now() or deadlines.useless(job.pool, slots):
        return None
    return job.deadline_at.isoformat()


def _of_the_job(changes: dict[str, Any]) -> dict[str, Any]:
    resources = _section(changes, "resources")
    return {name: resources[name] for name in ("priority", "weight", "max_slots") if resources.get(name)}


def _section(changes: dict[str, Any], name: str) -> dict[str, Any]:
    """What is changed in a section; nothing where it is no section, which the check of the whole says."""
    section = changes.get(name)
    return section if isinstance(section, dict) else {}
