"""Requests that nobody wrote: drawn from the OpenAPI document, answered as it says, and never with a 5xx."""

from __future__ import annotations

import os
import random
from collections.abc import Callable

import pytest

from experiments.models import Checkpoint, Trial
from hosts.models import Host
from jobs.models import Allocation
from shown.rest_bodies import BODIES
from tests.rig.api import Api, Cast, Json
from tests.rig.generated import Generated

#: beside everything that only reads: what makes rows and starts nothing
MAKES = {
    "/api/v1/tokens", "/api/v1/users", "/api/v1/users/setting", "/api/v1/webhooks", "/api/v1/webhooks/custom",
    "/api/v1/workspaces", "/api/v1/templates/{name}", "/api/v1/resource-pools", "/api/v1/job-queues/preview",
}  # fmt: skip


def test_a_few_requests_of_each_kind_are_answered_as_described(
    submit: Callable[..., Json], host: Host
) -> None:
    submit()
    found = Generated(lambda method, path: method == "GET" or path in MAKES, examples=1).run()
    assert not found.wrong, "\n\n".join(found.wrong)
    assert found.operations > 80


@pytest.mark.chaos
def test_many_requests_of_every_kind_are_answered_as_described(
    cast: Cast, running: tuple[Trial, Allocation, Api]
) -> None:
    """GENERATED_SECONDS (240) are divided among the operations; GENERATED_SEED draws the same requests again."""
    seconds = float(os.environ.get("GENERATED_SECONDS", "240"))
    start = int(os.environ.get("GENERATED_SEED") or random.SystemRandom().randrange(2**32))
    print(f"GENERATED_SEED={start}")
    everything = Generated(
        lambda method, path: True,
        examples=10_000,
        places=_places(cast, running),
        seconds=seconds,
        start=start,
    )
    found = everything.run()
    print(f"{found.requests} requests to {found.operations} operations")
    assert not found.wrong, f"GENERATED_SEED={start}\n\n" + "\n\n".join(found.wrong)
    assert found.operations > 180


def _places(cast: Cast, running: tuple[Trial, Allocation, Api]) -> dict[str, object]:
    """Where in the API one row of each kind is."""
    trial, allocation, _ = running
    checkpoint = Checkpoint.objects.create(
        trial=trial, allocation_id=allocation.pk, state="COMPLETED", steps_completed=10,
        resources={"model.pt": 7}, size_bytes=7, storage={"type": "server"}, reported_at=allocation.assigned_at,
    )  # fmt: skip
    made: dict[str, object] = {}
    for kind, name in (("command", "NewCommand"), ("shell", "NewService"), ("notebook", "NewService")):
        made[f"{kind}s/{{command_id}}"] = cast.admin.post(f"{kind}s", BODIES[name])[kind]["id"]
    shown = cast.admin.post("tensorboards", {"trialIds": [trial.pk]})["tensorboard"]
    cast.admin.put("templates/a100", BODIES["TemplateBody"])
    place = cast.admin.post("workspaces", BODIES["WorkspaceBody"])["workspace"]
    project = cast.admin.post(f"workspaces/{place['id']}/projects", BODIES["ProjectBody"])["project"]
    return {
        **made,
        "tensorboards/{command_id}": shown["id"],
        "experiments/{experiment_id}": trial.experiment_id,
        "trials/{trial_id}": trial.pk,
        "runs/{trial_id}": trial.pk,
        "tasks/{task_id}": trial.task_id,
        "allocations/{allocation_id}": allocation.pk,
        "jobs/{job_id}": str(allocation.task.job_id),
        "job-queues/{job_id}": str(allocation.task.job_id),
        "checkpoints/{checkpoint_uuid}": str(checkpoint.pk),
        "hosts/{name}": "gpu1",
        "agents/{name}": "gpu1",
        "slots/{index}": "0",
        "resource-pools/{name}": "default",
        "templates/{name}": "a100",
        "schemas/{name}": "experiment-config",
        "workspaces/{workspace_id}": place["id"],
        "projects/{project_id}": project["id"],
        "projects/key/{key}": project["key"],
        "users/{username}": "ada",
        "users/{user_id}": trial.experiment.owner_id,
        "tokens/{token_id}": cast.admin.post("tokens", BODIES["NewToken"])["tokenId"],
        "webhooks/{rule_id}": cast.admin.post("webhooks", BODIES["NewWebhook"])["webhook"]["id"],
    }
