"""Removes the files of checkpoints that are to go (experiments.checkpoint_deletion), however often it takes.

What is to go is in rows, and removing what is gone already is fine: a worker that dies in the middle, a storage that
does not answer and a host that is away cost time alone.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable

from dispatch.going_on import going_on
from dispatch.keeping import stored_files
from experiments import checkpoint_deletion
from experiments.models import Checkpoint
from experiments.states import CheckpointState

log = logging.getLogger(__name__)

#: The lease (events.leases) of these removals: one worker removes files at a time, and none while a backup copies them.
REMOVAL = "remove_checkpoint_files"


def remove_due(seconds: float, may_continue: Callable[[], bool] = lambda: True) -> bool:
    """Remove files for about so long, of each checkpoint once; True when the time was up before all had been tried.

    What has failed before is tried again with the next beat, so it asks for no further round. Before each checkpoint
    `may_continue` is asked: a backup may have begun while this process was stopped.
    """
    until = time.monotonic() + seconds
    tried: set[uuid.UUID] = set()
    while may_continue() and (checkpoint := _next(tried)):
        if time.monotonic() > until:
            return not checkpoint.deletion_waits_for
        tried.add(checkpoint.pk)
        with going_on(f"the removal of files of checkpoint {checkpoint.pk}"):  # deleted meanwhile, perhaps
            _remove(checkpoint)
    return False


def _next(tried: set[uuid.UUID]) -> Checkpoint | None:
    """One that nothing is known to stand against, else any: what one host keeps waiting delays no other."""
    left = checkpoint_deletion.to_remove().exclude(pk__in=tried)
    return left.filter(deletion_waits_for="").first() or left.order_by("?").first()


def _remove(checkpoint: Checkpoint) -> None:
    paths = None if checkpoint.state == CheckpointState.DELETING else list(checkpoint.doomed or [])
    try:
        stored_files.delete(checkpoint, paths)
    except OSError as error:  # a sentence of the storage: it does not answer, or is not the server's to reach
        log.warning("files of checkpoint %s could not be removed yet: %s", checkpoint.pk, error)
        checkpoint_deletion.waits(checkpoint, str(error))
        return
    checkpoint_deletion.gone(checkpoint, paths)
