"""Checkpoints as the server knows them. Only the server marks one COMPLETED (law 3)."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from django.db import connection, transaction
from django.db.models import Exists, OuterRef, Q
from django.utils import timezone

from events.announce import wake
from experiments import s3_stores
from experiments.models import Checkpoint, Experiment, Trial
from experiments.states import USABLE, CheckpointState
from experiments.transitions import finish_if_done, lock, set_checkpoint_state, upload_block
from jobs import transitions as jobs
from jobs.models import Allocation
from jobs.states import Reason

_NAMED = 3  # of the files that are missing
_MOST_SECONDS = 366 * 86_400


class MissingFiles(Exception):
    """Files of the record that have not arrived in full."""

    def __init__(self, paths: list[str]) -> None:
        named = ", ".join(map(repr, paths[:_NAMED])) + (", …" if len(paths) > _NAMED else "")
        super().__init__(
            f"Files of the checkpoint are missing or have the wrong size ({len(paths)}): {named}."
        )
        self.paths = paths


def reported(
    trial: Trial, allocation_id: str, run_key: str, data: dict[str, Any], *, saved_at: datetime | None = None
) -> Checkpoint:
    """A rank has completed a checkpoint on its host. In `server` storage it is PARTIAL until it is uploaded.

    A second report of the same uuid changes nothing. The trial's experiment is locked by the caller. `saved_at`: by the
    server's clock, if the host has said when.
    """
    storage = data.get("storage") or "server"
    if not isinstance(storage, dict):
        storage = {"type": str(storage)}
    if "type" in storage:
        storage = {**storage, "type": str(storage["type"])}
    storage = s3_stores.without_secrets(storage)  # training code wrote it; the keys are in the config
    metadata = data.get("metadata")
    resources = {_inside(str(path)): int(size) for path, size in (data.get("resources") or {}).items()}
    uploaded = storage.get("type") != "server" and not s3_stores.is_signed(storage)
    checkpoint, new = Checkpoint.objects.get_or_create(
        uuid=uuid.UUID(str(data["uuid"])),
        defaults={
            "trial": trial,
            "allocation_id": allocation_id,
            "run_key": run_key,
            "state": CheckpointState.PARTIAL,
            "steps_completed": int(data.get("steps_completed") or 0),
            **with_files(resources),
            "metadata": metadata if isinstance(metadata, dict) else {},
            "storage": storage,
            "reported_at": timezone.now(),
            "saved_at": saved_at,
            "save_seconds": _seconds(data.get("seconds")),
        },
    )
    if not new:
        return checkpoint
    # one that comes after its experiment's end: what is kept is decided again
    Experiment.objects.filter(pk=trial.experiment_id, ended_at__isnull=False).update(collect_due=True)
    if uploaded:
        set_checkpoint_state(checkpoint, CheckpointState.COMPLETED, reason="reported", actor=f"run:{run_key}")
    if _is_of_current_attempt(trial, allocation_id):
        Trial.objects.filter(pk=trial.pk).update(latest_checkpoint=checkpoint)
        trial.latest_checkpoint = checkpoint
    return checkpoint


def _seconds(said: object) -> float | None:
    """None for what is no length of time."""
    is_number = isinstance(said, (int, float)) and not isinstance(said, bool)
    return float(said) if is_number and 0 <= said < _MOST_SECONDS else None  # type: ignore[arg-type, operator]


def with_files(files: Mapping[str, int]) -> dict[str, Any]:
    """The columns of a checkpoint that has these files: path -> bytes."""
    return {"resources": files, "size_bytes": sum(files.values())}


def used(trial: Trial, checkpoint_uuid: object) -> Checkpoint:
    """The trial works with this checkpoint. ValueError for one that is not known."""
    checkpoint = Checkpoint.objects.filter(pk=uuid.UUID(str(checkpoint_uuid))).first()
    if checkpoint is None:
        raise ValueError(f"there is no checkpoint {checkpoint_uuid}")
    checkpoint.used_by.add(trial)
    return checkpoint


def open_to(trial: Trial) -> Q:
    """What a run of this trial may read: its experiment's checkpoints, what it goes on from and what it began with."""
    others = [trial.latest_checkpoint_id, trial.source_checkpoint_id]
    return Q(trial__experiment_id=trial.experiment_id) | Q(pk__in=[pk for pk in others if pk])


