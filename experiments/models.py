"""Experiments, trials, checkpoints and what they belong to. `experiments.transitions` alone writes their states."""

from __future__ import annotations

import uuid
from typing import Any

from django.conf import settings
from django.contrib.postgres.indexes import GinIndex
from django.db import models

from experiments.json_by_name import JsonByName
from experiments.states import CheckpointState, ExperimentState, TrialState
from jobs.models import Job, Task
from submissions.models import Context


class Workspace(models.Model):
    """Row 1, "Uncategorized", is made by the first migration and stays."""

    name = models.CharField(max_length=80, unique=True)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.PROTECT, related_name="+")
    archived = models.BooleanField(default=False)
    immutable = models.BooleanField(default=False)

    def __str__(self) -> str:
        return self.name


class Project(models.Model):
    workspace = models.ForeignKey(Workspace, on_delete=models.PROTECT, related_name="projects")
    name = models.CharField(max_length=80)
    description = models.TextField(blank=True)
    key = models.CharField(max_length=8, unique=True)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.PROTECT, related_name="+")
    notes = models.JSONField(default=list)
    archived = models.BooleanField(default=False)
    immutable = models.BooleanField(default=False)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["workspace", "name"], name="project_name_once_per_workspace")
        ]


class Template(models.Model):
    name = models.CharField(max_length=128, unique=True)
    workspace = models.ForeignKey(Workspace, on_delete=models.PROTECT, related_name="+")
    config = JsonByName()
    #: the YAML as it was written, comments too; empty where masks in it stand for secrets
    source = models.TextField(blank=True)
    changed_at = models.DateTimeField(auto_now=True)
    changed_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    #: who created it; its hooks run as anyone who submits with it, so only the owner and admins change it
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )


class TemplateUse(models.Model):
    """A template as it was when a user last submitted with it. The row outlives it, for the next one of its name."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    template_name = models.CharField(max_length=128)
    config = JsonByName()
    #: what was submitted, as people see it: "experiment 7"
    submission = models.CharField(max_length=64)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["user", "template_name"], name="one_last_use_of_a_template"),
        ]


class Experiment(models.Model):
    job = models.OneToOneField(Job, on_delete=models.PROTECT, related_name="experiment")
    state = models.CharField(max_length=20, choices=ExperimentState.choices, default=ExperimentState.ACTIVE)
    name = models.CharField(max_length=255)
    description = models.TextField(blank=True)
    labels = models.JSONField(default=list)
    notes = models.TextField(blank=True)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="experiments")
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="experiments", db_index=False)
    parent = models.ForeignKey("self", null=True, on_delete=models.SET_NULL, related_name="forks")
    #: the effective config: template, defaults and overrides applied
    config = JsonByName()
    original_config = models.TextField()
    #: the template that it was submitted with, as it was then; both empty without one
    template_name = models.CharField(max_length=128, blank=True)
    template_config = models.JSONField(default=dict)
    context = models.ForeignKey(Context, on_delete=models.PROTECT, related_name="experiments")
    seed = models.BigIntegerField()
    #: state of the search (queue/searching), saved with each of its events
    search = models.JSONField(default=dict)
    progress = models.FloatField(null=True)
    archived = models.BooleanField(default=False)
    started_at = models.DateTimeField(auto_now_add=True)
    ended_at = models.DateTimeField(null=True)
    #: a repeated submission with the same key returns the first experiment
    idempotency_key = models.CharField(max_length=128, null=True, unique=True)
    best_trial_id = models.BigIntegerField(null=True)
    best_metric = models.FloatField(null=True)
    #: its end, or a changed policy, asks for superfluous checkpoints to be deleted; cleared once that is done
    collect_due = models.BooleanField(default=False)
    #: its trials are detached runs: started by their user, never by the queue
    unmanaged = models.BooleanField(default=False)
    #: the user's own name for an unmanaged experiment, by which it is found again
    external_id = models.CharField(max_length=255, null=True, unique=True)

    @property
    def searcher(self) -> dict[str, Any]:
        """The searcher's section of the config; an unmanaged experiment may have none."""
        return self.config.get("searcher") or {}

    @property
    def searcher_metric(self) -> str:
        return str(self.searcher.get("metric") or "")

    @property
    def smaller_is_better(self) -> bool:
        """Whether a smaller value of the searcher's metric is the better one."""
        return bool(self.searcher.get("smaller_is_better", True))

    class Meta:
        ordering = ["-id"]
        indexes = [
            # lists are filtered by one of these and show the newest first
            models.Index(fields=["state", "-id"], name="experiments_by_state"),
            models.Index(fields=["project", "-id"], name="experiments_by_project"),
            models.Index(fields=["owner", "-id"]),
            GinIndex(fields=["labels"], opclasses=["jsonb_path_ops"], name="experiments_by_label"),
            models.Index(fields=["-id"], condition=models.Q(archived=True), name="experiments_archived"),
            models.Index(
                fields=["owner", "-ended_at"], condition=models.Q(state="ERROR"), name="experiments_failed"
            ),
            models.Index(
                fields=["template_name", "-id"],
                condition=~models.Q(template_name=""),
                name="experiments_by_template",
            ),
            models.Index(
                fields=["id"], condition=models.Q(collect_due=True), name="experiment_to_collect_from"
            ),
        ]


