"""One trial of an experiment of its own, as rows: for what runs in a server's Django (Server.shell)."""

import time

from accounts.models import User
from experiments.models import Experiment, Project, Trial
from hosts.models import ResourcePool
from jobs.models import Job, Task
from tests.rig.many import empty_context


def add(name: str, state: str, *, metric: str = "loss") -> Trial:
    """A trial of the admin's in the pool `default`, of one slot; `metric` is its searcher's, smaller is better."""
    pool = ResourcePool.objects.get_or_create(name="default")[0]
    admin = User.objects.get(username="admin")
    context = empty_context()
    config = {
        "searcher": {"name": "single", "metric": metric, "smaller_is_better": True},
        "entrypoint": "x",
        "resources": {"slots_per_trial": 1},
    }
    job = Job.objects.create(kind="EXPERIMENT", name=name, pool=pool, position=time.time(), owner=admin)
    experiment = Experiment.objects.create(
        job=job, state=state, name=name, owner=admin, project=Project.objects.first(), config=config,
        original_config="", context=context, seed=1,
    )  # fmt: skip
    job.entity_id = str(experiment.pk)
    job.save()
    task = Task.objects.create(
        id=f"{experiment.pk}.{name}", job=job, kind="TRIAL", name=name, slots=1,
        state="ENDED" if state == "COMPLETED" else "WAITING",
    )  # fmt: skip
    return Trial.objects.create(experiment=experiment, task=task, seed=1, state=state)
