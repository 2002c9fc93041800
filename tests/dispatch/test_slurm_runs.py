"""Runs in a real Slurm cluster: two nodes on this machine, whose login node is a real sshd.

The test does what beat and workers do: passes, launches, and looks at the cluster. One cluster serves all tests here.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from django.conf import LazySettings

from benchmarks.slurm import Slurm
from dispatch.ssh import slurm_login
from dispatch.ssh.contact_errors import Unreachable
from dispatch.watching import slurm_facts
from experiments import transitions as experiments
from experiments.models import Experiment
from experiments.states import ExperimentState
from hosts import slurm_nodes
from hosts.models import SlurmFacts
from jobs import feeding, queue_edits
from jobs.fed_jobs import FedJob
from jobs.models import Allocation
from jobs.queue_edits import Update
from jobs.states import Reason
from tests.dispatch.sshd import Sshd
from tests.rig.images import podman_of_slurm
from tests.rig.slurm_world import NEEDS_SLURM, World, login_shell, running_world, stand_in
from tests.rig.web import Web
from tests.rig.world import attempt_of, members_of, trial_of
from trainmaster.processes import marked, number_inside
from trainmaster.protocol import CONTAINER_MARKER

pytestmark = [
    pytest.mark.hosts,
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("redis_server"),
    NEEDS_SLURM,
]

#: each node is a rank, which prints 1..20
PRINTS = f"exec {sys.executable} -m trainmaster.launch.wrap_rank ${{DET_RESOURCES_ID##*.}} sh -c 'seq 1 20'"
#: until it is asked to save; then it says so, as the SDK does
SAVES = (
    "echo begun; while [ ! -e $TRAINMASTER_RUN_DIR/control/preempt.json ]; do sleep 0.05; done; "
    'echo saved; curl -s -X POST -H "Authorization: Bearer $DET_SESSION_TOKEN" -d "{}" '
    '"$DET_MASTER/api/v1/allocations/$DET_ALLOCATION_ID/signals/ack_preemption"'
)
SLEEPS = "echo begun; exec sleep 600"
IMAGE = "environment: {image: 'localhost/job:1'}"
#: in a container: which one, and what is seen of it from inside; then 1..20
IN_IMAGE = (
    'echo "image: $OF_THE_IMAGE"; [ -e /etc/debian_version ] || echo alone; '
    'python3 -c "import determined; print(determined.get_cluster_info().task_id)"; '
    "i=0; while [ $i -lt 20 ]; do i=$((i+1)); echo $i; done"
)
IN_IMAGE_SAVES = (
    "python3 -c \"import signal, sys; signal.signal(15, lambda *_: sys.exit(print('saved', flush=True))); "
    "print('waits', flush=True); [signal.pause() for _ in iter(int, 1)]\"; echo after"
)


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    cluster = Slurm(tmp_path_factory.mktemp("slurm") / "cluster", nodes=2, cpus_per_node=2)
    yield cluster
    cluster.close()


@pytest.fixture
def world(
    slurm: Slurm,
    start_sshd: Callable[..., Sshd],
    web: Web,
    tmp_path: Path,
    settings: LazySettings,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[World]:
    monkeypatch.setattr(feeding, "CONFIRM_SECONDS", 1.0)
    settings.LISTEN_ADDRESS, settings.LISTEN_PORT = "127.0.0.1", urlsplit(web.url).port
    settings.SLURM_LOOK_SECONDS = settings.SLURM_QUIET_LOOK_SECONDS = 0.0
    sshd = start_sshd(f"ForceCommand {login_shell(slurm, tmp_path)}")
    with running_world(slurm, sshd, tmp_path) as made:
        yield made


def test_a_run_on_two_nodes_is_fed_runs_and_ends_with_the_log_of_each_rank(world: World) -> None:
    experiment = world.submit(PRINTS, slots=4)
    world.until(lambda: world.state(experiment) == ExperimentState.COMPLETED)
    members = members_of(experiment)
    assert [member.host.name for member in members] == ["n1@stars", "n2@stars"]
    for rank in (0, 1):
        assert world.log(experiment, rank) == [str(number) for number in range(1, 21)]
    world.until(world.is_clean)


def running(world: World, experiment: Experiment) -> None:
    """Until its code has begun."""
    world.until(lambda: "begun" in world.log(experiment))


def test_at_most_max_fed_wait_in_slurm_and_our_order_decides_which(world: World) -> None:
    world.slurm.submit("sleep 600", 2, "-N2", "--ntasks-per-node=1", "--job-name=foreign")
    world.until(lambda: "RUNNING " in "".join(f"{job} " for job in world.jobs()))
    first, second, third = (world.submit("exit 0") for _ in range(3))
    world.until(lambda: FedJob.objects.exclude(job_id="").exclude(state="").count() == 2)
    world.until(lambda: "waits in Slurm as job" in world.wait(first))
    assert "at most 2" in world.wait(third)
    assert not Allocation.objects.exists(), "what only waits there is no attempt"
    world.turn()
    queue_edits.apply([Update(str(third.job_id), priority=10)], actor="user:ada", role="admin")
    world.until(lambda: attempts(world) == {comment(first), comment(third)})
    experiments.kill(first.pk, actor="user:ada")
    world.until(lambda: attempts(world) == {comment(second), comment(third)})
    world.slurm.run("scancel", "--name=foreign")
    for experiment in (second, third):
        world.until(lambda one=experiment: world.state(one) == ExperimentState.COMPLETED)
    assert world.state(first) == ExperimentState.CANCELED
    world.until(world.is_clean)


def comment(experiment: Experiment) -> str:
    return f"PENDING {trial_of(experiment).task_id}.1"


def attempts(world: World) -> set[str]:
    """Of the jobs that wait in Slurm."""
    return {job for job in world.jobs() if job.startswith("PENDING")}


@pytest.mark.survive(48)
def test_a_submission_whose_answer_was_lost_is_found_and_not_sent_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, sent = slurm_login.ask, []

    def ask(login: object, words: list[str], *more: object, **named: object) -> tuple[str, str]:
        answer = real(login, words, *more, **named)
        if words[0] == "sbatch":
            sent.append(words)
            raise Unreachable("The link broke.", delivered=True)
        return answer

    monkeypatch.setattr(slurm_login, "ask", ask)
    experiment = world.submit(PRINTS)
    world.until(lambda: world.state(experiment) == ExperimentState.COMPLETED)
    assert len(sent) == 1 and world.log(experiment, 0) == [str(number) for number in range(1, 21)]
    world.until(world.is_clean)


def test_a_kill_ends_the_run_and_its_job(world: World) -> None:
    experiment = world.submit(SLEEPS)
    running(world, experiment)
    experiments.kill(experiment.pk, actor="user:ada")
    world.until(lambda: world.state(experiment) == ExperimentState.CANCELED)
    world.until(world.is_clean)


def test_what_slurm_asks_to_leave_saves_and_waits_again(world: World) -> None:
    """As before its time limit, and where jobs of others are ahead in Slurm: SIGUSR1 to the batch script."""
    experiment = world.submit(SAVES)
    running(world, experiment)
    job = FedJob.objects.get(ended_at=None)
    world.slurm.run("scancel", "--signal=USR1", "--batch", job.job_id)
    world.until(lambda: attempt_of(experiment).number == 2 and world.log(experiment).count("begun") == 2)
    former = Allocation.objects.get(task=trial_of(experiment).task, number=1)
    assert (former.exit_reason, former.exit_code, former.stop_actor) == (Reason.PREEMPTED, 0, "slurm")
    assert trial_of(experiment).restarts == 0
    experiments.pause(experiment.pk, actor="user:ada")
    world.until(world.is_clean)
    assert world.state(experiment) == ExperimentState.PAUSED and world.log(experiment).count("saved") == 2


@pytest.mark.survive(45)
def test_a_login_node_that_is_away_ends_nothing(world: World) -> None:
    experiment = world.submit("echo begun; sleep 4; seq 1 20")
    running(world, experiment)
    world.sshd.stop()
    until = time.monotonic() + 6
    while time.monotonic() < until:
        world.turn()
        time.sleep(0.3)
    world.sshd.start()
    world.until(lambda: world.state(experiment) == ExperimentState.COMPLETED)
    assert attempt_of(experiment).number == 1
    assert [line for line in world.log(experiment) if line.isdigit()] == [
        str(number) for number in range(1, 21)
    ]
    world.until(world.is_clean)


@pytest.mark.survive(46)
def test_a_job_that_somebody_cancels_in_slurm_has_ended_so(world: World) -> None:
    experiment = world.submit(SLEEPS)
    running(world, experiment)
    world.slurm.run("scancel", FedJob.objects.get(ended_at=None).job_id)
    world.until(lambda: world.state(experiment) == ExperimentState.CANCELED)
    attempt = attempt_of(experiment)
    assert (attempt.number, attempt.exit_reason) == (1, Reason.KILLED_BY_USER)
    assert attempt.exit_detail["sentence"] == "The job was canceled in Slurm."
    world.until(world.is_clean)


def test_the_next_job_keeps_the_nodes_that_it_gets_while_the_former_is_settled(world: World) -> None:
    first, second = world.submit(SLEEPS, slots=4), world.submit("exit 0", slots=4)
    running(world, first)
    world.until(lambda: FedJob.objects.filter(state="PENDING").count() == 1)
    world.slurm.run("scancel", FedJob.objects.exclude(allocation=None).get().job_id)
    world.until(lambda: world.state(second) == ExperimentState.COMPLETED)
    row = FedJob.objects.get(task=trial_of(second).task)
    assert row.sends == 1 and row.back_at is None
    world.until(world.is_clean)


@pytest.mark.survive(46)
def test_a_partition_that_is_down_keeps_what_runs_and_holds_back_what_waits(world: World) -> None:
    first = world.count()
    world.halfway(first)
    world.slurm.run("scontrol", "update", "PartitionName=all", "State=DOWN")
    second = world.count()
    world.until(lambda: "Its partition is down" in world.wait(second).replace("its", "Its"))
    world.slurm.run("scontrol", "update", "PartitionName=all", "State=UP")
    for experiment in (first, second):
        world.assert_unharmed(experiment)
    world.until(world.is_clean)


@pytest.mark.survive(46)
def test_a_node_that_is_drained_finishes_what_it_runs(world: World) -> None:
    first = world.count()
    world.halfway(first)
    [member] = members_of(first)
    node = member.host.address
    world.slurm.run("scontrol", "update", f"NodeName={node}", "State=DRAIN", "Reason=riser")
    slurm_facts.read_pool(world.pool.pk)
    assert "riser" in slurm_nodes.of_pool(world.pool)[node].drain_reason
    second = world.count()
    world.halfway(second)
    assert [other.host.address for other in members_of(second)] == [{"n1": "n2", "n2": "n1"}[node]]
    for experiment in (first, second):
        world.assert_unharmed(experiment)
    world.until(world.is_clean)
    world.slurm.run("scontrol", "update", f"NodeName={node}", "State=RESUME")


@pytest.mark.survive(46)
def test_a_job_that_an_administrator_requeues_runs_in_a_new_attempt(world: World) -> None:
    experiment = world.count()
    world.halfway(experiment)
    job = world.job_id(experiment)
    world.slurm.run("scontrol", "update", f"JobId={job}", "Requeue=1")
    world.slurm.run("scontrol", "requeue", job)
    world.until(lambda: Allocation.objects.filter(number=2).exists())
    world.assert_unharmed(experiment, attempts=2)
    former = Allocation.objects.get(number=1)
    assert (former.exit_reason, former.exit_detail["sentence"]) == (
        Reason.PREEMPTED,
        "The job was requeued in Slurm.",
    )
    world.until(world.is_clean)


#: without those that have ended, as after a while (MinJobAge)
SQUEUE = """for word; do shift; [ "$word" = --states=all ] || set -- "$@" "$word"; done
exec /usr/bin/squeue "$@"
"""
#: of the one job that it is asked for: `sacct … -j ID --name=NAME …`
SACCT = """for word; do
    case "$word" in --name=*) name=${word#--name=};; esac
    [ "$before" != -j ] || job=$word
    before=$word
done
echo "$job|$name|$(id -un)|CANCELLED by 1000|0:15"
"""


def test_what_accounting_says_of_a_job_that_squeue_no_longer_lists_decides(world: World) -> None:
    experiment = world.submit(SLEEPS)
    running(world, experiment)
    facts = SlurmFacts.objects.get(pool=world.pool)
    facts.document["has_accounting"] = True
    facts.save()
    stand_in(world.folder, "squeue", SQUEUE)
    stand_in(world.folder, "sacct", SACCT)
    world.slurm.run("scancel", world.job_id(experiment))
    world.until(lambda: world.state(experiment) == ExperimentState.CANCELED)
    attempt = attempt_of(experiment)
    assert (attempt.number, attempt.exit_reason) == (1, Reason.KILLED_BY_USER)
    assert attempt.exit_detail["sentence"] == "The job was canceled in Slurm by the account with uid 1000."
    world.until(world.is_clean)


@pytest.fixture
def podman(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the login node and the nodes have as podman, before anybody looks for it there."""
    lacking = [name for name in ("podman", "crun", "unshare") if shutil.which(name) is None]
    if lacking:
        pytest.skip(f"This machine has no {', '.join(lacking)}.")
    stand_in(tmp_path, "podman", podman_of_slurm(tmp_path_factory.mktemp("podman")))
    return tmp_path / "bin" / "podman"


def containers(podman: Path) -> list[str]:
    return subprocess.run([podman, "ps", "-aq"], capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.compat
def test_a_run_in_an_image_is_part_of_its_slurm_job_and_ends_with_it(podman: Path, world: World) -> None:
    first = world.submit(IN_IMAGE, slots=4, more=IMAGE)
    world.until(lambda: world.state(first) == ExperimentState.COMPLETED, 120)
    said = ["image: yes", "alone", trial_of(first).task_id, *map(str, range(1, 21))]
    assert {line: world.log(first).count(line) for line in said} == dict.fromkeys(said, 2), (
        "once on each node"
    )
    world.until(lambda: world.is_clean() and not containers(podman))

    second = world.submit(IN_IMAGE_SAVES, more=IMAGE)
    world.until(lambda: "waits" in world.log(second), 120)
    inside = marked(CONTAINER_MARKER)[members_of(second)[0].run_key]
    cgroup = {Path(f"/proc/{process['pid']}/cgroup").read_text() for process in inside}
    assert len(inside) == 3 and cgroup == {Path("/proc/self/cgroup").read_text()}, "podman has made none"
    assert sorted(number_inside(process["pid"]) for process in inside) == [1, 2, 3]
    experiments.kill(second.pk, actor="user:ada")
    world.until(lambda: world.is_clean() and not containers(podman))
    assert "saved" in world.log(second) and "after" not in world.log(second)
    assert attempt_of(second).exit_code == 128 + signal.SIGTERM

    third = world.submit(f"{SLEEPS}; true", more=IMAGE)
    running(world, third)
    world.slurm.run("scancel", world.job_id(third))
    world.until(lambda: world.state(third) == ExperimentState.CANCELED)
    world.until(lambda: world.is_clean() and not containers(podman))
    assert not marked(CONTAINER_MARKER)
