"""Faults of a Slurm cluster that take a while. At the end of each: the true state, nothing run twice, the whole log."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from django.conf import LazySettings

from benchmarks.slurm import Slurm
from embedded.redis import Redis
from experiments.models import Experiment
from jobs.fed_jobs import FedJob
from jobs.models import Allocation
from jobs.states import Reason
from tests.dispatch.sshd import Sshd, running_sshd
from tests.rig import parts, slurm_accounting
from tests.rig.hosts import processes_with_marker
from tests.rig.server import Server
from tests.rig.slurm_accounting import AccountedSlurm
from tests.rig.slurm_world import NEEDS_SLURM, World, counting, login_shell, running_world, stand_in
from tests.rig.stack import Stack, config
from tests.rig.web import Web, running_web
from tests.rig.world import members_of, trial_of

pytestmark = [pytest.mark.chaos, pytest.mark.hosts, NEEDS_SLURM]
#: of a test whose server is this process
in_process = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis_server")]

#: until a node that is silent is down; from SIGTERM to SIGKILL; how long squeue lists what has ended
MORE = "SlurmdTimeout=5\nKillWait=2\nMinJobAge=300"
LIMIT_SECONDS = 120.0


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    cluster = Slurm(tmp_path_factory.mktemp("slurm") / "cluster", nodes=2, cpus_per_node=2, more=MORE)
    yield cluster
    cluster.close()


@pytest.fixture(scope="module")
def web(
    django_db_setup: None, redis_server: Redis, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Web]:
    with running_web(tmp_path_factory.mktemp("web")) as process:
        yield process


@pytest.fixture
def world(slurm: Slurm, web: Web, tmp_path: Path, settings: LazySettings) -> Iterator[World]:
    with begun(slurm, web, tmp_path, settings) as made:
        yield made


@contextmanager
def begun(slurm: Slurm, web: Web, tmp_path: Path, settings: LazySettings) -> Iterator[World]:
    """With limits so short that the faults of seconds here are longer than all of them."""
    settings.DATA_DIR = tmp_path / "data"
    settings.LISTEN_ADDRESS, settings.LISTEN_PORT = "127.0.0.1", urlsplit(web.url).port
    settings.SLURM_LOOK_SECONDS = settings.SLURM_QUIET_LOOK_SECONDS = 1.0
    settings.SLURM_START_SECONDS, settings.SSH_CONNECT_TIMEOUT_SECONDS = 8.0, 2.0
    settings.DRAIN_SECONDS, settings.LAUNCH_GIVE_UP_SECONDS = 3.0, 5.0
    with (
        running_sshd(tmp_path / "sshd", f"ForceCommand {login_shell(slurm, tmp_path)}") as sshd,
        running_world(slurm, sshd, tmp_path) as made,
    ):
        yield made


def turn_for(world: World, seconds: float) -> None:
    """The fault lasts so long."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        world.turn()
        time.sleep(0.3)


