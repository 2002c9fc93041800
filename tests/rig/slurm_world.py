"""A Slurm pool over a real cluster of this machine, whose login node is a real sshd, and what tends it.

The tests do what beat and workers do: passes, launches, and looks at the cluster.
"""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from accounts.models import User
from benchmarks import slurm as slurm_rig
from benchmarks.slurm import Slurm
from dispatch.passes import last_plan, pool_pass
from dispatch.runs import clusters, launch, stop
from dispatch.watching import admission
from events import presence
from experiments import submit
from experiments.config import parse
from experiments.models import Experiment
from hosts import pool_edits, slurm_nodes
from hosts.models import ResourcePool
from hosts.registry import NewHost
from jobs.fed_jobs import FedJob
from jobs.models import Allocation, Member, SlotHold
from jobs.states import MemberState
from logs import read
from submissions import contexts
from tests.dispatch.sshd import Sshd
from tests.rig import pace
from tests.rig.hosts import processes_with_marker
from tests.rig.world import be_whole, make_project, make_user, trial_of

NEEDS_SLURM = pytest.mark.skipif(not slurm_rig.installed(), reason="Debian's Slurm is not installed")
CONFIG = """
name: fed
entrypoint: [sh, -c, {script}]
searcher: {{name: single, metric: loss, max_length: 1}}
resources: {{slots_per_trial: {slots}, resource_pool: stars}}
max_restarts: 1
"""


class World:
    """A Slurm pool over the cluster, and one turn of everything that tends it."""

    def __init__(self, pool: ResourcePool, slurm: Slurm, sshd: Sshd, folder: Path) -> None:
        self.pool = pool
        self.sshd = sshd
        self.slurm = slurm
        self.folder = folder

    def turn(self) -> None:
        for part in presence.Part:
            presence.stamp(part)
        pool_pass.run(self.pool.pk)
        clusters.tend(self.pool.pk)
        for pk in Member.objects.filter(state=MemberState.ASSIGNED).values_list("pk", flat=True):
            launch.launch(pk)
        for pk in Allocation.objects.exclude(stop_kind="").values_list("pk", flat=True):
            stop.stop(pk)

    def until(self, true: Callable[[], object], seconds: float = 60.0) -> None:
        limit = time.monotonic() + seconds * pace.factor()
        while not true():
            assert time.monotonic() < limit, self.story()
            self.turn()
            time.sleep(0.1)

    def story(self) -> str:
        rows = [(r.attempt, r.job_id, r.state, r.reason, r.error, r.over_at) for r in FedJob.objects.all()]
        members = [
            (m.run_key, m.state, m.last_error, m.exit_reason, m.exit_code) for m in Member.objects.all()
        ]
        return f"{rows}\n{members}\n{self.jobs()}"

    def submit(self, script: str, slots: int = 2, more: str = "", owner: User | None = None) -> Experiment:
        """`more`: further lines of the config."""
        text = CONFIG.format(script=shlex.quote(script).replace("'\"'\"'", "''"), slots=slots) + more
        return submit.create(
            owner=owner or make_user(), config=parse(text), original=text, context=contexts.empty(),
            project=make_project(), parent=None, activate=True, idempotency_key=None, actor="user:ada",
        )  # fmt: skip

    def jobs(self) -> list[str]:
        """Slurm's living jobs, `<state> <comment>`."""
        return self.slurm.run("squeue", "-h", "-o", "%T %k").splitlines()

    def log(self, experiment: Experiment, rank: int | None = None) -> list[str]:
        lines = read.forward(trial_of(experiment).task_id).lines
        return [line.text for line in lines if line.stream != "e" and line.rank == rank]

    def state(self, experiment: Experiment) -> str:
        return Experiment.objects.get(pk=experiment.pk).state

    def wait(self, experiment: Experiment) -> str:
        """The reason of its task in the queue."""
        self.pool.refresh_from_db()
        plan = last_plan.of(self.pool)
        return str(plan.waits.get(trial_of(experiment).task_id, {}).get("sentence"))

    def is_clean(self) -> bool:
        """Nothing is held here, and nothing waits or runs there."""
        held = SlotHold.objects.filter(released_at=None).exists()
        return not (held or FedJob.objects.filter(ended_at=None).exists() or self.jobs())

    def job_id(self, experiment: Experiment) -> str:
        """Of its job in Slurm."""
        return FedJob.objects.get(task=trial_of(experiment).task, ended_at=None).job_id

    # --- a run that counts ------------------------------------------------------------------------

    def count(self) -> Experiment:
        """Submit a run that counts."""
        return self.submit(counting(self.folder))

    def halfway(self, experiment: Experiment) -> None:
        self.until(lambda: "10" in self.log(experiment))

    def go_on(self) -> None:
        (self.folder / "go").touch()

    def assert_unharmed(self, experiment: Experiment, *, attempts: int = 1, seconds: float = 60.0) -> None:
        """It completes, each attempt has begun once, the log has all lines of each, and nothing of it is left.

        Of the attempts before the last, those to the middle.
        """
        self.go_on()
        self.until(lambda: self.state(experiment) == "COMPLETED", seconds)
        task = trial_of(experiment).task
        ids = list(Allocation.objects.filter(task=task).order_by("number").values_list("pk", flat=True))
        begun = [line for line in (self.folder / "begun").read_text().split() if line in ids]
        assert begun == ids and len(ids) == attempts, self.story()
        numbers = [*[*range(1, 11)] * (attempts - 1), *range(1, 21)]
        found = [line for line in self.log(experiment) if line.isdigit()]
        assert found == [str(number) for number in numbers]
        assert not trial_of(experiment).restarts, self.story()
        keys = Member.objects.filter(allocation__task=task)
        left = {member.run_key: processes_with_marker(member.run_key) for member in keys}
        assert not any(left.values()), f"processes are left: {left}"


