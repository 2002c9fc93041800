"""The cast of every API test: an admin, Ada and Bob who edit, Vic who only looks, and a stranger."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from accounts.models import LoginToken, User
from experiments.models import Experiment, Trial
from hosts.models import Host, ResourcePool, Slot
from hosts.pools import default_pool
from jobs import transitions
from jobs.models import Allocation
from tests.rig.api import CONFIG, Api, Cast, Json, uploaded
from tests.rig.world import assigned, make_project


@pytest.fixture
def pool(db: None) -> ResourcePool:
    """The default pool, and the project that everything goes to."""
    make_project()
    return default_pool()


@pytest.fixture
def cast(db: None) -> Cast:
    """Everybody, logged in, except the stranger."""
    return Cast(
        admin=Api(_token("admin", User.Role.ADMIN)),
        ada=Api(_token("ada", User.Role.EDITOR)),
        bob=Api(_token("bob", User.Role.EDITOR)),
        vic=Api(_token("vic", User.Role.VIEWER)),
        stranger=Api(),
    )


def _token(name: str, role: str) -> str:
    user = User(username=name, role=role)
    user.set_unusable_password()
    user.save()
    return LoginToken.issue(user)


Submit = Callable[..., Json]


@pytest.fixture
def submit(cast: Cast, pool: ResourcePool) -> Submit:
    """Create an experiment as somebody (Ada, unless told) and give its record."""

    def create(by: Api | None = None, config: str = CONFIG, **body: Any) -> Json:
        files = [uploaded("train.py", "print(1)\n")]
        answer = (by or cast.ada).post("experiments", {"config": config, "modelDefinition": files, **body})
        return dict(answer["experiment"])

    return create


@pytest.fixture
def host(pool: ResourcePool) -> Host:
    """A host that is ready, with two GPU slots."""
    row = Host.objects.create(
        name="gpu1",
        pool=pool,
        address="10.0.0.1",
        admission=Host.Admission.READY,
        contact=Host.Contact.REACHABLE,
    )
    for index in range(2):
        Slot.objects.create(
            host=row, index=index, kind="cuda", uuid=f"GPU-{index}", brand="H200", memory_mb=141_000
        )
    return row


@pytest.fixture
def running(submit: Submit, host: Host) -> tuple[Trial, Allocation, Api]:
    """A trial of Ada's with an open allocation on the host, and a client with its run token."""
    experiment = Experiment.objects.get(pk=submit()["id"])
    trial = experiment.trials.get()
    slot = host.slots.get(index=0)
    allocation = assigned(
        task_id=trial.task_id, placement=[(host.pk, [slot.pk])], on_sufferance=False, actor="test"
    )
    return trial, allocation, Api(transitions.run_token(allocation))