class TestInProcess:
    pytestmark = in_process

    @pytest.mark.survive(45)
    def test_the_controller_is_killed_and_comes_back(self, world: World) -> None:
        experiment, waiting = world.count(), world.count()
        world.halfway(experiment)
        world.slurm.kill("slurmctld")
        world.turn()
        later = world.count()
        world.turn()
        world.slurm.start("slurmctld")
        for each in (experiment, waiting, later):
            world.assert_unharmed(each, seconds=LIMIT_SECONDS)
        assert FedJob.objects.filter(allocation=None).count() == 0
        world.until(world.is_clean)

    @pytest.mark.survive(45)
    def test_a_login_node_is_away_for_longer_than_every_limit(self, world: World) -> None:
        """Meanwhile one run ends, and a job gets nodes that it has to give back."""
        world.slurm.submit("sleep 600", 2, "-N1", "--job-name=foreign")
        first = world.count()
        world.halfway(first)
        second = world.count()
        world.until(lambda: FedJob.objects.filter(state="PENDING").exists())
        world.sshd.stop()
        world.go_on()
        turn_for(world, 30)
        assert not Experiment.objects.exclude(state__in=["ACTIVE", "COMPLETED"]).exists()
        world.sshd.start()
        for each in (first, second):
            world.assert_unharmed(each, seconds=LIMIT_SECONDS)
        world.slurm.run("scancel", "--name=foreign")
        world.until(world.is_clean)

    @pytest.mark.survive(47)
    def test_a_node_fails_with_all_that_runs_there(self, world: World) -> None:
        experiment = world.count()
        world.halfway(experiment)
        [member] = members_of(experiment)
        node = member.host.address
        world.slurm.kill(node)
        kill_job(world.job_id(experiment), member.run_key)
        world.until(lambda: Allocation.objects.filter(number=2).exists(), LIMIT_SECONDS)
        world.assert_unharmed(experiment, attempts=2, seconds=LIMIT_SECONDS)
        former = Allocation.objects.get(number=1)
        assert (former.exit_reason, former.exit_detail["sentence"]) == (
            Reason.HOST_LOST,
            "A node of the Slurm job failed.",
        )
        world.until(world.is_clean)
        world.slurm.start(node)
        world.until(lambda: state_of(world, node) == "idle")

    @pytest.mark.survive(47)
    def test_a_run_outlives_the_daemon_of_its_node(self, world: World) -> None:
        """Slurm takes the node for failed while the run lives there, so it is not begun elsewhere."""
        experiment = world.count()
        world.halfway(experiment)
        [member] = members_of(experiment)
        node = member.host.address
        world.slurm.kill(node)
        world.until(lambda: FedJob.objects.get().state == "NODE_FAIL", LIMIT_SECONDS)
        turn_for(world, 20)
        world.assert_unharmed(experiment)
        world.until(world.is_clean)
        world.slurm.start(node)
        world.until(lambda: state_of(world, node) == "idle")

    @pytest.mark.survive(46)
    def test_a_run_reaches_its_time_limit_in_slurm(self, world: World) -> None:
        """It was asked to save before, and does not hear it, so Slurm ends it."""
        experiment = world.count()
        world.halfway(experiment)
        world.slurm.run("scontrol", "update", f"JobId={world.job_id(experiment)}", "TimeLimit=1")
        world.until(world.is_clean, 2 * LIMIT_SECONDS)
        attempt = Allocation.objects.get()
        assert (attempt.exit_reason, attempt.stop_actor) == (Reason.TIME_LIMIT, "slurm")
        assert attempt.exit_detail["sentence"] == "The Slurm job reached its time limit."
        assert [line for line in world.log(experiment) if line.isdigit()] == [str(n) for n in range(1, 11)]
        assert (world.folder / "begun").read_text().split() == [attempt.pk]
        assert not processes_with_marker(f"{attempt.pk}.0")

    @pytest.mark.survive(50)
    def test_the_shared_folder_is_read_only_for_a_while(self, world: World, minute: float) -> None:
        """Files can be neither opened for writing nor made. What is open already stays so, unlike on a file server."""
        first = world.count()
        world.halfway(first)
        with read_only(world.folder / "shared"):
            second = world.count()
            world.go_on()
            turn_for(world, minute)
            assert not Experiment.objects.exclude(state__in=["ACTIVE", "COMPLETED"]).exists()
        for each in (first, second):
            world.assert_unharmed(each, seconds=LIMIT_SECONDS)
        world.until(world.is_clean)


