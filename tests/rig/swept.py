"""A search that went on for a while, as rows: for what runs in a server's Django (Server.shell)."""

import heapq
import itertools
import json
import math
import random
import time
from datetime import UTC, datetime
from typing import Any

from django.db import transaction

from experiments import metric_reports
from experiments.models import Experiment, Trial
from jobs.models import Task
from metrics.ingest import Report
from searching import (
    Create,
    ExitReason,
    Operation,
    Promote,
    Stop,
    TrialExited,
    ValidationReported,
    advance,
    start,
)  # fmt: skip
from searching.state import BRACKET, STANDING, number_of, request_id_of
from tests.rig import trial_rows

HYPERPARAMETERS: dict[str, Any] = {
    "lr": {"type": "log", "base": 10, "minval": -5, "maxval": -1},
    "optimizer": {
        "name": {"type": "categorical", "vals": ["sgd", "adamw", "lion"]},
        "momentum": {"type": "double", "minval": 0.5, "maxval": 0.99},
    },
    "dropout": {"type": "double", "minval": 0.0, "maxval": 0.6},
    "layers": {"type": "int", "minval": 2, "maxval": 12},
    "warmup": {"type": "const", "val": 100},
}
UNITS = 256
EVERY_NTH_FAILS = 23
_ENDS = {"completed": "COMPLETED", "errored": "ERROR", "canceled": "CANCELED", "stopping": "COMPLETED"}


def loss(hparams: dict[str, Any], units: int) -> float:
    """Best near lr 10**-2.6 and with adamw; falls with the units; momentum changes nothing."""
    away = abs(math.log10(hparams["lr"]) + 2.6)
    optimizer = {"sgd": 0.25, "adamw": 0.0, "lion": 0.1}[hparams["optimizer"]["name"]]
    return 0.2 + 0.15 * away**1.5 + optimizer + 0.3 * hparams["dropout"] ** 2 + 1.5 / (1 + units / 8)


class Played:
    """A search whose trials take a second per unit, until `validations` have been told, or to its end."""

    def __init__(self, searcher: dict[str, Any], validations: int | None) -> None:
        self.state, operations = start(searcher, HYPERPARAMETERS, seed=1)
        self.now, self.begin = 0.0, time.time() - 7200.0
        self.made: dict[str, Create] = {}
        self.reached: dict[str, int] = {}
        self._due: list[tuple[float, int, str]] = []
        self._count = itertools.count()
        self._chance = random.Random(1)
        self._follow(operations)
        told = 0
        while self._due and (validations is None or told < validations):
            self.now, _, name = heapq.heappop(self._due)
            told += 1
            self._arrive(name)

    def _units(self, name: str) -> list[int]:
        number = number_of(self.state, name)
        assert number is not None
        rungs = self.state["brackets"][self.state["trials"][number][BRACKET]]["rungs"]
        return [rung["units"] for rung in rungs] or [UNITS]

    def _go_on(self, name: str) -> None:
        units = self._units(name)
        begun = self.reached.get(name, 0)
        ahead = [each for each in units if each > begun]
        if ahead:
            seconds = (ahead[0] - begun) * (0.8 + 0.4 * self._chance.random())
            heapq.heappush(self._due, (self.now + seconds, next(self._count), name))

    def _arrive(self, name: str) -> None:
        at = self.begin + self.now
        number = number_of(self.state, name)
        assert number is not None
        if number % EVERY_NTH_FAILS == EVERY_NTH_FAILS - 1:
            self._follow(advance(self.state, TrialExited(name, ExitReason.ERRORED, at)))
            return
        units = min(each for each in self._units(name) if each > self.reached.get(name, 0))
        self.reached[name] = units
        metric = loss(self.made[name].hparams, units)
        self._follow(advance(self.state, ValidationReported(name, metric, units, at=at)))
        if not self.state["brackets"][self.state["trials"][number][BRACKET]]["rungs"]:
            self._follow(advance(self.state, TrialExited(name, ExitReason.COMPLETED, at)))

    def _follow(self, operations: list[Operation]) -> None:
        for operation in operations:
            if isinstance(operation, Create):
                self.made[operation.request_id] = operation
                self._go_on(operation.request_id)
            elif isinstance(operation, Promote):
                self._go_on(operation.request_id)
            elif isinstance(operation, Stop):
                at = self.begin + self.now
                self._follow(advance(self.state, TrialExited(operation.request_id, ExitReason.COMPLETED, at)))


