"""Detached runs over REST: their user makes trials, starts attempts and says how they go (docs/protocol.md)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

from django.conf import settings
from django.db import transaction
from pydantic import Field
from rest_framework import serializers
from rest_framework.request import Request

from accounts.models import Cluster, User
from accounts.rights import Right
from dispatch.runs import detached as runs
from dispatch.runs.spec import limits
from experiments import detached, s3_stores
from experiments.models import Experiment, Trial
from experiments.transitions import lock
from jobs.detached import UNNAMED_MACHINE
from jobs.models import Allocation, Member
from jobs.transitions import run_token
from logs import store as log_store
from logs.lines import STDERR, STDOUT, NewLine, blocks_of, raw, text_of
from shown import trials as shown_trials
from trainmaster.runner.levels import level_of
from webui.api import encoding
from webui.api.answers import Answer, Body, Maybe, Stored
from webui.api.errors import BadRequest, Missing, existing
from webui.api.permissions import actor, person, require_owner
from webui.api.trial_encoding import encode_trial
from webui.api.trials import TrialAnswer, find, find_to_report, reporting
from webui.api.views import ApiView, Json

#: Members that one attempt may have: each has a row, a token's worth of trust and a stream.
MOST_MEMBERS = 1024


class NewTrial(serializers.Serializer[Any]):
    experimentId = serializers.IntegerField()
    hparams = serializers.DictField(required=False, allow_null=True)
    unmanaged = serializers.BooleanField(required=False, allow_null=True)


class NamedTrial(serializers.Serializer[Any]):
    createTrialRequest = NewTrial()
    externalTrialId = serializers.CharField(max_length=255)


class Trials(ApiView):
    """Create a trial of an unmanaged experiment; with PUT, get the one with this external id, created if necessary."""

    rights = {"POST": Right.EDIT, "PUT": Right.EDIT}
    bodies = {"POST": NewTrial, "PUT": NamedTrial}

    def post(self, request: Request) -> TrialAnswer:
        return self._answer(request, self.body(request), None)

    def put(self, request: Request) -> TrialAnswer:
        body = self.body(request)
        return self._answer(request, body["createTrialRequest"], body["externalTrialId"])

    @transaction.atomic
    def _answer(self, request: Request, wanted: Json, external_id: str | None) -> TrialAnswer:
        experiment = _unmanaged(request, wanted["experimentId"])
        trial = experiment.trials.filter(external_id=external_id).first() if external_id is not None else None
        if trial is None:
            trial = detached.create_trial(
                experiment, wanted.get("hparams") or {}, external_id=external_id, actor=actor(request)
            )
        return TrialAnswer(trial=encode_trial(shown_trials.whole().get(pk=trial.pk)))


def _unmanaged(request: Request, experiment_id: int) -> Experiment:
    """The experiment of the user's, locked. Raises Missing, BadRequest, Forbidden."""
    if not Experiment.objects.filter(pk=experiment_id).exists():
        raise Missing(f"experiment {experiment_id} not found")
    experiment = lock(experiment_id)
    require_owner(person(request), experiment)
    if not experiment.unmanaged:
        raise BadRequest(f"experiment {experiment_id} is run by the queue: its searcher creates its trials.")
    return experiment


class TrialByExternalId(ApiView):
    """The trial with this external id, in the experiment with this external id."""

    rights = {"GET": Right.READ}

    def get(self, request: Request, experiment: str, trial: str) -> TrialAnswer:
        row = shown_trials.whole().filter(experiment__external_id=experiment, external_id=trial).first()
        if row is None:
            raise Missing(f"trial {trial} of experiment {experiment} not found")
        return TrialAnswer(trial=encode_trial(row))


class StartBody(serializers.Serializer[Any]):
    trialId = serializers.IntegerField(required=False)
    resume = serializers.BooleanField(required=False, default=False, allow_null=True)
    members = serializers.IntegerField(required=False, allow_null=True, min_value=1, max_value=MOST_MEMBERS)
    hosts = encoding.list_of(serializers.CharField(max_length=128, allow_blank=True), allow_null=True)


class ClusterName(Answer):
    id: str
    name: str
    proof_key: Annotated[
        str,
        Field(alias="proof_key", description="used by the server to prove its identity to this attempt"),
    ]


class DetachedRun(Answer):
    """What the runners of its members need to know; `token` is shown only here."""

    allocation_id: str
    task_id: str
    job_id: str
    experiment_id: int
    trial_id: int
    run_id: int
    trial_seed: int
    token: str
    members: int
    hosts: Annotated[list[str], Field(description="one name per member")]
    cluster: ClusterName
    hparams: Json
    config: Json
    checkpoint_storage: Json
    limits: Annotated[Mapping[str, object], Field(description="limits of the runner, in seconds and bytes")]


class StartedAttempt(Answer):
    trial_run_id: Annotated[int, Field(description="the number of the attempt")]
    steps_completed: int
    latest_checkpoint: Maybe[str] = None
    run: Maybe[DetachedRun] = None


class TrialStart(ApiView):
    """Start an attempt of a trial. With `members`, the answer has what their runners need, and the run token."""

    rights = {"POST": Right.EDIT}
    bodies = {"POST": StartBody}

    def post(self, request: Request, trial_id: int) -> StartedAttempt:
        require_owner(person(request), find(request, trial_id).experiment)
        body = self.body(request)
        machines = _machines(body)
        allocation = runs.start(trial_id, machines, resume=bool(body.get("resume")), actor=actor(request))
        trial = Trial.objects.select_related("experiment", "latest_checkpoint").get(pk=trial_id)
        return StartedAttempt(
            trial_run_id=allocation.number,
            steps_completed=trial.steps_completed,
            latest_checkpoint=str(trial.latest_checkpoint.pk) if trial.latest_checkpoint else None,
            run=_run(trial, allocation) if body.get("members") else None,
        )


