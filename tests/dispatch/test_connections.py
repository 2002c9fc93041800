import concurrent.futures
import os
import signal
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from django.conf import LazySettings

from dispatch.ssh import connections, server_key
from dispatch.ssh.contact_errors import HostKeyChanged, HostKeyUnknown, LoginRefused, SshBusy, Unreachable
from dispatch.ssh.dialling import Endpoint, Hop
from dispatch.ssh.ssh_session import execute
from tests.dispatch.sshd import Sshd, wait_until
from tests.rig.ports import free_port

pytestmark = pytest.mark.hosts


def test_a_command_gets_its_bytes_and_gives_its_streams_and_exit_code(sshd: Sshd) -> None:
    body = bytes(range(256)) * 4000
    answer = connections.run(sshd.endpoint(), "cat; echo oops >&2; exit 7", body)
    assert (answer.code, answer.stdout, answer.stderr) == (7, body, b"oops\n")


def test_a_signal_counts_as_a_shell_counts_it(sshd: Sshd) -> None:
    assert connections.run(sshd.endpoint(), "kill -9 $$").code == 137


@pytest.mark.survive(5)
def test_a_flood_on_stderr_neither_blocks_nor_costs_memory(sshd: Sshd) -> None:
    answer = connections.run(sshd.endpoint(), "head -c 10000000 /dev/zero >&2; printf '\\377done'")
    assert answer.stdout == b"\xffdone"
    assert len(answer.stderr) <= 2 * 64 * 1024 + 2**20


def test_one_connection_serves_all_callers(sshd: Sshd) -> None:
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        seen = set(
            pool.map(lambda _: connections.run(sshd.endpoint(), "echo $SSH_CONNECTION").stdout, range(32))
        )
    assert len(seen) == 1


def test_an_sshd_that_lets_nobody_through_to_its_ports_is_known(
    sshd: Sshd, start_sshd: Callable[..., Sshd]
) -> None:
    assert connections.way_refused(sshd.endpoint()) == ""
    assert "AllowTcpForwarding yes or local" in connections.way_refused(
        start_sshd("AllowTcpForwarding remote").endpoint()
    )


def test_the_private_key_is_made_once_and_for_the_server_alone(
    tmp_path: Path, settings: LazySettings
) -> None:
    settings.DATA_DIR = tmp_path / "fresh"
    line = server_key.public_key()
    path = tmp_path / "fresh" / "ssh" / "id_ed25519"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert line.startswith("ssh-ed25519 ") and line == server_key.public_key()
    assert [file.name for file in path.parent.iterdir()] == ["id_ed25519"]


@pytest.mark.survive(4)
def test_an_unknown_key_is_shown_and_nothing_is_run(sshd: Sshd) -> None:
    hop = Hop("127.0.0.1", sshd.port, sshd.user, "")
    with pytest.raises(HostKeyUnknown, match="nobody has accepted") as caught:
        connections.run(Endpoint((hop,)), "true")
    assert caught.value.offered == sshd.host_key


@pytest.mark.survive(4)
def test_a_changed_key_is_refused_with_both_fingerprints(sshd: Sshd) -> None:
    old = sshd.endpoint()
    connections.run(old, "true")
    sshd.stop()
    sshd.new_host_key()
    sshd.start()
    wait_until(lambda: _outcome(old) is HostKeyChanged, what="the changed key")
    with pytest.raises(HostKeyChanged) as caught:
        connections.run(old, "true")
    assert caught.value.offered == sshd.host_key
    assert server_key.fingerprint(old.target.host_key) in str(caught.value)


def _outcome(endpoint: Endpoint) -> type[Exception] | None:
    try:
        connections.run(endpoint, "true")
    except Exception as error:
        return type(error)
    return None


def test_a_host_that_refuses_our_key_says_which_line_it_needs(sshd: Sshd) -> None:
    sshd.authorize()
    with pytest.raises(LoginRefused, match="authorized_keys") as caught:
        connections.run(sshd.endpoint(), "true")
    assert server_key.public_key() in str(caught.value)


