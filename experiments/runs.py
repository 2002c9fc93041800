"""What an attempt of a trial has to run: the experiment's part of the run spec."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from experiments import media, metric_reports, s3_stores
from experiments.config import older_forms
from experiments.models import Trial
from jobs.assigning import Assigned
from jobs.models import Allocation
from jobs.run import RunSpec
from submissions.config.containers import container_of
from submissions.config.environment import hooks_of, sdk_variables, variables


def begin_all(allocations: Sequence[Allocation | Assigned]) -> None:
    """New attempts of trials start from their latest checkpoint: what was reported beyond it is set aside."""
    numbers = {allocation.task_id: allocation.number for allocation in allocations}
    trials = Trial.objects.filter(task_id__in=numbers).values_list(
        "pk", "task_id", "run_id", "latest_checkpoint__trial", "latest_checkpoint__steps_completed"
    )
    alike: dict[tuple[int, int], list[int]] = defaultdict(list)
    for pk, task_id, former, made_by, made_at in trials:
        steps = made_at if made_by == pk else 0  # what another trial made is begun with at 0
        if former:  # a first attempt has nothing to set aside
            metric_reports.set_back(pk, steps)
            media.set_back(pk, steps)
        alike[numbers[task_id], steps].append(pk)
    for (number, steps), ids in alike.items():
        Trial.objects.filter(pk__in=ids).update(
            run_id=number, steps_completed=steps, early_exit="", runner_state=""
        )


def describe(allocation: Allocation, slot_kind: str) -> RunSpec:
    """Everything that the host must know to run this attempt. `slot_kind` picks per-device settings."""
    trial = Trial.objects.select_related("experiment__context", "experiment__owner", "latest_checkpoint").get(
        task_id=allocation.task_id
    )
    experiment = trial.experiment
    config = experiment.config
    environment = config.get("environment") or {}
    checkpoint = trial.latest_checkpoint
    storage = config.get("checkpoint_storage") or {"type": "server"}
    shown = {**config, "checkpoint_storage": s3_stores.without_secrets(storage)}
    sdk_installed = environment.get("sdk") == "installed"
    if sdk_installed:  # that package stores by itself, and needs the keys for it
        shown = config
    else:
        storage = s3_stores.for_hosts(storage)
    return RunSpec(
        entrypoint=entrypoint(config),
        remarks=[] if sdk_installed else older_forms.of_entrypoint(config.get("entrypoint")),
        environment={
            **variables(environment.get("environment_variables"), slot_kind),
            **sdk_variables(environment),
        },
        python=environment.get("python") or "",
        activate=environment.get("activate") or "",
        hooks=hooks_of(environment),
        container=container_of(config, slot_kind),
        mounts=config.get("bind_mounts") or [],
        user_data=config.get("data") or {},
        checkpoint_storage=storage,
        trial={
            "trial_id": trial.pk,
            "experiment_id": experiment.pk,
            "trial_seed": trial.seed,
            "hparams": trial.hparams,
            "config": shown,
            "run_id": allocation.number,
            "steps_completed": trial.steps_completed,
            "latest_checkpoint": str(checkpoint.pk) if checkpoint else None,
        },
        code=bytes(experiment.context.archive),
        sample_seconds=(config.get("profiling") or {}).get("sampling_interval"),
        user=experiment.owner.username,
        interface=(config.get("task_container_defaults") or {}).get("dtrain_network_interface") or "",
    )


def entrypoint(config: dict[str, Any]) -> str | list[str]:
    """The command; a legacy `module:TrialClass` becomes the launcher that runs it (S4-08).

    With the host's own SDK it is the program that makes room for that one, which reads the config's by itself.
    """
    value = config.get("entrypoint")
    if (config.get("environment") or {}).get("sdk") == "installed":
        return ["python3", "-m", "trainmaster.runner.installed_sdk"]
    if isinstance(value, list):
        return [str(word) for word in value]
    return older_forms.launched(value) or str(value or "")