def kill_job(job_id: str, run_key: str) -> None:
    """kill -9 of all that runs of a job, as when its node loses power."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            environment = (process / "environ").read_bytes().split(b"\0")
            command = (process / "cmdline").read_bytes()
            if f"SLURM_JOB_ID={job_id}".encode() in environment or f"[{job_id}.".encode() in command:
                os.kill(int(process.name), signal.SIGKILL)
    for pid in processes_with_marker(run_key):  # what the run has started
        os.kill(pid, signal.SIGKILL)


def state_of(world: World, node: str) -> str:
    return world.slurm.run("sinfo", "-h", "-n", node, "-o", "%t").strip()


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """For every process that looks the folder up."""
    mount = ["mount", "--bind", str(folder), str(folder)]
    if subprocess.run(mount, check=False).returncode:
        pytest.skip("needs the right to mount")
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(folder)], check=True)
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


#: without those that have ended, as after a while
SQUEUE = """for word; do shift; [ "$word" = --states=all ] || set -- "$@" "$word"; done
exec /usr/bin/squeue "$@"
"""


@pytest.mark.survive(46)
@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif(not slurm_accounting.installed(), reason="slurmdbd or MariaDB is not installed")
def test_accounting_says_how_jobs_ended_that_squeue_no_longer_lists(
    web: Web, tmp_path: Path, settings: LazySettings
) -> None:
    with ExitStack() as stack:
        cluster = AccountedSlurm(tmp_path / "cluster", nodes=2, cpus_per_node=2)
        stack.callback(cluster.close)
        world = stack.enter_context(begun(cluster, web, tmp_path, settings))
        cluster.submit("sleep 600", 2, "-N1", "--job-name=foreign")
        running, waiting = world.count(), world.count()
        world.halfway(running)
        world.until(lambda: FedJob.objects.filter(state="PENDING").exists())
        stand_in(tmp_path, "squeue", SQUEUE)
        cluster.run("scancel", world.job_id(running), world.job_id(waiting))
        world.until(lambda: world.state(running) == "CANCELED")
        told = Allocation.objects.get(task=trial_of(running).task)
        assert (told.number, told.exit_reason) == (1, Reason.KILLED_BY_USER)
        assert told.exit_detail["sentence"] == "The job was canceled in Slurm by the account with uid 0."
        assert "ended as CANCELLED by 0 before its run began" in world.wait(waiting)
        world.assert_unharmed(waiting, seconds=LIMIT_SECONDS)
        world.until(world.is_clean)


# --- whole servers --------------------------------------------------------------------------------


@contextmanager
def installation(sshd: Sshd, shared: Path) -> Iterator[Stack]:
    """A server of its own with a pool over the cluster."""
    every = {"TRAINMASTER_SLURM_LOOK_SECONDS": "1", "TRAINMASTER_SLURM_QUIET_LOOK_SECONDS": "1"}
    with parts.private_folder("server") as path:
        path.chmod(0o711)
        server = Server(path / "data", settings=every)
        try:
            stack = Stack(server.start(), [])
            with (sshd.folder / "authorized_keys").open("a") as keys:
                keys.write(stack.get("/api/v1/hosts/server-key")["publicKey"] + "\n")
            rules = {"login": "stars", "folder": str(shared), "slot_type": "cpu", "max_fed": 2}
            route = {"address": "127.0.0.1", "port": sshd.port, "user": sshd.user}
            body = {"name": "stars", "slurm": rules, "sharedAccount": True, "allowLoginAccount": True}
            stack.post("/api/v1/resource-pools", {**body, "loginRoute": route})
            stack.wait(lambda: is_ready(stack), LIMIT_SECONDS, "the login node to be ready")
            yield stack
        finally:
            server.close()


def is_ready(stack: Stack) -> bool:
    seen = stack.get("/api/v1/hosts/stars-login")["host"]
    if seen["state"] == "admitting" and (offered := seen["hostKey"].get("offered")):
        stack.post("/api/v1/hosts/stars-login/accept-key", {"fingerprint": offered})
    assert seen["state"] != "failed", seen["stateReason"]
    return bool(seen["state"] == "ready")


@pytest.fixture
def login(slurm: Slurm, tmp_path: Path, settings: LazySettings) -> Iterator[Sshd]:
    settings.DATA_DIR = tmp_path / "data"
    with running_sshd(tmp_path / "sshd", f"ForceCommand {login_shell(slurm, tmp_path)}") as sshd:
        yield sshd
    slurm.run("scancel", "-u", "root")


def submit(stack: Stack, folder: Path) -> int:
    resources = {"slots_per_trial": 2, "resource_pool": "stars"}
    return stack.submit({}, config(2, f"sh -c {shlex.quote(counting(folder))}", resources=resources))


def numbers(stack: Stack, experiment: int) -> list[int]:
    try:
        lines = [record["log"] for record in stack.records(stack.trial(experiment)["id"])]
    except (OSError, IndexError):
        return []
    return [int(line) for line in lines if line.isdigit()]


def assert_unharmed(stack: Stack, experiment: int, folder: Path) -> None:
    """It completes in one attempt that has begun once, with its whole log, and nothing of it is left."""
    (folder / "go").touch()
    assert stack.wait_end(experiment) == "STATE_COMPLETED"
    trial = stack.trial(experiment)
    [attempt] = stack.get(f"/api/v1/tasks/{trial['taskId']}")["task"]["allocations"]
    assert (folder / "begun").read_text().split().count(attempt["allocationId"]) == 1
    assert numbers(stack, experiment) == list(range(1, 21)) and trial["restarts"] == 0
    stack.assert_nothing_runs([f"{attempt['allocationId']}.0"])
    stack.wait_free()


#: takes the job, and keeps its answer to itself until it is allowed to
SBATCH = """case "$*" in *--test-only*) exec /usr/bin/sbatch "$@";; esac
said=$(/usr/bin/sbatch "$@")
echo "$said" >> {folder}/sent
while [ ! -e {folder}/answer ]; do sleep 0.1; done
echo "$said"
"""


@pytest.mark.survive(48, 6)
def test_the_server_is_killed_between_sbatch_and_its_answer(login: Sshd, tmp_path: Path) -> None:
    stand_in(tmp_path, "sbatch", SBATCH.format(folder=tmp_path))
    with installation(login, tmp_path / "shared") as stack:
        experiment = submit(stack, tmp_path)
        stack.wait(lambda: (tmp_path / "sent").exists(), LIMIT_SECONDS, "a submission")
        stack.server.kill()
        (tmp_path / "answer").touch()
        stack.server.start()
        stack.token = stack.server.token()
        assert_unharmed(stack, experiment, tmp_path)
        assert len((tmp_path / "sent").read_text().split()) == 1


@pytest.mark.survive(49)
def test_two_installations_feed_one_cluster_and_leave_each_other_alone(
    slurm: Slurm, login: Sshd, tmp_path: Path
) -> None:
    """By one account, and with one folder: both pools have the same name."""
    shared = tmp_path / "shared"
    with installation(login, shared) as one, installation(login, shared) as other:
        running = [(stack, submit(stack, tmp_path)) for stack in (one, other)]
        for stack, experiment in running:
            stack.wait(lambda s=stack, e=experiment: 10 in numbers(s, e), LIMIT_SECONDS, "the first half")
        unwanted, waiting = (submit(stack, tmp_path) for stack in (one, other))
        one.wait(lambda: len(pending(slurm)) == 2, LIMIT_SECONDS, "two jobs that wait in Slurm")
        one.post(f"/api/v1/experiments/{unwanted}/kill")
        one.wait(lambda: len(pending(slurm)) == 1, LIMIT_SECONDS, "the job to leave")
        assert pending(slurm) == [f"{other.trial(waiting)['taskId']}.1"]
        for stack, experiment in [*running, (other, waiting)]:
            assert_unharmed(stack, experiment, tmp_path)


def pending(slurm: Slurm) -> list[str]:
    """Attempts of the jobs that wait in Slurm."""
    return slurm.run("squeue", "-h", "-t", "PENDING", "-o", "%k").split()