def test_an_unknown_name_a_closed_port_and_a_mute_port_each_get_their_sentence(
    sshd: Sshd, settings: LazySettings
) -> None:
    def dial(address: str, port: int) -> None:
        connections.run(Endpoint((Hop(address, port, "root", sshd.host_key),)), "true")

    with pytest.raises(Unreachable, match=r"name 'no-such-host\.invalid' is unknown"):
        dial("no-such-host.invalid", 22)
    with pytest.raises(Unreachable, match="refuses connections"):
        dial("127.0.0.1", free_port())
    settings.SSH_CONNECT_TIMEOUT_SECONDS = 0.5
    with (
        socket.create_server(("127.0.0.1", 0)) as mute,
        pytest.raises(Unreachable, match="No sshd answered at"),
    ):
        dial("127.0.0.1", mute.getsockname()[1])


@pytest.mark.survive(3)
def test_more_sessions_than_sshd_allows_wait_for_their_turn(start_sshd: Callable[..., Sshd]) -> None:
    sshd = start_sshd("MaxSessions 2")
    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        answers = list(
            pool.map(lambda n: connections.run(sshd.endpoint(), f"sleep 0.05; echo {n}"), range(20))
        )
    assert [int(answer.stdout) for answer in answers] == list(range(20))


@pytest.mark.survive(3)
def test_an_sshd_without_any_session_is_busy_not_dead(
    start_sshd: Callable[..., Sshd], settings: LazySettings
) -> None:
    settings.SSH_LIMIT_RETRY_SECONDS = 0.5
    sshd = start_sshd("MaxSessions 0")
    with pytest.raises(SshBusy, match="MaxSessions"):
        connections.run(sshd.endpoint(), "true")


@pytest.mark.survive(3)
def test_a_full_sshd_is_dialled_again_until_it_has_room(start_sshd: Callable[..., Sshd]) -> None:
    sshd = start_sshd("MaxStartups 1", "LoginGraceTime 60")
    with socket.create_connection(("127.0.0.1", sshd.port)) as hog:
        hog.recv(64)  # sshd serves it, so the only place is taken
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            answer = pool.submit(connections.run, sshd.endpoint(), "echo in")
            with pytest.raises(concurrent.futures.TimeoutError):
                answer.result(0.7)
            hog.close()
            assert answer.result(60).stdout == b"in\n"


def test_a_port_that_always_hangs_up_is_called_busy(sshd: Sshd, settings: LazySettings) -> None:
    settings.SSH_LIMIT_RETRY_SECONDS = 0.3
    sshd.stop()
    sshd.options = ["MaxStartups 1"]
    sshd.start()
    with socket.create_connection(("127.0.0.1", sshd.port)) as hog:
        hog.recv(64)
        with pytest.raises(SshBusy, match="MaxStartups"):
            connections.run(sshd.endpoint(), "true")


@pytest.mark.survive(3)
def test_dials_at_one_jump_host_are_bounded_and_all_succeed(
    start_sshd: Callable[..., Sshd], settings: LazySettings
) -> None:
    jump = start_sshd("MaxStartups 4:100:4")
    targets = [start_sshd() for _ in range(3)]
    endpoints = [Endpoint((jump.hop(), target.hop())) for target in targets]
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        answers = list(
            pool.map(lambda n: connections.run(endpoints[n % 3], "echo $SSH_CONNECTION").stdout, range(12))
        )
    ports = {int(answer.split()[3]) for answer in answers}
    assert ports == {target.port for target in targets}


def test_a_jump_host_that_cannot_reach_the_host_says_so(sshd: Sshd) -> None:
    with pytest.raises(Unreachable, match=r"jump host .* cannot reach 127\.0\.0\.1 port"):
        connections.run(Endpoint((sshd.hop(), Hop("127.0.0.1", free_port(), "root", sshd.host_key))), "true")


