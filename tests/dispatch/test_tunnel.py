"""Reverse tunnels: hosts in their own network reach a server that listens on loopback alone."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from django.conf import LazySettings
from django.utils import timezone

from dispatch.ssh import connections, remote, server_key, server_route, tunnel
from dispatch.ssh.dialling import endpoint_of
from dispatch.watching import admission
from hosts import registry
from hosts.models import Host, ResourcePool, TunnelLease
from hosts.pools import default_pool
from hosts.registry import NewHost
from tests.dispatch.sshd import wait_until
from tests.rig import hosts as rig
from tests.rig import network
from tests.rig.rows import make_gang
from tests.rig.web import ROOT, Web

pytestmark = [
    pytest.mark.hosts,
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("redis_server"),
]


@pytest.fixture
def tunnels(web: Web, settings: LazySettings) -> Iterator[tunnel.Tunnels]:
    """This process's tunnels, with short leases, over a server on loopback."""
    settings.LISTEN_ADDRESS, settings.LISTEN_PORT = "127.0.0.1", urlsplit(web.url).port
    settings.TUNNEL_LEASE_SECONDS = 1.5
    settings.SSH_KEEPALIVE_SECONDS = 0.5
    mine = tunnel.of_this_process()
    yield mine
    mine.close_all()


@pytest.fixture
def host(tunnels: tunnel.Tunnels, isolated_hosts: list[rig.Host]) -> Host:
    """An admitted host that has no other way to the server."""
    machine = isolated_hosts[0]
    machine.authorize(server_key.public_key())
    new = NewHost(
        f"h{uuid.uuid4().hex[:6]}",
        address=machine.address,
        port=machine.port,
        login_user="root",
        host_key=machine.host_key,
        wanted_slots=1,
    )
    host = registry.add(new, default_pool(), actor="user:ada")
    admission.admit(host.pk)
    host.refresh_from_db()
    assert host.admission == Host.Admission.READY, host.state_reason
    return host


def reaches(host: Host) -> bool:
    host.refresh_from_db()
    try:
        return server_route.answers_at(host, host.server_url) == ""
    except remote.RemoteError:
        return False


def test_a_host_without_a_way_gets_a_tunnel_and_says_so(host: Host, tunnels: tunnel.Tunnels) -> None:
    lease = TunnelLease.objects.get(host=host)
    assert (host.server_route, host.server_url) == ("tunnel", f"http://127.0.0.1:{lease.remote_port}")
    assert lease.holder == tunnels.holder
    [route] = [check for check in host.doctor["checks"] if check["name"] == "route"]
    assert route["state"] == "ok" and "tunnel" in route["sentence"]
    assert reaches(host)


def test_the_holder_renews_its_lease(host: Host) -> None:
    until = TunnelLease.objects.get(host=host).expires_at
    wait_until(lambda: TunnelLease.objects.get(host=host).expires_at > until, what="a longer lease")


def test_a_broken_tunnel_comes_back_at_the_same_port(host: Host, isolated_hosts: list[rig.Host]) -> None:
    before = host.server_url
    for pid in isolated_hosts[0].sessions():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    wait_until(lambda: tunnel.ensure_tunnels() or reaches(host), what="the tunnel")
    assert host.server_url == before


def test_a_lease_that_ran_out_is_taken_over_and_a_live_one_is_not(
    host: Host, tunnels: tunnel.Tunnels
) -> None:
    other = tunnel.Tunnels()
    assert other.ensure(host) is None
    url = host.server_url
    tunnels.close(host.pk)  # as a worker that ends in order; a killed one lets the lease run out
    wait_until(lambda: not reaches(host), what="the end of the tunnel")
    assert other.ensure(host) == url and reaches(host)
    TunnelLease.objects.filter(host=host).update(
        holder="gone", expires_at=timezone.now() + timedelta(minutes=1)
    )
    other.renew()  # somebody else has it by now
    wait_until(lambda: not reaches(host), what="the end of the tunnel")


def test_a_taken_port_is_replaced_and_the_new_url_is_noted(host: Host, tunnels: tunnel.Tunnels) -> None:
    before = host.server_url
    tunnels.close(host.pk)
    port = urlsplit(before).port or 0
    squatter = connections.open_forward(endpoint_of(host), port, "127.0.0.1", 9)
    try:
        url = tunnels.ensure(host)
        assert url and url != before and reaches(host)
        assert host.server_url == url
    finally:
        connections.close_forward(squatter)


def test_runs_are_told_when_their_url_changes(
    host: Host, tunnels: tunnel.Tunnels, isolated_hosts: list[rig.Host]
) -> None:
    [member] = make_gang()
    member.host = host
    member.save()
    run = isolated_hosts[0].workdir / "runs" / member.run_key
    run.mkdir(parents=True)
    (run / "server.json").write_text('{"urls": ["http://old"], "cert_sha256": null}')
    tunnels.close(host.pk)
    TunnelLease.objects.filter(host=host).update(remote_port=None)
    url = tunnels.ensure(host)
    assert url and json.loads((run / "server.json").read_text())["urls"] == [url]


def test_a_login_node_passes_its_tunnel_on_to_the_nodes(
    host: Host, tunnels: tunnel.Tunnels, isolated_hosts: list[rig.Host]
) -> None:
    """Whose pool says at which address they reach it; the tunnel that was there before ended on loopback alone."""
    login, node = isolated_hosts
    ResourcePool.objects.filter(pk=host.pool_id).update(slurm={"login": "x", "tunnel": login.address})
    Host.objects.filter(pk=host.pk).update(transport=Host.Transport.LOGIN)
    host = Host.objects.get(pk=host.pk)
    url = tunnels.ensure(host)
    assert url == f"http://{login.address}:{TunnelLease.objects.get(host=host).remote_port}"
    assert reaches(host)
    asked = f"curl -s -o /dev/null -w '%{{http_code}}' '{url}/runner/v1/nonce?value=x'"
    assert node.run(asked).stdout == "200"
    for pid in network.pids(str(login.namespace)):
        if b"\0relay\0" in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)
    assert node.run(asked).stdout == "000"
    wait_until(lambda: tunnel.ensure_tunnels() or node.run(asked).stdout == "200", what="the tunnel")
    assert host.server_url == url


def test_a_relay_says_where_it_cannot_listen(tmp_path: Path) -> None:
    for address, sentence in [
        ("127.0.0.1", "where no node can reach it"),
        ("203.0.113.7", "is not an address of the login node"),
        ("no-such-name.invalid", "The login node does not know"),
    ]:
        asked = json.dumps({"address": address, "port": 9})
        program = [sys.executable, "-S", "-E", str(ROOT / "trainmaster" / "host"), "relay"]
        done = subprocess.run(program, input=asked + "\n", capture_output=True, text=True, check=False)
        assert done.returncode == 1 and sentence in json.loads(done.stdout)["message"]
