"""TensorBoards of experiments and trials: start, list, read, kill, set their priority (features.md 11.6)."""

from __future__ import annotations

from rest_framework import serializers
from rest_framework.request import Request

from commands import submit
from commands.models import Service
from experiments.models import Experiment, Trial
from jobs.models import Job
from shown.tasks import TaskRow
from webui.api import commands, encoding
from webui.api.commands import NewService, OfServiceKind, ServiceRecord
from webui.api.errors import BadRequest, Missing
from webui.api.views import Json


class NewTensorboard(NewService):
    """At least one experiment or trial."""

    experimentIds = encoding.list_of(serializers.IntegerField(), allow_null=True)
    trialIds = encoding.list_of(serializers.IntegerField(), allow_null=True)


class TensorboardRecord(ServiceRecord):
    experiment_ids: list[int]
    trial_ids: list[int]


class OfTensorboards(OfServiceKind):
    kind = Job.Kind.TENSORBOARD
    record = TensorboardRecord

    def encoded(self, row: TaskRow, request: Request) -> TensorboardRecord:
        shown: Service = row.command.service
        return TensorboardRecord.of(
            super().encoded(row, request), experiment_ids=shown.experiment_ids, trial_ids=shown.trial_ids
        )


class Tensorboards(OfTensorboards, commands.Commands):
    """List all TensorBoards, newest first; or create one."""

    bodies = {"POST": NewTensorboard}

    def shown(self, body: Json) -> submit.Shown:
        return shown_of(body.get("experimentIds") or [], body.get("trialIds") or [])


def shown_of(experiment_ids: list[int], trial_ids: list[int]) -> submit.Shown:
    """Raises BadRequest where nothing is named, Missing where one is not there."""
    if not experiment_ids and not trial_ids:
        raise BadRequest("nothing to show; send experimentIds or trialIds.")
    for model, ids in ((Experiment, experiment_ids), (Trial, trial_ids)):
        there = set(model.objects.filter(pk__in=ids).values_list("pk", flat=True))
        if gone := [each for each in ids if each not in there]:
            raise Missing(f"{model.__name__.lower()} {gone[0]} not found")
    return submit.Shown(experiment_ids, trial_ids)


class OneTensorboard(OfTensorboards, commands.OneCommand):
    """One TensorBoard with its config."""


class TensorboardKill(OfTensorboards, commands.CommandKill):
    """Kill a TensorBoard immediately. An ended one is left unchanged."""


class TensorboardPriority(OfTensorboards, commands.CommandPriority):
    """Set the priority of a TensorBoard that has not ended."""