def _inside(path: str) -> str:
    """The name of a file, or of a folder (`name/`), that lies in its checkpoint. ValueError for any other."""
    if any(part in {"", ".", ".."} for part in path.rstrip("/").split("/")) or "\0" in path:
        raise ValueError(f"the checkpoint lists a file {path!r} that is outside its folder")
    return path


def _is_of_current_attempt(trial: Trial, allocation_id: str) -> bool:
    """A late attempt's checkpoint is kept, but nothing resumes from it."""
    return Allocation.objects.filter(pk=allocation_id, number=trial.task.run_count).exists()


def note_digest(checkpoint_uuid: uuid.UUID, path: str, sha256: str) -> None:
    """The SHA-256 of a file that has arrived. Files of one checkpoint come from several hosts at once."""
    added = "UPDATE experiments_checkpoint SET digests = digests || jsonb_build_object(%s::text, %s::text)"
    with connection.cursor() as cursor:
        cursor.execute(f"{added} WHERE uuid = %s", [path, sha256, checkpoint_uuid])


@transaction.atomic
def completed(checkpoint_uuid: uuid.UUID, resources: dict[str, int], there: Mapping[str, int]) -> Checkpoint:
    """All files have been uploaded: check their sizes, mark it, and let a waiting trial start. Raises MissingFiles.

    `there` has the files that lie in its storage (its store's `listing`).
    """
    experiment_id = Checkpoint.objects.values_list("trial__experiment_id", flat=True).get(pk=checkpoint_uuid)
    experiment = lock(experiment_id)
    rows = Checkpoint.objects.select_related("trial__latest_checkpoint", "trial__experiment")
    checkpoint = rows.get(pk=checkpoint_uuid)
    if checkpoint.state != CheckpointState.PARTIAL:
        return checkpoint
    expected = {**checkpoint.resources, **resources}
    files = [path for path in sorted(expected) if not path.endswith("/")]
    missing = [path for path in files if there.get(path) != expected[path]]
    if missing:
        raise MissingFiles(missing)
    Checkpoint.objects.filter(pk=checkpoint.pk).update(**with_files(expected))
    set_checkpoint_state(
        checkpoint, CheckpointState.COMPLETED, reason="uploaded", actor=f"run:{checkpoint.run_key}"
    )
    _let_go_on(Trial.objects.select_related("latest_checkpoint").get(pk=checkpoint.trial_id))
    finish_if_done(experiment, actor="server")
    _collect_again(experiment_id)
    return checkpoint


@transaction.atomic
def given_up(trial: Trial, run_keys: Collection[str], *, reason: Reason) -> int:
    """No runner of these runs will bring the rest of its checkpoints: resume from what is complete.

    Returns how many were given up. One whose last file arrives afterwards stays in ERROR.
    """
    experiment = lock(trial.experiment_id)
    trial = Trial.objects.select_related("latest_checkpoint").get(pk=trial.pk)
    partial = trial.checkpoints.filter(state=CheckpointState.PARTIAL, run_key__in=run_keys)
    lost = list(partial.select_related("trial"))
    for checkpoint in lost:
        set_checkpoint_state(checkpoint, CheckpointState.ERROR, reason=reason, actor="server")
    if trial.latest_checkpoint_id in {checkpoint.pk for checkpoint in lost}:
        usable = trial.checkpoints.filter(state__in=[*USABLE, CheckpointState.PARTIAL])
        newest = usable.order_by("-steps_completed", "-reported_at").first() or trial.source_checkpoint
        Trial.objects.filter(pk=trial.pk).update(latest_checkpoint=newest)
        trial.latest_checkpoint = newest
    _let_go_on(trial)
    finish_if_done(experiment, actor="server")
    _collect_again(trial.experiment_id)
    return len(lost)


def _collect_again(experiment_id: int) -> None:
    """Once nothing of an ended experiment is being uploaded any more: other checkpoints may be superfluous now.

    A collection looks at all checkpoints of the experiment, under its lock. One for each of many uploads would take
    ever longer and let the next upload wait; before the last one the beat alone collects (collect_garbage).
    """
    uploading = Checkpoint.objects.filter(trial__experiment_id=OuterRef("pk"), state=CheckpointState.PARTIAL)
    if Experiment.objects.filter(~Exists(uploading), pk=experiment_id, collect_due=True).exists():
        wake("dispatch.tasks.collect_checkpoints", experiment_id)


def _let_go_on(trial: Trial) -> None:
    """Unblock the trial unless the one that it would start from is still being uploaded."""
    if not upload_block(trial):
        jobs.unblock(trial.task_id)
