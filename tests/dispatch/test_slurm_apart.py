"""A Slurm cluster whose nodes cannot reach the server, and share no folder with the login node."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from django.conf import LazySettings

from benchmarks import slurm as slurm_rig
from benchmarks.slurm import Place, Slurm
from dispatch.ssh import server_key, tunnel
from dispatch.watching import admission
from experiments import transitions as experiments
from experiments.states import ExperimentState
from hosts import pool_edits, slurm_nodes
from hosts.models import Host, ResourcePool, TunnelLease
from hosts.registry import NewHost
from jobs.fed_jobs import FedJob
from jobs.models import Allocation
from jobs.states import Reason
from tests.dispatch.test_slurm_runs import PRINTS, SAVES, SLEEPS, running
from tests.rig import hosts as rig
from tests.rig.slurm_world import World
from tests.rig.web import Web
from tests.rig.world import attempt_of, trial_of

pytestmark = [
    pytest.mark.hosts,
    pytest.mark.chaos,
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("redis_server"),
    pytest.mark.skipif(not slurm_rig.installed(), reason="Debian's Slurm is not installed"),
]


@pytest.fixture
def cluster(isolated_hosts: list[rig.Host], tmp_path: Path) -> Iterator[Slurm]:
    """Its controller is on the login node, the first host; its nodes are on the second."""
    login, nodes = (Place(host.address, host.namespace or "") for host in isolated_hosts[:2])
    slurm = Slurm(tmp_path / "cluster", nodes=2, cpus_per_node=2, controller=login, nodes_at=nodes)
    shell = tmp_path / "login_shell"
    exports = "; ".join(f"export {name}={slurm.environment[name]}" for name in ("PATH", "SLURM_CONF"))
    shell.write_text(f'#!/bin/sh\n{exports}\nexec /bin/sh -c "$SSH_ORIGINAL_COMMAND"\n')
    shell.chmod(0o755)
    isolated_hosts[0].authorize(f'command="{shell}" {server_key.public_key()}')
    yield slurm
    slurm.close()


@pytest.fixture
def tunnels(web: Web, settings: LazySettings) -> Iterator[tunnel.Tunnels]:
    """This process's tunnels over a server on loopback, which no host of the rig reaches."""
    settings.LISTEN_ADDRESS, settings.LISTEN_PORT = "127.0.0.1", urlsplit(web.url).port
    settings.TUNNEL_LEASE_SECONDS = 1.5
    settings.SLURM_LOOK_SECONDS = settings.SLURM_QUIET_LOOK_SECONDS = 0.0
    mine = tunnel.of_this_process()
    yield mine
    mine.close_all()


def pool_of(machine: rig.Host, folder: Path, **more: object) -> ResourcePool:
    way = NewHost(
        "", address=machine.address, port=machine.port, login_user="root", host_key=machine.host_key,
        python=sys.executable,
    )  # fmt: skip
    rules = {
        "slurm": {"login": "stars", "folder": str(folder), "slot_type": "cpu", **more},
        "shared_account": True,
        "allow_login_account": True,
    }
    return pool_edits.create("stars", rules, actor="user:ada", route=way)


def admitted(pool: ResourcePool) -> Host:
    login = slurm_nodes.login_of(pool)
    admission.admit(login.pk)
    login.refresh_from_db()
    return login


def route(login: Host) -> str:
    [check] = [check for check in login.doctor["checks"] if check["name"] == "route"]
    return f"{check['state']}: {check['sentence']}"


def set_tunnel(pool: ResourcePool, address: str) -> Host:
    pool_edits.edit("stars", {"slurm": {**pool.slurm, "tunnel": address}}, actor="user:ada")
    return admitted(pool)


def test_runs_on_nodes_use_the_tunnel_of_the_login_node(
    cluster: Slurm, tunnels: tunnel.Tunnels, isolated_hosts: list[rig.Host], tmp_path: Path
) -> None:
    machine = isolated_hosts[0]
    pool = pool_of(machine, tmp_path / "shared")
    login = admitted(pool)
    assert login.admission == Host.Admission.FAILED and "set tunnel=ADDRESS" in login.state_reason
    login = set_tunnel(pool, "10.0.0.99")
    assert "not an address of the login node" in login.state_reason, login.state_reason
    login = set_tunnel(pool, machine.address)
    assert login.admission == Host.Admission.READY, login.state_reason
    lease = TunnelLease.objects.get(host=login)
    assert login.server_url == f"http://{machine.address}:{lease.remote_port}"
    assert route(login).startswith("ok: Nodes reach the server by the login node")

    world = World(pool, cluster, None, tmp_path)
    experiment = world.submit(SLEEPS.replace("600", "4"), slots=4)
    running(world, experiment)
    for pid in machine.sessions():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    world.until(lambda: tunnel.ensure_tunnels() or world.state(experiment) == ExperimentState.COMPLETED)
    assert attempt_of(experiment).number == 1
    world.until(world.is_clean)


def test_runs_live_in_folders_that_only_their_nodes_see(
    cluster: Slurm, tunnels: tunnel.Tunnels, isolated_hosts: list[rig.Host], tmp_path: Path
) -> None:
    machine, own = isolated_hosts[0], tmp_path / "own"
    pool = pool_of(machine, own, folder_is_shared=False, tunnel=machine.address)
    login = admitted(pool)
    assert login.admission == Host.Admission.READY, login.state_reason
    assert login.workdir == "/var/lib/trainmaster"
    world = World(pool, cluster, None, tmp_path)

    experiment = world.submit(PRINTS, slots=4)
    world.until(lambda: world.state(experiment) == ExperimentState.COMPLETED)
    for rank in (0, 1):
        assert world.log(experiment, rank) == [str(number) for number in range(1, 21)]
    world.until(world.is_clean)
    assert not (machine.workdir / "runs").exists() and not list((own / "runs").iterdir())

    experiment = world.submit(SAVES)
    running(world, experiment)
    job = FedJob.objects.get(ended_at=None)
    world.slurm.run("scancel", "--signal=USR1", "--batch", job.job_id)
    world.until(lambda: attempt_of(experiment).number == 2 and world.log(experiment).count("begun") == 2)
    former = Allocation.objects.get(task=trial_of(experiment).task, number=1)
    assert (former.exit_reason, former.exit_code, former.stop_actor) == (Reason.PREEMPTED, 0, "slurm")
    experiments.pause(experiment.pk, actor="user:ada")
    world.until(world.is_clean)
    assert world.state(experiment) == ExperimentState.PAUSED and world.log(experiment).count("saved") == 2

    experiment = world.submit(SLEEPS, slots=4)
    running(world, experiment)
    experiments.kill(experiment.pk, actor="user:ada")
    world.until(lambda: world.state(experiment) == ExperimentState.CANCELED)
    world.until(world.is_clean)

    experiment = world.submit(SLEEPS)
    running(world, experiment)
    world.slurm.run("scancel", FedJob.objects.get(ended_at=None).job_id)
    world.until(lambda: world.state(experiment) == ExperimentState.CANCELED)
    assert attempt_of(experiment).exit_detail["sentence"] == "The job was canceled in Slurm."
    world.until(world.is_clean)
