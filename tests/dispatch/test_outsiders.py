"""GPUs that somebody uses without the queue, on a real host whose nvidia-smi alone is a stand-in."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import LazySettings

from dispatch.passes import survey
from dispatch.runs import reconcile
from dispatch.ssh import server_key
from dispatch.watching import probing
from events.models import Event
from hosts.models import Host, PoolChange, Slot
from hosts.pools import default_pool
from tests.dispatch.test_probing import ready_host, rest
from tests.rig import hosts as rig
from tests.rig.world import assigned, members_of, submit_experiment, trial_of

pytestmark = [
    pytest.mark.hosts,
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("redis_server"),
]

GPUS = ["GPU-aaaa", "GPU-bbbb"]


class Machine:
    """A host of the rig with two GPUs; `apps` is what its nvidia-smi says of them."""

    def __init__(self, machine: rig.Host, folder: Path) -> None:
        self.machine = machine
        self.apps = folder / "apps"
        self.apps.write_text("")
        program = folder / "nvidia-smi"
        program.write_text(f'#!/bin/sh\ncase "$*" in *compute-apps*) cat {self.apps};; *) exit 9;; esac\n')
        program.chmod(0o755)
        self.row = ready_host(
            machine.name, "/var/lib/trainmaster", address=machine.address, port=machine.port, login_user="root",
            host_key=machine.host_key, contact="reachable",
        )  # fmt: skip
        for index, gpu in enumerate(GPUS):
            Slot.objects.create(host=self.row, index=index, kind=Slot.Kind.CUDA, uuid=gpu)
        self.pids: list[int] = []

    def starts(self, login: str, words: str) -> int:
        """A process of this login that goes on for a while; its pid."""
        pid = int(self.machine.run(f"{words} >/dev/null 2>&1 & echo $!", login).stdout)
        self.pids.append(pid)
        return pid

    def computes(self, *apps: tuple[str, int]) -> None:
        self.apps.write_text("".join(f"{gpu}, {pid}\n" for gpu, pid in apps))

    def outside(self) -> list[dict[str, object]]:
        return list(self.row.slots.order_by("index").values_list("outside", flat=True))


@pytest.fixture
def machine(isolated_hosts: list[rig.Host], tmp_path: Path, settings: LazySettings) -> Iterator[Machine]:
    settings.GPU_USERS_SECONDS = 0.0
    host = isolated_hosts[0]
    host.authorize(server_key.public_key())
    config = host.folder / "sshd_config"
    right = config.read_text()
    folder = host.folder / "stand-ins"
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755)
    config.write_text(right.replace("SetEnv PATH=", f"SetEnv PATH={folder}:"))
    try:
        host.stop_sshd()
        host.start_sshd()
        one = Machine(host, folder)
        yield one
        host.run(f"kill -9 {' '.join(map(str, one.pids))}" if one.pids else "true")
    finally:
        config.write_text(right)
        host.stop_sshd()
        host.start_sshd()


def probe(machine: Machine) -> None:
    rest(machine.row)
    assert probing.probe_due() == 1


@pytest.mark.survive(27)
def test_who_uses_a_gpu_without_the_queue_is_named_and_nothing_is_placed_there(machine: Machine) -> None:
    login = machine.machine.logins[1]
    stranger = machine.starts(login, "sleep 600 77")
    machine.computes((GPUS[0], stranger))
    PoolChange.objects.all().delete()
    probe(machine)
    assert machine.outside() == [{"user": login, "pid": stranger, "command": "sleep 600"}, {}]
    views = survey.take(default_pool(), machine.row.registered_at).hosts[0].slots
    assert [view.outside for view in views] == [login, None] and not views[0].usable
    assert PoolChange.objects.exists()
    probe(machine)
    machine.computes()
    probe(machine)
    assert machine.outside() == [{}, {}]
    events = Event.objects.filter(kind=Event.Kind.SLOT).values_list("reason", "detail__user")
    assert list(events) == [("outside", login), ("outside_left", login)]


@pytest.mark.parametrize("marker", ["9.other.1.0", "9.other.1.²", "'no key'.7"])
def test_a_run_of_this_server_is_nobody_from_outside_and_one_of_another_server_is(
    machine: Machine, marker: str
) -> None:
    experiment = submit_experiment()
    assigned(
        task_id=trial_of(experiment).task_id,
        placement=[(machine.row.pk, [machine.row.slots.get(index=0).pk])],
        on_sufferance=False,
        actor="scheduler",
    )
    [member] = members_of(experiment)
    ours = machine.starts("root", f"TRAINMASTER_RUN={member.run_key} sleep 600")
    theirs = machine.starts("root", f"TRAINMASTER_RUN={marker} sleep 600")
    machine.computes((GPUS[0], ours), (GPUS[1], theirs))
    reconcile.host(machine.row.pk)
    assert machine.outside() == [{}, {"user": "root", "pid": theirs, "command": "sleep 600"}]


def test_a_host_that_cannot_tell_changes_nothing(machine: Machine) -> None:
    stranger = machine.starts("root", "sleep 600")
    machine.computes((GPUS[1], stranger))
    probe(machine)
    machine.apps.unlink()
    probe(machine)
    assert machine.outside()[1]["pid"] == stranger


def test_a_host_is_asked_now_and_then(machine: Machine, settings: LazySettings) -> None:
    settings.GPU_USERS_SECONDS = 3600.0
    probe(machine)
    machine.computes((GPUS[0], machine.starts("root", "sleep 600")))
    probe(machine)
    assert machine.outside() == [{}, {}]
    Host.objects.update(gpu_users_at=None)
    probe(machine)
    assert machine.outside()[0]