@pytest.mark.survive(2)
def test_a_half_open_link_is_noticed_and_drops_that_connection_alone(
    start_sshd: Callable[..., Sshd], settings: LazySettings, tmp_path: Path
) -> None:
    settings.SSH_KEEPALIVE_SECONDS = 1.5
    frozen, other = start_sshd(), start_sshd()
    kept = connections.run(other.endpoint(), "echo $SSH_CONNECTION").stdout
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        first = connections.run(frozen.endpoint(), "echo $SSH_CONNECTION").stdout
        running = pool.submit(connections.run, frozen.endpoint(), f"touch {tmp_path}/begun; exec sleep 300")
        wait_until((tmp_path / "begun").exists, what="the command")
        sessions = frozen.sessions()
        for pid in sessions:
            os.kill(pid, signal.SIGSTOP)
        with pytest.raises(Unreachable, match="broke before the answer came") as caught:
            running.result(60)
    assert caught.value.delivered
    assert connections.run(frozen.endpoint(), "echo $SSH_CONNECTION").stdout != first  # by a new connection
    assert connections.run(other.endpoint(), "echo $SSH_CONNECTION").stdout == kept
    for pid in sessions:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.survive(2)
def test_a_link_that_broke_meanwhile_is_dialled_anew(sshd: Sshd) -> None:
    connections.run(sshd.endpoint(), "true")
    for pid in sshd.sessions():
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: _outcome(sshd.endpoint()) is None, what="a new connection")


def test_a_command_that_takes_too_long_is_given_up_and_may_have_been_delivered(sshd: Sshd) -> None:
    connections.run(sshd.endpoint(), "true")
    with pytest.raises(Unreachable, match=r"within 2 s") as caught:
        connections.run(sshd.endpoint(), "exec sleep 60", timeout_seconds=2)
    assert caught.value.delivered
    assert connections.run(sshd.endpoint(), "echo on").stdout == b"on\n"


def test_a_command_that_never_got_a_session_was_not_delivered(start_sshd: Callable[..., Sshd]) -> None:
    sshd = start_sshd("MaxSessions 0")
    with pytest.raises(SshBusy) as caught:
        connections.run(sshd.endpoint(), "true", timeout_seconds=60)
    assert not caught.value.delivered


@pytest.mark.survive(3)
def test_forty_dials_at_once_are_bounded_and_all_succeed(start_sshd: Callable[..., Sshd]) -> None:
    sshd = start_sshd("MaxStartups 4:100:4")
    # the key's comment makes forty endpoints of one sshd: forty connections, as after a restart of the server
    hops = [Hop("127.0.0.1", sshd.port, sshd.user, f"{sshd.host_key} host{n}") for n in range(40)]
    with concurrent.futures.ThreadPoolExecutor(40) as pool:
        answers = list(pool.map(lambda hop: connections.run(Endpoint((hop,)), "echo hi").stdout, hops))
    assert answers == [b"hi\n"] * 40


def test_a_transfer_that_moves_is_not_cut_by_the_limit_of_its_command(
    sshd: Sshd, settings: LazySettings
) -> None:
    """A folder of 95 MiB behind a slow link: here the host reads 6 MiB in six steps, longer than the limit together."""
    settings.SSH_LEAST_BYTES_PER_SECOND = 6 * 1024 * 1024 / 60
    steps = "for i in 1 2 3 4 5 6; do sleep 0.2; head -c 1048576 | wc -c; done"
    answer = connections.run(sshd.endpoint(), steps, bytes(6 * 1024 * 1024), timeout_seconds=0.5)
    assert answer.stdout.split() == [b"1048576"] * 6


def test_each_part_that_the_host_takes_is_told(sshd: Sshd) -> None:
    told: list[int] = []

    async def work(pool: connections.Pool) -> None:
        link = await pool.link(sshd.endpoint())
        await execute(link.connection, "cat >/dev/null", bytes(4 * 1024 * 1024), lambda: told.append(1))

    connections._ask(work, 60)
    assert len(told) == 64


def test_a_transfer_that_stands_still_is_cut(sshd: Sshd, settings: LazySettings) -> None:
    settings.SSH_LEAST_BYTES_PER_SECOND = 1e9
    with pytest.raises(Unreachable) as refusal:
        connections.run(sshd.endpoint(), "exec sleep 600", bytes(8 * 1024 * 1024), timeout_seconds=0.5)
    assert refusal.value.delivered
