"""Idle hosts are asked now and then; a cut cable is silence, and nothing else."""

import sys
import threading
from datetime import timedelta
from pathlib import Path

import pytest
from django.conf import LazySettings
from django.db import connection
from django.utils import timezone

from dispatch.ssh import server_key
from dispatch.watching import probing
from hosts import observe
from hosts.models import Host
from hosts.pools import default_pool
from tests.dispatch.sshd import Sshd, wait_until
from tests.rig import hosts as rig
from tests.rig.world import be_whole

pytestmark = [
    pytest.mark.hosts,
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("redis_server"),
]


def ready_host(name: str, workdir: Path | str, **changes: object) -> Host:
    return Host.objects.create(
        name=name,
        pool=default_pool(),
        python=sys.executable,
        workdir=str(workdir),
        admission="ready",
        **changes,
    )


def rest(host: Host) -> None:
    """Make it the host's turn."""
    long_ago = timezone.now() - timedelta(minutes=1)
    Host.objects.filter(pk=host.pk).update(probe_after=None, last_seen_at=long_ago)


def test_quiet_hosts_are_asked_and_others_left_alone(sshd: Sshd, tmp_path: Path) -> None:
    quiet = ready_host(
        "quiet", tmp_path, address="127.0.0.1", port=sshd.port, login_user=sshd.user, host_key=sshd.host_key
    )
    heard = ready_host("heard", tmp_path, transport="local", last_seen_at=timezone.now())
    suspended = ready_host("suspended", tmp_path, transport="local")
    Host.objects.filter(pk=suspended.pk).update(admission="suspended")
    assert probing.probe_due() == 1 and probing.probe_due() == 0
    quiet.refresh_from_db()
    heard.refresh_from_db()
    assert quiet.contact == "reachable" and quiet.last_seen_at and heard.contact == "unknown"


def test_two_workers_share_the_hosts(tmp_path: Path) -> None:
    for number in range(6):
        ready_host(f"h{number}", tmp_path, transport="local")
    asked: list[int] = []

    def work() -> None:
        asked.append(probing.probe_due())
        connection.close()

    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sum(asked) == 6
    assert Host.objects.filter(contact="reachable").count() == 6


@pytest.mark.survive(1)
def test_a_cut_cable_is_silence_and_the_host_comes_back_by_itself(
    isolated_hosts: list[rig.Host], settings: LazySettings
) -> None:
    settings.HOST_SILENT_AFTER_SECONDS = 1.0
    settings.SSH_KEEPALIVE_SECONDS = 1.0
    settings.SSH_CONNECT_TIMEOUT_SECONDS = 5.0
    cut, other = isolated_hosts
    hosts = {}
    for machine in (cut, other):
        machine.authorize(server_key.public_key())
        hosts[machine.name] = ready_host(
            machine.name, "/var/lib/trainmaster", address=machine.address, port=machine.port, login_user="root",
            host_key=machine.host_key,
        )  # fmt: skip
    assert probing.probe_due() == 2
    cut.cut()
    for host in hosts.values():
        rest(host)
    asked = be_whole()
    probing.probe_due()
    observe.note_silence(asked)
    states = dict(Host.objects.values_list("name", "contact"))
    assert states == {cut.name: "silent", other.name: "reachable"}
    assert "No sshd answered" in Host.objects.get(name=cut.name).contact_error
    cut.restore()

    def back() -> bool:
        rest(hosts[cut.name])
        probing.probe_due()
        return Host.objects.get(name=cut.name).contact == "reachable"

    wait_until(back, what="the host's return")
