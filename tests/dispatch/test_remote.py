import concurrent.futures
import sys
import uuid
from pathlib import Path

import pytest
from django.db import transaction

from dispatch.ssh import local, remote
from hosts.models import Host
from hosts.pools import default_pool
from tests.dispatch.sshd import Sshd

pytestmark = [pytest.mark.hosts, pytest.mark.django_db]


def ssh_host(sshd: Sshd, workdir: Path) -> Host:
    return Host.objects.create(
        name=f"h{uuid.uuid4().hex[:6]}", pool=default_pool(), address="127.0.0.1", port=sshd.port, login_user=sshd.user,
        host_key=sshd.host_key, python=sys.executable, workdir=str(workdir), admission=Host.Admission.READY,
    )  # fmt: skip


@pytest.fixture(params=["ssh", "local"])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Host:
    """A host by either transport; both must behave the same."""
    workdir = tmp_path / "work"
    if request.param == "ssh":
        return ssh_host(request.getfixturevalue("sshd"), workdir)
    return Host.objects.create(
        name="local",
        pool=default_pool(),
        transport=Host.Transport.LOCAL,
        workdir=str(workdir),
        admission=Host.Admission.READY,
    )


def test_a_host_without_the_bundle_gets_it_and_answers(host: Host, tmp_path: Path) -> None:
    answer = remote.verb(host, "status", {})
    assert answer["runs"] == {} and answer["boot_id"]
    assert (
        tmp_path / "work/bundle" / remote.current_bundle().sha256 / "trainmaster/host/__main__.py"
    ).exists()
    host.refresh_from_db()
    assert host.contact == Host.Contact.REACHABLE and host.boot_id == answer["boot_id"] and host.last_seen_at


def test_pushes_at_the_same_time_harm_nobody(host: Host, tmp_path: Path) -> None:
    push = [lambda: remote.push(host)] * 4
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(lambda one: one(), push))) == 1
    assert [path.name for path in (tmp_path / "work/bundle").iterdir()] == [remote.current_bundle().sha256]


def test_a_verb_that_refuses_gives_its_code_and_sentence(host: Host) -> None:
    with pytest.raises(remote.VerbFailed) as caught:
        remote.verb(host, "launch", {"spec": {"protocol": 1}})
    assert caught.value.code == "bad_spec" and "lacks" in str(caught.value) and not caught.value.may_pass


def test_a_missing_python_is_named(host: Host) -> None:
    host.python = "/opt/nowhere/bin/python3"
    with pytest.raises(remote.NoPython, match="/opt/nowhere/bin/python3"):
        remote.verb(host, "status", {})


def test_a_host_is_never_contacted_inside_a_transaction(host: Host) -> None:
    with transaction.atomic(), pytest.raises(RuntimeError, match="never contacted inside"):
        remote.verb(host, "status", {})


def test_the_local_host_sees_no_secret_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://u:hunter2@db/x")
    monkeypatch.setenv("CLOUD_CREDENTIALS", "hunter2")
    assert b"hunter2" not in local.run("env").stdout


def test_a_local_command_that_takes_too_long_is_ended_with_its_children() -> None:
    with pytest.raises(remote.Unreachable, match="did not answer"):
        local.run("sleep 314.15 & sleep 314.15; true", timeout_seconds=0.3)
    lines = {_command_line(path) for path in Path("/proc").glob("[0-9]*/cmdline")}
    assert b"sleep\x00314.15\x00" not in lines


def _command_line(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


@pytest.mark.survive(4)
def test_a_changed_key_suspends_the_host_and_says_both_keys(sshd: Sshd, tmp_path: Path) -> None:
    host = ssh_host(sshd, tmp_path / "work")
    sshd.stop()
    sshd.new_host_key()
    sshd.start()
    with pytest.raises(remote.HostKeyChanged):
        remote.verb(host, "status", {})
    host.refresh_from_db()
    assert host.admission == Host.Admission.SUSPENDED
    assert host.offered_host_key == sshd.host_key
    assert host.state_reason.count("SHA256:") == 2
