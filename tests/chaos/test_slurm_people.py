"""People in a Slurm pool with accounts=own: a real cluster, where the login becomes others by sudo, or is root.

The login shells are not bash: that of the login prints, and one that does nothing but print and end breaks whatever
would start it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from django.conf import LazySettings

from accounts.models import User
from accounts.refusals import Refusal
from benchmarks.slurm import Place, Slurm
from embedded.redis import Redis
from experiments import transitions as experiments
from experiments.models import Experiment
from experiments.states import ExperimentState
from hosts import pool_edits, slurm_nodes
from jobs import feeding
from jobs.fed_jobs import FedJob
from jobs.models import Allocation
from tests.dispatch.sshd import running_sshd
from tests.rig import parts
from tests.rig.hosts import ALICE, BOB, CARRIER, UIDS, own_accounts, processes_with_marker
from tests.rig.slurm_world import NEEDS_SLURM, World, running_world
from tests.rig.web import Web, running_web
from tests.rig.world import attempt_of, make_user, members_of, trial_of

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.hosts,
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("redis_server"),
    NEEDS_SLURM,
    pytest.mark.skipif(os.getuid() != 0 or not shutil.which("sudo"), reason="needs root and sudo"),
]

Words = tuple[str, ...]
SAVES = (
    "echo begun $(id -un) $TRAINMASTER_RUN_DIR; "
    "while [ ! -e $TRAINMASTER_RUN_DIR/control/preempt.json ]; do sleep 0.05; done; "
    'echo saved; curl -s -X POST -H "Authorization: Bearer $DET_SESSION_TOKEN" -d "{}" '
    '"$DET_MASTER/api/v1/allocations/$DET_ALLOCATION_ID/signals/ack_preemption"'
)
#: what bob tries against the run of alice
PRIES = (
    "id -un; for name in . spec.json slurm.json code spool/outbox; do "
    "ls {0}/$name >/dev/null 2>&1 && echo listed $name; cat {0}/$name >/dev/null 2>&1 && echo read $name; done; "
    "touch {0}/control/stop.json 2>/dev/null && echo wrote; mv {0} {0}.gone 2>/dev/null && echo moved; "
    "kill {1} 2>/dev/null && echo killed; echo tried all; exit 3"
)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with parts.private_folder("people") as path:
        path.chmod(0o755)
        yield path


@pytest.fixture(scope="module")
def shells(folder: Path) -> dict[str, Path]:
    noisy, broken = folder / "noisy", folder / "broken"
    noisy.write_text(
        "#!/bin/sh\necho 'Welcome to stars!'; echo 'module: command not found' >&2\n"
        f'. {folder}/way\nexec /bin/dash "$@"\n'
    )
    broken.write_text("#!/bin/sh\necho 'This account may not log in.'; exit 1\n")
    for shell in (noisy, broken):
        shell.chmod(0o755)
    return {CARRIER: noisy, "root": noisy, ALICE: broken, BOB: Path("/bin/dash")}


@pytest.fixture(scope="module")
def there(folder: Path, shells: dict[str, Path]) -> Iterator[Words]:
    """The words before a command that is to see the accounts."""
    rule = f"{CARRIER} ALL=({ALICE},{BOB}) NOPASSWD: ALL\n"
    (folder / "place").mkdir(mode=0o755)
    with own_accounts(folder / "place", shells, rule) as words:
        yield words


@pytest.fixture(scope="module")
def slurm(folder: Path, there: Words) -> Iterator[Slurm]:
    place = Place(before=there)
    cluster = Slurm(folder / "cluster", nodes=2, cpus_per_node=2, controller=place, nodes_at=place)
    way = "; ".join(f"export {name}={cluster.environment[name]}" for name in ("PATH", "SLURM_CONF"))
    (folder / "way").write_text(f"{way}\n")
    yield cluster
    cluster.close()


@pytest.fixture(scope="module")
def web(
    django_db_setup: None, redis_server: Redis, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Web]:
    with running_web(tmp_path_factory.mktemp("web")) as process:
        yield process


@pytest.fixture
def login() -> str:
    return CARRIER


@pytest.fixture
def world(
    slurm: Slurm,
    there: Words,
    folder: Path,
    login: str,
    web: Web,
    tmp_path: Path,
    settings: LazySettings,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[World]:
    settings.DATA_DIR = tmp_path / "data"
    monkeypatch.setattr(feeding, "CONFIRM_SECONDS", 1.0)
    settings.LISTEN_ADDRESS, settings.LISTEN_PORT = "127.0.0.1", urlsplit(web.url).port
    settings.SLURM_LOOK_SECONDS = settings.SLURM_QUIET_LOOK_SECONDS = 0.0
    own = folder / login
    (own / "shared").mkdir(mode=0o755, parents=True)
    shutil.chown(own / "shared", UIDS.get(login, 0))
    for name in (ALICE, BOB):
        User.objects.filter(pk=make_user(name).pk).update(unix_user=name, unix_uid=UIDS[name])
    make_user("carl")
    with (
        running_sshd(own / "sshd", before=there, login=login) as sshd,
        running_world(slurm, sshd, own, "own") as made,
    ):
        yield made


def as_user(name: str) -> User:
    return User.objects.get(username=name)


def words(world: World, experiment: Experiment, first: str) -> list[str]:
    lines = [line.split() for line in world.log(experiment)]
    return next((line for line in lines if line[:1] == [first]), [])


def test_jobs_of_two_people_run_under_their_accounts_and_are_kept_apart(world: World) -> None:
    report = slurm_nodes.login_of(world.pool).doctor["checks"]
    said = {check["name"]: (check["state"], check["sentence"]) for check in report}
    assert said["people"] == (
        "ok",
        "All 2 accounts of users who may submit can be reached through sudo, and Slurm takes jobs from them.",
    )
    assert said["account"][0] == "fail" and "Jobs of carl would run as carrier" in said["account"][1]
    with pytest.raises(Refusal, match="its owner has no linked Unix account"):
        world.submit("exit 0", owner=as_user("carl"))

    alices = world.submit(SAVES, owner=as_user(ALICE))
    world.until(lambda: words(world, alices, "begun"))
    _, name, place = words(world, alices, "begun")
    [member] = members_of(alices)
    assert (name, Path(place).stat().st_uid, Path(place).stat().st_mode & 0o777) == (
        ALICE,
        UIDS[ALICE],
        0o700,
    )
    assert {Path(f"/proc/{pid}").stat().st_uid for pid in processes_with_marker(member.run_key)} == {
        UIDS[ALICE]
    }

    pid = processes_with_marker(member.run_key)[0]
    bobs = world.submit(PRIES.format(place, pid), owner=as_user(BOB))
    world.until(lambda: "tried all" in world.log(bobs))
    assert sorted(world.slurm.run("squeue", "-h", "-o", "%u").split())[:1] == [ALICE]
    world.until(lambda: world.state(bobs) == ExperimentState.ERROR)
    former = Allocation.objects.get(task=trial_of(bobs).task, number=1)
    assert (former.exit_code, former.unix_user) == (3, BOB)
    told = {BOB, "listed", "read", "wrote", "moved", "killed", "tried"}
    did = [line for line in world.log(bobs) if line.split()[0] in told]
    assert did == [BOB, "tried all"] * 2

    experiments.pause(alices.pk, actor=f"user:{ALICE}")
    world.until(lambda: world.state(alices) == ExperimentState.PAUSED)
    world.until(world.is_clean)
    assert "saved" in world.log(alices) and trial_of(alices).restarts == 0
    experiments.activate(alices.pk, actor=f"user:{ALICE}")
    world.until(lambda: attempt_of(alices).number == 2 and world.log(alices).count("saved") == 1)
    world.until(lambda: len([line for line in world.log(alices) if line.startswith("begun")]) == 2)
    experiments.kill(alices.pk, actor=f"user:{ALICE}")
    world.until(lambda: world.state(alices) == ExperimentState.CANCELED)
    world.until(world.is_clean)
    assert set(FedJob.objects.values_list("unix_user", flat=True)) == {ALICE, BOB}


@pytest.mark.parametrize("login", ["root"])
def test_a_login_that_is_root_becomes_them_too(world: World) -> None:
    experiment = world.submit("id -un; exit 0", owner=as_user(ALICE))
    world.until(lambda: world.state(experiment) == ExperimentState.COMPLETED)
    assert ALICE in world.log(experiment)
    world.until(world.is_clean)
    waiting = world.submit("exit 0", owner=as_user(BOB))
    User.objects.filter(username=BOB).update(unix_user="nobody_there")
    world.until(lambda: "no account 'nobody_there'" in world.wait(waiting))
    pool_edits.edit("stars", {"slurm": {**world.pool.slurm, "max_fed": 1}}, actor="user:ada")
    experiments.kill(waiting.pk, actor="user:ada")
    world.until(world.is_clean)
