"""What a run's token reads: its own task, trial and experiment alone, as if there were no others."""

from __future__ import annotations

from experiments.models import Trial
from jobs.models import Allocation, Task
from webui.api.async_views import Principal
from webui.api.errors import Missing


def task_of_trial(who: Principal, trial_id: int) -> str:
    """The id of the trial's task. Raises Missing."""
    task_id = Trial.objects.filter(pk=trial_id).values_list("task_id", flat=True).first()
    if task_id is None or (isinstance(who, Allocation) and who.task_id != task_id):
        raise Missing(f"trial {trial_id} not found")
    return task_id


def own_task(who: Principal, task_id: str) -> str:
    """The id itself. Raises Missing."""
    is_another = isinstance(who, Allocation) and who.task_id != task_id
    if is_another or "\x00" in task_id or not Task.objects.filter(pk=task_id).exists():
        raise Missing(f"task {task_id!r} not found")
    return task_id


def own_experiments(who: Principal, *experiment_ids: int) -> None:
    """Raises Missing where a run asks for an experiment that is not its own."""
    if not isinstance(who, Allocation):
        return
    own = Trial.objects.filter(task_id=who.task_id).values_list("experiment_id", flat=True).first()
    if others := [each for each in experiment_ids if each != own]:
        raise Missing(f"experiment {others[0]} not found")