class ExperimentCount(models.Model):
    """How many experiments and trials are alike in these columns: the sum of the rows, some of which are negative.

    A trigger adds rows in the transaction that changes an experiment or a trial, so the sum is always exact, and no
    two transactions wait for each other as they would for one row. `experiments.counts` reads the rows and folds them.
    """

    project = models.ForeignKey(
        Project, on_delete=models.DO_NOTHING, related_name="counts", db_constraint=False, db_index=False
    )
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.DO_NOTHING,
        related_name="+",
        db_constraint=False,
        db_index=False,
    )
    state = models.CharField(max_length=20)
    archived = models.BooleanField()
    template_name = models.CharField(max_length=128)
    experiments = models.IntegerField()
    trials = models.IntegerField()


class LabelCount(models.Model):
    """How many experiments of a project have a label; rows as in ExperimentCount."""

    label = models.TextField()
    project = models.ForeignKey(
        Project, on_delete=models.DO_NOTHING, related_name="+", db_constraint=False, db_index=False
    )
    experiments = models.IntegerField()


class Trial(models.Model):
    experiment = models.ForeignKey(Experiment, on_delete=models.CASCADE, related_name="trials")
    task = models.OneToOneField(Task, on_delete=models.PROTECT, related_name="trial")
    #: the searcher's name for it
    request_id = models.UUIDField(default=uuid.uuid4)
    state = models.CharField(max_length=20, choices=TrialState.choices, default=TrialState.ACTIVE)
    hparams = JsonByName(default=dict)
    seed = models.BigIntegerField()
    restarts = models.PositiveIntegerField(default=0)
    #: number of the attempt whose reports count; equals the allocation's number
    run_id = models.PositiveIntegerField(default=0)
    steps_completed = models.BigIntegerField(default=0)
    progress = models.FloatField(null=True)
    runner_state = models.CharField(max_length=255, blank=True)
    latest_checkpoint = models.ForeignKey(
        "Checkpoint", null=True, on_delete=models.SET_NULL, related_name="+"
    )
    #: the checkpoint of another trial that this one began with, its steps counted from 0
    source_checkpoint = models.ForeignKey(
        "Checkpoint", null=True, on_delete=models.SET_NULL, related_name="started"
    )
    #: {"steps_completed", "metrics", "reported_at", "searcher_metric"}
    best_validation = models.JSONField(null=True)
    latest_validation = models.JSONField(null=True)
    #: group -> metric -> {count, sum, min, max, last, type}
    summary_metrics = models.JSONField(default=dict)
    searcher_metric = models.FloatField(null=True)
    metadata = models.JSONField(default=dict)
    early_exit = models.CharField(max_length=32, blank=True)
    #: names of the log policies that a line of its log has matched, in that order
    log_labels = models.JSONField(default=list)
    started_at = models.DateTimeField(auto_now_add=True)
    ended_at = models.DateTimeField(null=True)
    #: the user's own name for a detached trial, within its experiment
    external_id = models.CharField(max_length=255, null=True)
    #: images, histograms, texts and tables that are kept, and their bytes
    media_count = models.IntegerField(default=0, db_default=0)
    media_bytes = models.BigIntegerField(default=0, db_default=0)
    #: the sentence why further images, histograms, texts and tables are not kept; said once
    media_refused = models.TextField(blank=True, default="", db_default="")

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(fields=["experiment", "request_id"], name="request_once_per_experiment"),
            models.UniqueConstraint(fields=["experiment", "external_id"], name="external_trial_id_once"),
        ]
        indexes = [GinIndex(fields=["hparams"], opclasses=["jsonb_path_ops"], name="trials_by_hparam")]

    def name_task(self) -> None:
        """As logs, pages and Determined call it: by the trial's own id, which no other experiment has."""
        self.task.name = f"Trial {self.pk} (Experiment {self.experiment_id})"
        self.task.save(update_fields=["name"])


