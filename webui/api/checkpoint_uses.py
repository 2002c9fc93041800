"""Which trials work with a checkpoint, and what they have measured of it (features.md 11.8)."""

from __future__ import annotations

import uuid
from typing import Any

from django.db import transaction
from rest_framework import serializers
from rest_framework.request import Request

from accounts.rights import Right
from experiments import checkpoints
from metrics import reported
from webui.api import trials
from webui.api.answers import Answer, Stored
from webui.api.checkpoint_encoding import find
from webui.api.errors import BadRequest
from webui.api.trial_metric_streams import ReportRecord, encode_report
from webui.api.views import ApiView


class Source(serializers.Serializer[Any]):
    trialId = serializers.IntegerField()
    checkpointUuid = serializers.UUIDField()


class SourceBody(serializers.Serializer[Any]):
    trialSourceInfo = Source()


class SourceAnswer(Answer):
    trial_id: int
    checkpoint_uuid: str


class TrialSource(ApiView):
    """Record that a trial uses a checkpoint, as `core_context.experimental` does."""

    rights = {"POST": Right.EDIT | Right.RUN}
    bodies = {"POST": SourceBody}

    @transaction.atomic
    def post(self, request: Request) -> SourceAnswer:
        source = self.body(request)["trialSourceInfo"]
        trial = trials.find_own(request, source["trialId"])
        try:
            checkpoints.used(trial, source["checkpointUuid"])
        except ValueError as error:
            raise BadRequest(f"trialSourceInfo.checkpointUuid: {error}.") from None
        trials.note_report(request, trial, "checkpoint_used")
        return SourceAnswer(trial_id=trial.pk, checkpoint_uuid=str(source["checkpointUuid"]))


class MetricsQuery(serializers.Serializer[Any]):
    metricGroup = serializers.CharField(required=False, max_length=128)


class ReportsAnswer(Answer):
    metrics: Stored[list[ReportRecord]]


class CheckpointMetrics(ApiView):
    """All metrics reported by trials that use this checkpoint."""

    rights = {"GET": Right.READ}
    queries = {"GET": MetricsQuery}

    def get(self, request: Request, checkpoint_uuid: uuid.UUID) -> ReportsAnswer:
        using = sorted(find(checkpoint_uuid).used_by.values_list("pk", flat=True))
        group = self.query(request).get("metricGroup")
        found = reported.read(using, [group] if group else None) if using else []
        return ReportsAnswer(metrics=[encode_report(one, place) for place, one in enumerate(found, 1)])
