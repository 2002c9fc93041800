"""Files that training code has written for TensorBoard, as the server keeps them: a folder for each trial."""

from __future__ import annotations

import shutil
from pathlib import Path

from django.conf import settings


def folder(experiment_id: int) -> Path:
    """All that the experiment's trials have written."""
    return Path(settings.DATA_DIR) / "tensorboard" / "experiment" / str(experiment_id)


def folder_of_trial(experiment_id: int, trial_id: int) -> Path:
    return folder(experiment_id) / "trial" / str(trial_id)


def of_trial(experiment_id: int, trial_id: int) -> list[tuple[str, Path]]:
    """(relative path, file), by path."""
    base = folder_of_trial(experiment_id, trial_id)
    return [(path.relative_to(base).as_posix(), path) for path in sorted(base.rglob("*")) if path.is_file()]


def delete(experiment_id: int) -> None:
    """Remove them all; nothing there is fine. OSError when something cannot be removed."""
    if (found := folder(experiment_id)).exists():
        shutil.rmtree(found)
