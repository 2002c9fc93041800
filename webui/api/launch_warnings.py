"""What a submission should know at once: that its slots cannot be had as the pool stands now."""

from __future__ import annotations

from django.utils import timezone

from dispatch import survey
from experiments.models import Experiment
from scheduling import fitting
from scheduling.world import Request

EXCEEDED = "LAUNCH_WARNING_CURRENT_SLOTS_EXCEEDED"


def warnings_for(experiment: Experiment) -> tuple[list[str], list[str]]:
    """Determined's warning, which its client knows, and the sentence that says why."""
    resources = experiment.config.get("resources") or {}
    pool = experiment.job.pool
    request = Request(
        task_id="",
        job_id=str(experiment.job_id),
        label=f"exp {experiment.pk}",
        slots=int(resources.get("slots_per_trial", 1)),
        single_host=bool(resources.get("is_single_node")),
    )
    snapshot = survey.take(pool, timezone.now())
    shape = fitting.Shape.of(request, pool.allow_heterogeneous_fits)
    reason = fitting.never(snapshot, shape, request.slots)
    if reason is None:
        return [], []
    return [EXCEEDED], [f"It stays queued: {reason.sentence}."]