def add(
    name: str,
    trials: int,
    *,
    validations: int | None = None,
    searcher: str = "adaptive_asha",
    in_full: int | None = None,
) -> int:
    """The number of an experiment of so many trials. `validations`: how many have been told; None: it is over.
    `in_full`: so many have their metrics at each step, the others only their last validation; None: all.
    """
    config = {
        "name": searcher, "metric": "loss", "smaller_is_better": True, "max_trials": trials, "max_length": UNITS,
        "divisor": 4, "max_rungs": 5, "mode": "standard", "max_concurrent_trials": max(16, trials // 20),
    }  # fmt: skip
    played = Played(config, validations)
    first = trial_rows.add(name, "ACTIVE" if validations is not None else "COMPLETED")
    experiment = first.experiment
    Trial.objects.filter(pk=first.pk).delete()
    # else it would wait for slots, of no trial, and be ended by nobody
    Task.objects.filter(pk=first.task_id).delete()
    experiment.search = played.state
    experiment.config = {**experiment.config, "searcher": config, "hyperparameters": HYPERPARAMETERS}
    experiment.original_config = json.dumps({**experiment.config, "name": name})  # which is YAML too
    experiment.save()
    with transaction.atomic():
        _write(experiment, played, trials if in_full is None else in_full)
    return int(experiment.pk)


def _last(played: Played, name: str) -> dict[str, Any] | None:
    """The last validation of a trial, as its row keeps it."""
    step = played.reached.get(name)
    if not step:
        return None
    value, at = loss(played.made[name].hparams, step), datetime.fromtimestamp(played.begin + step, UTC)
    return metric_reports.validation_row(step, {"loss": value, "accuracy": 1 / (1 + value)}, at, value)


def _write(experiment: Experiment, played: Played, in_full: int) -> None:
    names = [request_id_of(played.state, number) for number in range(len(played.state["trials"]))]
    standings = [str(trial[STANDING]) for trial in played.state["trials"]]
    tasks = Task.objects.bulk_create(
        Task(
            id=f"{experiment.pk}.{name}", job=experiment.job, kind="TRIAL", name=name, slots=1,
            state="ENDED" if standing in _ENDS else "PAUSED",
        )
        for name, standing in zip(names, standings, strict=True)
    )  # fmt: skip

    def validations_of(name: str) -> dict[str, Any]:
        return {"best_validation": _last(played, name), "latest_validation": _last(played, name)}

    trials = Trial.objects.bulk_create(
        Trial(
            experiment=experiment, task=task, request_id=name, seed=1, hparams=played.made[name].hparams,
            state=_ENDS.get(standing, "ACTIVE"), run_id=1,
            **(validations_of(name) if number >= in_full else {}),
        )
        for number, (task, name, standing) in enumerate(zip(tasks, names, standings, strict=True))
    )  # fmt: skip
    for trial, name in list(zip(trials, names, strict=True))[:in_full]:
        reports: list[metric_reports.Report | None] = []
        for step in (1, 2, 4, 8, 16, 32, 64, 128, UNITS):
            if step <= played.reached.get(name, 0):
                at = played.begin + step
                value = loss(trial.hparams, step)
                reports.append(Report(1, "training", step, at, {"loss": value * 0.9}))
                reports.append(
                    Report(1, "validation", step, at, {"loss": value, "accuracy": 1 / (1 + value)})
                )
        if reports:
            metric_reports.store(experiment, trial, reports)
