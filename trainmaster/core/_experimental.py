"""`core_context.experimental`: what a task works with."""

from __future__ import annotations

import logging
from typing import Any, Dict, Optional

from trainmaster.core._records import Records

logger = logging.getLogger("trainmaster.core")


class ExperimentalContext:
    """Ties this trial's metrics to the checkpoint that it evaluates; off the cluster that is only logged."""

    def __init__(self, records: Optional[Records]) -> None:
        self._records = records

    def report_task_using_checkpoint(self, checkpoint: Any) -> None:
        """Say that this trial uses a checkpoint, for inference say: one of `client.get_checkpoint`, or its id."""
        self._report(str(getattr(checkpoint, "uuid", checkpoint)), {})

    def report_task_using_model_version(self, model_version: Any) -> None:
        """Say that this trial uses a version of a registered model. ValueError when it has no checkpoint."""
        checkpoint = getattr(model_version, "checkpoint", None)
        if checkpoint is None:
            raise ValueError(f"{model_version!r} is not a model version with a checkpoint.")
        version = {"model_id": model_version.model_id, "model_version": model_version.model_version}
        self._report(str(checkpoint.uuid), version)

    def _report(self, uuid: str, more: Dict[str, Any]) -> None:
        if self._records is None:
            logger.info("uses checkpoint %s", uuid)
        else:
            self._records.append("uses_checkpoint", uuid=uuid, **more)