class Checkpoint(models.Model):
    uuid = models.UUIDField(primary_key=True, default=uuid.uuid4)
    trial = models.ForeignKey(Trial, on_delete=models.CASCADE, related_name="checkpoints")
    allocation_id = models.CharField(max_length=112)
    #: run key of the member whose host holds the files until they are uploaded
    run_key = models.CharField(max_length=128, blank=True)
    state = models.CharField(max_length=20, choices=CheckpointState.choices)
    steps_completed = models.BigIntegerField()
    resources = models.JSONField(default=dict)  # path -> bytes
    digests = models.JSONField(default=dict)  # path -> SHA-256 in hex, of files that the server has checked
    size_bytes = models.BigIntegerField(default=0)
    metadata = models.JSONField(default=dict)
    storage = models.JSONField(default=dict)  # {"type": "server"} or the config's block
    reported_at = models.DateTimeField()
    #: by the clock of its host, in the server's time; a report may arrive long after it
    saved_at = models.DateTimeField(null=True)
    #: how long the training was held up by saving it, as its code says
    save_seconds = models.FloatField(null=True)
    #: paths of files that are to be removed, while the checkpoint itself stays
    doomed = models.JSONField(null=True)
    #: trials that said that they work with it, for inference say
    used_by = models.ManyToManyField(Trial, related_name="uses")
    #: why its files are still there although they are to go, such as a host that is away
    deletion_waits_for = models.TextField(blank=True)

    class Meta:
        ordering = ["reported_at"]
        indexes = [
            models.Index(fields=["trial", "steps_completed"]),
            models.Index(
                fields=["uuid"],
                condition=models.Q(state=CheckpointState.DELETING) | models.Q(doomed__isnull=False),
                name="checkpoint_files_to_go",
            ),
        ]


class Media(models.Model):
    """An image, histogram, text or table that training code has reported at a step; written by `experiments.media`.

    `place` tells images of one name and step apart. The bytes of an image lie in a file, which is there before the row.
    """

    class Kind(models.TextChoices):
        IMAGE = "image"
        HISTOGRAM = "histogram"
        TEXT = "text"
        TABLE = "table"

    trial = models.ForeignKey(Trial, on_delete=models.CASCADE, related_name="media", db_index=False)
    kind = models.CharField(max_length=16, choices=Kind.choices)
    name = models.CharField(max_length=128)
    step = models.BigIntegerField()
    place = models.PositiveSmallIntegerField(default=0)
    #: number of the attempt that reported it
    run_id = models.PositiveIntegerField()
    reported_at = models.DateTimeField()
    caption = models.TextField(blank=True)
    #: bytes of the file, or of `content` as JSON
    size = models.PositiveIntegerField()
    #: of an image: png, jpeg, gif or webp, the SHA-256 of its file, its size in pixels
    type = models.CharField(max_length=8, blank=True)
    sha256 = models.CharField(max_length=64, blank=True)
    width = models.PositiveIntegerField(default=0)
    height = models.PositiveIntegerField(default=0)
    #: {"counts", "edges", "not_finite"?}, {"text"} or {"columns", "rows"}
    content = models.JSONField(default=dict)

    class Meta:
        ordering = ["kind", "name", "step", "place"]
        constraints = [
            models.UniqueConstraint(
                fields=["trial", "kind", "name", "step", "place"], name="media_once_per_step"
            )
        ]
        indexes = [models.Index(fields=["trial", "step"], name="media_by_step")]