def counting(folder: Path) -> str:
    """A script that prints 1 to 10, and to 20 once there is `go` in the folder; each attempt is noted in `begun`."""
    begun, go = folder / "begun", folder / "go"
    return f"echo $DET_ALLOCATION_ID >> {begun}; seq 1 10; while [ ! -e {go} ]; do sleep 0.1; done; seq 11 20"


def stand_in(folder: Path, command: str, script: str) -> None:
    """Have the login node of `login_shell` run a shell script instead of a command of Slurm."""
    path = folder / "bin" / command
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@contextmanager
def running_world(slurm: Slurm, sshd: Sshd, folder: Path, accounts: str = "one") -> Iterator[World]:
    """By an sshd whose connections get a `login_shell`. Afterwards the cluster is empty."""
    shared = accounts == "one"
    way = NewHost(
        "", address="127.0.0.1", port=sshd.port, login_user=sshd.user, host_key=sshd.host_key, python=sys.executable,
    )  # fmt: skip
    rules = {
        "slurm": {
            "login": "stars",
            "folder": str(folder / "shared"),
            "slot_type": "cpu",
            "max_fed": 2,
            "accounts": accounts,
        },
        "shared_account": shared,
        "allow_login_account": shared,
    }
    pool = pool_edits.create("stars", rules, actor="user:ada", route=way)
    login = slurm_nodes.login_of(pool)
    admission.admit(login.pk)
    login.refresh_from_db()
    assert login.admission == "ready", login.state_reason
    be_whole()
    yield World(pool, slurm, sshd, folder)
    slurm.run("scancel", "--partition=all")
    pace.wait_until(lambda: not slurm.waiting(), 60)


def login_shell(slurm: Slurm, folder: Path) -> Path:
    """Make a login shell that has the cluster's commands, of which those in `bin` of the folder go before others."""
    path = folder / "login_shell"
    variables = {**slurm.environment, "PATH": f"{folder}/bin:{slurm.environment['PATH']}"}
    exports = "; ".join(f"export {name}={variables[name]}" for name in ("PATH", "SLURM_CONF"))
    path.write_text(f'#!/bin/sh\n{exports}\nexec /bin/sh -c "$SSH_ORIGINAL_COMMAND"\n')
    path.chmod(0o755)
    return path