def _machines(body: Json) -> list[str]:
    """A name per member. Raises BadRequest."""
    count, names = body.get("members") or 1, [name.strip() for name in body.get("hosts") or []]
    if len(names) > count:
        raise BadRequest(f"hosts: {len(names)} names for {count} members; send at most one per member.")
    return names + [""] * (count - len(names))


def _run(trial: Trial, allocation: Allocation) -> DetachedRun:
    """What the members' runners must know. The token is shown here alone."""
    experiment, cluster = trial.experiment, Cluster.get()
    members = Member.objects.filter(allocation=allocation).select_related("host").order_by("index")
    config = experiment.config
    storage = config.get("checkpoint_storage") or {"type": "server"}
    return DetachedRun.of(
        trial,
        allocation_id=allocation.pk,
        job_id=str(experiment.job_id),
        experiment_id=experiment.pk,
        trial_id=trial.pk,
        run_id=allocation.number,
        trial_seed=trial.seed,
        token=run_token(allocation),
        members=len(members),
        hosts=[member.host.name for member in members],
        cluster={
            "id": str(cluster.cluster_id),
            "name": settings.CLUSTER_NAME,
            "proof_key": cluster.proof_key(allocation.pk),
        },
        config={**config, "checkpoint_storage": s3_stores.without_secrets(storage)},
        checkpoint_storage=s3_stores.for_hosts(storage),
        limits=limits((config.get("profiling") or {}).get("sampling_interval")),
    )


class PrepareBody(serializers.Serializer[Any]):
    runId = serializers.IntegerField()
    checkpointStorage = serializers.JSONField(required=False, allow_null=True)


class RunPrepare(ApiView):
    """Determined's client sends a run's storage before it reports; here the config already has it."""

    rights = {"POST": Right.EDIT | Right.RUN}
    bodies = {"POST": PrepareBody}

    def post(self, request: Request) -> None:
        find_to_report(request, self.body(request)["runId"])


class MetadataBody(serializers.Serializer[Any]):
    metadata = serializers.DictField()
    runId = serializers.IntegerField(required=False)


class MetadataAnswer(Answer):
    metadata: Stored[Json]


class RunMetadata(ApiView):
    """Metadata that training code stores about its trial; what Determined calls a run is a trial here."""

    rights = {"GET": Right.READ | Right.RUN, "POST": Right.EDIT | Right.RUN}
    bodies = {"POST": MetadataBody}

    def get(self, request: Request, trial_id: int) -> MetadataAnswer:
        return MetadataAnswer(metadata=find(request, trial_id).metadata)

    def post(self, request: Request, trial_id: int) -> MetadataAnswer:
        metadata = self.body(request)["metadata"]
        with reporting(request, trial_id, "metadata_changed"):
            Trial.objects.filter(pk=trial_id).update(metadata=metadata)
        return MetadataAnswer(metadata=metadata)


class ShippedLine(Body):
    """`log` may hold several lines. The published client sends a few more fields, which are ignored."""

    task_id: Annotated[str, Field(alias="task_id")]
    log: str
    rank: int | str | None = None
    level: str | None = None
    stdtype: str | None = None


class TaskLogs(ApiView):
    """Lines of detached runs, as Determined's client ships them: [{"task_id", "rank", "log", "level"?, "stdtype"?}].

    Its `timestamp` is that of the run's start for every line, so each line gets the time at which it arrived.
    """

    rights = {"POST": Right.EDIT}
    described_bodies = {"POST": list[ShippedLine]}

    def post(self, request: Request) -> None:
        body: Any = request.data
        rows = body.get("logs") if isinstance(body, dict) else body
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise BadRequest("The body must be a list of log records, each with task_id and log.")
        by_task: dict[str, list[Json]] = {}
        for row in rows:
            by_task.setdefault(str(row.get("task_id") or row.get("taskId") or ""), []).append(row)
        for task_id, lines in by_task.items():
            trial = _detached_trial(person(request), task_id)
            runs.sign_of_life(trial)
            _store(task_id, lines)


def _detached_trial(user: User, task_id: str) -> Trial:
    trial = existing(Trial.objects.select_related("experiment"), "task", task_id=task_id)
    require_owner(user, trial.experiment)
    if not trial.experiment.unmanaged:
        raise BadRequest(f"task {task_id} is run by the queue: its hosts ship its log.")
    return trial


def _store(task_id: str, rows: Sequence[Json]) -> None:
    newest = Member.objects.filter(allocation__task_id=task_id, index=0).order_by("-allocation__number")
    member = newest.select_related("host").first()
    now = time.time()
    blocks = blocks_of(line for row in rows for line in _lines(row, now))
    log_store.append(task_id, member, member.host.name if member else UNNAMED_MACHINE, blocks)


def _lines(row: Json, now: float) -> Iterator[NewLine]:
    """The lines of a record; long ones go on in the next, as those that a runner ships."""
    rank = row.get("rank", row.get("rank_id", row.get("rankId")))
    stream = STDERR if row.get("stdtype") == "stderr" else STDOUT
    number = int(rank) if isinstance(rank, int) or (isinstance(rank, str) and rank.isdecimal()) else None
    for text in str(row.get("log") or "").rstrip("\r\n").split("\n"):
        written, limit = raw(text), settings.LOG_LINE_BYTES
        for first in range(0, len(written) or 1, limit):
            part = text_of(written[first : first + limit])
            yield NewLine(now, number, stream, level_of(written), part, first + limit < len(written))
