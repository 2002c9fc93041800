"""A long queue without any host, as rows of a running server: for tests of pages and for benchmarks."""

from tests.rig.server import Server

OWNERS = ("mira", "tomas", "jun", "ines")

_FILL = """
import time
from accounts.models import User
from experiments.models import Experiment, Project, Trial
from hosts.models import ResourcePool
from hosts.pools import mark_dirty
from jobs.models import Job, Task
from submissions import contexts

NUMBER, POOL, MINE, SWEEP = {number}, {pool!r}, {mine}, {sweep}
pool = ResourcePool.objects.get_or_create(name=POOL)[0]
admin, project = User.objects.get(username="admin"), Project.objects.first()
owners = [User.objects.get_or_create(username=name)[0] for name in {owners!r}]
context = contexts.store([])
config = dict(searcher=dict(name="single", metric="loss", smaller_is_better=True), entrypoint="x",
              resources=dict(slots_per_trial=1))
begin = time.time() - NUMBER
jobs = [
    Job(kind="EXPERIMENT", name="sweep" if n < SWEEP else f"job-{{n}}", pool=pool, position=begin + n,
        owner=owners[0] if n < SWEEP else admin if n < SWEEP + MINE else owners[n % len(owners)])
    for n in range(NUMBER)
]
Job.objects.bulk_create(jobs, batch_size=2000)
experiments = Experiment.objects.bulk_create(
    [Experiment(job=job, state="ACTIVE", name=job.name, owner=job.owner, project=project, config=config,
                original_config="", context=context, seed=1) for job in jobs], batch_size=2000)
for job, experiment in zip(jobs, experiments):
    job.entity_id = str(experiment.pk)
Job.objects.bulk_update(jobs, ["entity_id"], batch_size=2000)
tasks = Task.objects.bulk_create(
    [Task(id=f"{{job.entity_id}}.crowd", job=job, kind="TRIAL", name=job.name, slots=1 + n % 8)
     for n, job in enumerate(jobs)], batch_size=2000)
if SWEEP:
    Task.objects.filter(job__in=jobs[:SWEEP]).update(slots=1)
Trial.objects.bulk_create(
    [Trial(experiment=experiment, task=task, seed=1) for experiment, task in zip(experiments, tasks)], batch_size=2000)
mark_dirty(pool.pk)
"""


def gather(server: Server, number: int, *, pool: str = "default", mine: int = 0, sweep: int = 0) -> None:
    """So many waiting experiments of one trial: first a `sweep` of identical ones, then `mine` of the admin's."""
    server.shell(_FILL.format(number=number, pool=pool, mine=mine, sweep=sweep, owners=OWNERS))
